// Products by codes of 4 bits for few tokens, at the speed of memory. A CTA computes kRows rows of
// the weight by up to kTokens tokens. Its warps share these rows and split K.
//
// A warp fills a ring of its own in shared memory and reads a block of it by ldmatrix: that gives a
// lane eight neighbouring codes of a row, and 32 elements of K to a window, so that groups of 32
// end with a window. Its tokens' elements go straight from the cache to registers, a block ahead,
// and so do the scales of the blocks that follow. Nothing but the ring's copies is waited for.
#pragma once

#include <string>

#include "kernels/cuda_ops/code_finish.cuh"
#include "kernels/cuda_ops/code_numbers.cuh"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/code_rows.cuh"
#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/overlap.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// Groups of 32 elements share a scale. The warps take blocks of 128 of a row in turn.
template <class T_, class Codes_, int kSubTiles_, int kOctets_, int kStages_, int kCtas_>
struct StreamConfig {
  using T = T_;
  using Codes = Codes_;
  static constexpr int kSubTiles = kSubTiles_;  // of 16 rows
  static constexpr int kOctets = kOctets_;      // of 8 tokens
  static constexpr int kStages = kStages_;
  static constexpr int kCtas = kCtas_;
  static constexpr int kRows = 16 * kSubTiles, kTokens = 8 * kOctets, kEights = kRows / 8;
  static constexpr int kWarps = kCodeProductWarps, kThreads = 32 * kWarps;
  static constexpr int kBlockK = 128, kRowBytes = kBlockK / 2;
  static constexpr int kStepK = kWarps * kBlockK;  // to a warp's next block
  static constexpr int kPieces = kRowBytes / 16;   // of a row, that lanes copy
  static constexpr int kWindow = 32, kWindows = kBlockK / kWindow;
  static constexpr int kWeightBytes = kRows * kRowBytes, kRingBytes = kStages * kWeightBytes;
  // Scales are staged for several columns of kColumnK elements at a time, a chunk: 512 elements.
  static constexpr int kColumnK = 32, kChunkK = 512, kColumns = kChunkK / kColumnK;
  static constexpr int kLaneColumns = 4, kQuads = kColumns / kLaneColumns;
  static constexpr int kBlockColumns = kBlockK / kColumnK, kChunkBlocks = kChunkK / kBlockK;
  static constexpr int kColumnWindows = kColumnK / kWindow;
  static constexpr int kScaleWords = 2 * kColumns * kRows;  // of a warp: two chunks
  static constexpr int kScaleBytes = kWarps * kScaleWords * 4;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  // Shared memory holds one of the larger.
  static constexpr int kBound = kWarps * kRingBytes + kScaleBytes > 80 * 1024 ? 1 : kCtas;
#else
  static constexpr int kBound = kCtas;
#endif
  static constexpr int kSumPitch = kRows + 4;  // of a token's sums
  static constexpr bool kGates = true;
  static_assert(kTokens * kSumPitch * 4 <= kRingBytes, "sums take the ring's place");
  static_assert(kPieces == 4, "a warp copies eight rows at once");
};

/// The scales of a warp's rows on their way to shared memory, where a word has the scale's upper 19
/// bits, which are all that scales of 16 bits have, and the lower 13 of the zero point beside the
/// magic number. Two chunks are there: the one in use, and the next.
template <class C>
class StreamScales {
 public:
  /// A chunk's, in registers until they have arrived: behind the copies to the rings that takes
  /// long.
  struct Fetched {
    std::uint32_t scale[C::kQuads][C::kEights], zero[C::kQuads][C::kEights];
    int odd;  // the last bits of their indices
  };

  __device__ __forceinline__ StreamScales(const CodeProductParams& p, std::uint32_t* words,
                                          int lane, const StreamRows& rows, int first_k)
      : p_(p), words_(words), rows_(rows), first_k_(first_k) {
    // Neighbouring lanes read neighbouring scales.
    const bool along_k = p.scale_k_stride == 1;
    row_ = along_k ? lane / C::kLaneColumns : lane % 8;
    column_ = along_k ? lane % C::kLaneColumns : lane / 8;
  }

  __device__ __forceinline__ void Fetch(int chunk, Fetched& to) const {
    to.odd = 0;
#pragma unroll
    for (int quad = 0; quad < C::kQuads; ++quad) {
      const int column = quad * C::kLaneColumns + column_;
      const int block = chunk * C::kChunkBlocks + column / C::kBlockColumns;
      const int k = first_k_ + block * C::kStepK + column % C::kBlockColumns * C::kColumnK;
      const bool there = k < p_.k;
      const int group = there ? k / p_.group : 0;
#pragma unroll
      for (int j = 0; j < C::kEights; ++j) {
        const int row = rows_.Of(j, row_);
        const std::int64_t index = row * p_.scale_row_stride + group * p_.scale_k_stride;
        to.odd |= static_cast<int>(index & 1) << (quad * C::kEights + j);
        to.scale[quad][j] = there ? LoadScaleBits(p_.scales, p_.scale_type, index) : 0;
        to.zero[quad][j] = 0;
        if constexpr (C::Codes::kZeros) {
          if (there && p_.zeros != nullptr) {
            to.zero[quad][j] = LoadScaleBits(p_.zeros, p_.zero_type, index);
          }
        }
      }
    }
  }

  /// Returns whether a word cannot hold one of them.
  __device__ __forceinline__ bool Put(int chunk, const Fetched& from) const {
    bool broken = false;
#pragma unroll
    for (int i = 0; i < C::kQuads * C::kEights; ++i) {
      const int quad = i / C::kEights, j = i % C::kEights, odd = from.odd >> i & 1;
      const std::uint32_t scale =
          __float_as_uint(ScaleOfBits(from.scale[quad][j], p_.scale_type, odd));
      std::uint32_t zero = 0;
      if constexpr (C::Codes::kZeros) {
        if (p_.zeros != nullptr) {
          const float value = ScaleOfBits(from.zero[quad][j], p_.zero_type, odd);
          broken |= !C::Codes::IsWhole(value);
          zero = C::Codes::template ZeroPair<typename C::T>(value);
        } else {
          zero = HalfConstants<typename C::T>::kMagic;
        }
      }
      broken |= (scale & kZeroBits) != 0;
      // Rows r and r + 8 side by side.
      const int place = j / 2 * 16 + row_ * 2 + j % 2;
      const int column = chunk % 2 * C::kColumns + quad * C::kLaneColumns + column_;
      words_[column * C::kRows + place] = (scale & ~kZeroBits) | (zero & kZeroBits);
    }
    return broken;
  }

  /// Those of a lane's rows, which are r and r + 8 of a sub-tile.
  __device__ __forceinline__ uint2 Get(int chunk, int column, int sub_tile, int r) const {
    return *reinterpret_cast<const uint2*>(words_ + (chunk % 2 * C::kColumns + column) * C::kRows +
                                           sub_tile * 16 + r * 2);
  }
  static __device__ __forceinline__ float ScaleOfWord(std::uint32_t word) {
    return __uint_as_float(word & ~kZeroBits);
  }
  /// The zero point beside the magic number, twice.
  static __device__ __forceinline__ std::uint32_t ZerosOfWord(std::uint32_t word) {
    constexpr std::uint32_t kMask = kZeroBits << 16 | kZeroBits;
    return MaskedOr(__byte_perm(word, word, 0x1010), kMask,
                    HalfConstants<typename C::T>::kMagic & ~kMask);
  }

 private:
  static constexpr std::uint32_t kZeroBits = 0x1FFF;
  const CodeProductParams& p_;
  std::uint32_t* words_;
  const StreamRows rows_;
  int first_k_, row_, column_;
};

/// One warp's blocks of K, `count` from `first` on.
template <class C>
class StreamWarp {
 public:
  float sums[C::kSubTiles][C::kOctets][4] = {};

  __device__ __forceinline__ StreamWarp(const CodeProductParams& p, const char* ring,
                                        std::uint32_t* words, int row0, int token0, int tokens,
                                        int first, int count)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rows_(p, row0),
        rows_left_(p.n - row0),
        first_k_(first * C::kBlockK),
        count_(count),
        scales_(p, words, lane_, rows_, first_k_) {
    const int r = lane_ / C::kPieces, c = lane_ % C::kPieces;
    codes_ = static_cast<const char*>(p.codes) + (rows_.first + r) * p.code_stride + first_k_ / 2 +
             c * 16;
    // Pieces of 16 bytes lie so that those of eight rows are on different banks.
    copy_to_ =
        SharedAddress(ring) + static_cast<std::uint32_t>(r * C::kRowBytes + (c ^ Swizzle(r)) * 16);
    const int row = lane_ % 8, matrix = lane_ / 8;
    read_from_ =
        SharedAddress(ring) + static_cast<std::uint32_t>((row + matrix % 2 * 8) * C::kRowBytes +
                                                         (matrix / 2 ^ Swizzle(row)) * 16);
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      const int token = 8 * t + lane_ / 4;
      has_token_[t] = token < tokens;
      x_from_[t] = static_cast<const char*>(p.x) +
                   ((token0 + token) * p.x_stride + first_k_ + 8 * (lane_ % 4)) * 2;
#pragma unroll
      for (uint4& x : x_[t]) x = make_uint4(0, 0, 0, 0);
    }
  }

  /// Copies the next block, which is `i`, to a stage.
  __device__ __forceinline__ void CopyCodes(int i, int stage) {
    const std::uint32_t to = copy_to_ + static_cast<std::uint32_t>(stage * C::kWeightBytes);
    const int bytes = first_k_ + i * C::kStepK + 32 * (lane_ % C::kPieces) < p_.k ? 16 : 0;
    const std::int64_t second = rows_.second_eight * p_.code_stride;
    const std::int64_t third = rows_.third_eight * p_.code_stride;
    const char *from = codes_, *const nowhere = static_cast<const char*>(p_.codes);
    const int r = lane_ / C::kPieces;
    const auto copy = [&](int row, std::uint32_t first, const char* at, bool whole) {
      const bool there = whole || row + r < rows_left_;
      CopyAsync16(first + static_cast<std::uint32_t>(row * C::kRowBytes), there ? at : nowhere,
                  there ? bytes : 0);
    };
    if (rows_left_ >= C::kRows) {
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s, from += third) {
        copy(16 * s, to, from, true);
        copy(16 * s + 8, to, from + second, true);
      }
    } else {
#pragma unroll 1
      for (int s = 0; s < C::kSubTiles; ++s, from += third) {
        copy(16 * s, to, from, false);
        copy(16 * s + 8, to, from + second, false);
      }
    }
    codes_ += C::kStepK / 2;
  }

  __device__ __forceinline__ void FetchFirstScales() { scales_.Fetch(0, next_); }
  __device__ __forceinline__ void PutFirstScales() { broken_ = PutNext(0); }

  /// The tokens' elements of the first block.
  __device__ __forceinline__ void LoadFirstTokens() {
#pragma unroll
    for (int window = 0; window < C::kWindows; ++window) LoadTokens(0, window);
  }

  /// Adds block `i`, which is in `stage`, and fetches what follows it.
  __device__ __forceinline__ void Multiply(int i, int stage) {
    const int chunk = i / C::kChunkBlocks, part = i % C::kChunkBlocks;
    const bool more = (chunk + 1) * C::kChunkBlocks < count_;
    if (more && part == 0) scales_.Fetch(chunk + 1, next_);
    if (broken_) {
      MultiplyWindows<false>(i, stage, chunk, part);
    } else {
      MultiplyWindows<true>(i, stage, chunk, part);
    }
    if (more && part == C::kChunkBlocks - 1) broken_ = PutNext(chunk + 1);
  }

 private:
  // Where a row's pieces lie, so that the same piece of eight rows is on different banks.
  static __device__ __forceinline__ int Swizzle(int row) { return row >> 1 & 3; }

  // The fetched scales become those of a chunk. Whether words cannot hold some.
  __device__ __forceinline__ bool PutNext(int chunk) const {
    return __any_sync(kAllLanes, scales_.Put(chunk, next_) ? 1 : 0) != 0;
  }

  // Elements of block `i`'s window.
  __device__ __forceinline__ void LoadTokens(int i, int window) {
    const int k = i * C::kStepK + window * C::kWindow;
    const bool in_k = first_k_ + k < p_.k;
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      if (!has_token_[t]) continue;
      x_[t][window] = in_k ? *reinterpret_cast<const uint4*>(x_from_[t] + std::int64_t{k} * 2)
                           : make_uint4(0, 0, 0, 0);
    }
  }

  // kExact: words of the scales hold them. Else they come from memory, and zero points are
  // multiplied by the sums of the tokens, which ones find.
  template <bool kExact>
  __device__ __forceinline__ void MultiplyWindows(int i, int stage, int chunk, int part) {
    using T = typename C::T;
    std::uint32_t words[C::kSubTiles][4];  // of two windows
    const std::uint32_t from = read_from_ + static_cast<std::uint32_t>(stage * C::kWeightBytes);
    float parts[C::kSubTiles][C::kOctets][4] = {}, ones[C::kOctets][4] = {};
    uint2 own[C::kSubTiles] = {};
#pragma unroll
    for (int window = 0; window < C::kWindows; ++window) {
      if (window % 2 == 0) {
        const std::uint32_t half = from ^ static_cast<std::uint32_t>(window * 16);
#pragma unroll
        for (int s = 0; s < C::kSubTiles; ++s) {
          LoadMatrices(half + static_cast<std::uint32_t>(s * 16 * C::kRowBytes), words[s]);
        }
      }
      if (window == C::kWindows - 2) {
        // All have read the stage.
        __syncwarp();
        if (i + C::kStages < count_) CopyCodes(i + C::kStages, stage);
        CommitCopies();
      }
      if (window % C::kColumnWindows == 0) {
        const int column = part * C::kBlockColumns + window / C::kColumnWindows;
#pragma unroll
        for (int s = 0; s < C::kSubTiles; ++s) own[s] = scales_.Get(chunk, column, s, lane_ / 4);
      }
      std::uint32_t b[C::kOctets][4];
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        const uint4 x = x_[t][window];
        b[t][0] = __byte_perm(x.x, x.z, 0x5410), b[t][1] = __byte_perm(x.x, x.z, 0x7632);
        b[t][2] = __byte_perm(x.y, x.w, 0x5410), b[t][3] = __byte_perm(x.y, x.w, 0x7632);
      }
      if (i + 1 < count_) LoadTokens(i + 1, window);
      if constexpr (!kExact) {
        constexpr std::uint32_t kOnes = HalfConstants<T>::kOnes;
        const std::uint32_t a[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
          MultiplyAdd<T>(ones[t], a, b[t][0], b[t][1]);
          MultiplyAdd<T>(ones[t], a, b[t][2], b[t][3]);
        }
      }
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s) {
        const std::uint32_t upper = words[s][window % 2 * 2];
        const std::uint32_t lower = words[s][window % 2 * 2 + 1];
        std::uint32_t zeros[2] = {HalfConstants<T>::kMagic, HalfConstants<T>::kMagic};
        if (C::Codes::kZeros && kExact) {
          zeros[0] = StreamScales<C>::ZerosOfWord(own[s].x);
          zeros[1] = StreamScales<C>::ZerosOfWord(own[s].y);
        }
        MultiplyStep<0>(parts[s], upper, lower, zeros, b);
        MultiplyStep<1>(parts[s], upper, lower, zeros, b);
      }
      if ((window + 1) % C::kColumnWindows != 0) continue;
      if constexpr (kExact) {
        Promote(parts, own);
      } else {
        PromoteFromMemory(parts, ones, i, window);
      }
    }
  }

  template <int kStep>
  __device__ __forceinline__ void MultiplyStep(float (&to)[C::kOctets][4], std::uint32_t upper,
                                               std::uint32_t lower, const std::uint32_t (&zeros)[2],
                                               const std::uint32_t (&b)[C::kOctets][4]) {
    using T = typename C::T;
    using Codes = typename C::Codes;
    const std::uint32_t a[4] = {Codes::template Pair<T, 2 * kStep>(upper, zeros[0]),
                                Codes::template Pair<T, 2 * kStep>(lower, zeros[1]),
                                Codes::template Pair<T, 2 * kStep + 1>(upper, zeros[0]),
                                Codes::template Pair<T, 2 * kStep + 1>(lower, zeros[1])};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      MultiplyAdd<T>(to[t], a, b[t][2 * kStep], b[t][2 * kStep + 1]);
    }
  }

  __device__ __forceinline__ void Promote(float (&parts)[C::kSubTiles][C::kOctets][4],
                                          const uint2 (&own)[C::kSubTiles]) {
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
      const float upper = StreamScales<C>::ScaleOfWord(own[s].x);
      const float lower = StreamScales<C>::ScaleOfWord(own[s].y);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[s][t][j] = fmaf(j < 2 ? upper : lower, parts[s][t][j], sums[s][t][j]);
          parts[s][t][j] = 0;
        }
      }
    }
  }

  __device__ __forceinline__ void PromoteFromMemory(float (&parts)[C::kSubTiles][C::kOctets][4],
                                                    float (&ones)[C::kOctets][4], int i,
                                                    int window) {
    // What lies beyond K is 0.
    const int k = min(first_k_ + i * C::kStepK + window * C::kWindow, p_.k - 1);
    const int group = k / p_.group;
#pragma unroll
    for (int eight = 0; eight < C::kEights; ++eight) {
      const int s = eight / 2, row = rows_.Of(eight, lane_ / 4);
      const std::int64_t index = row * p_.scale_row_stride + group * p_.scale_k_stride;
      const float scale = ScaleOf(p_.scales, p_.scale_type, index);
      float zero = 0;
      if (C::Codes::kZeros && p_.zeros != nullptr) zero = ScaleOf(p_.zeros, p_.zero_type, index);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int j = eight % 2 * 2; j < eight % 2 * 2 + 2; ++j) {
          sums[s][t][j] = fmaf(scale, fmaf(-zero, ones[t][j], parts[s][t][j]), sums[s][t][j]);
          parts[s][t][j] = 0;
        }
      }
    }
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (float& one : ones[t]) one = 0;
    }
  }

  const CodeProductParams& p_;
  const int lane_;
  const StreamRows rows_;
  const int rows_left_, first_k_, count_;
  const StreamScales<C> scales_;
  const char* codes_;  // of the next block to copy
  std::uint32_t copy_to_, read_from_;
  const char* x_from_[C::kOctets];
  bool has_token_[C::kOctets];
  typename StreamScales<C>::Fetched next_;
  bool broken_ = false;  // words do not hold the scales of the chunk in use
  uint4 x_[C::kOctets][C::kWindows];
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBound)
    CodeStreamKernelOf(const __grid_constant__ CodeProductParams p) {
  char* const shared = DynamicShared();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = static_cast<int>(blockIdx.x) * C::kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int token0 = static_cast<int>(blockIdx.z) * C::kTokens;
  const int tokens = min(C::kTokens, p.m - token0);
  // Blocks of K of a part, and of a warp, differ by one at most.
  const int blocks = (p.k - 1) / C::kBlockK + 1;
  const int begin = static_cast<int>(std::int64_t{blocks} * split / p.splits);
  const int end = static_cast<int>(std::int64_t{blocks} * (split + 1) / p.splits);
  const int first = begin + warp;
  const int count = (end - first + C::kWarps - 1) / C::kWarps;  // 0, or less, behind the end

  // What no kernel writes may come before the wait.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  auto* const words = reinterpret_cast<std::uint32_t*>(shared + C::kWarps * C::kRingBytes);
  StreamWarp<C> own(p, shared + warp * C::kRingBytes, words + warp * C::kScaleWords, row0, token0,
                    tokens, first, count);
  // What is asked for first comes first.
  if (count > 0) own.FetchFirstScales();
#pragma unroll 1
  for (int stage = 0; stage < C::kStages; ++stage) {
    if (stage < count) own.CopyCodes(stage, stage);
    CommitCopies();
  }
  if (count > 0) own.PutFirstScales();
  if (p.early) AwaitPrevious();
  if (!p.chain) LetNextBegin();
  if (count > 0) own.LoadFirstTokens();
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    AwaitCopies<C::kStages - 1>();
    __syncwarp();
    own.Multiply(i, stage);
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
  }
  AwaitCopies<0>();
  __syncwarp();
  FinishCodes<C>(p, own.sums, row0, token0, tokens, split, reinterpret_cast<float*>(shared),
                 C::kRingBytes / 4);
}

/// `name`: the codes and what is said of their groups, at the beginning of the id.
template <class C>
CodeProductKernel MakeCodeStream(const char* name, int registers) {
  const std::string shape = std::to_string(C::kRows) + "x" + std::to_string(C::kTokens) + "x" +
                            std::to_string(C::kStages);
  return {.id = std::string(name) + HalfConstants<typename C::T>::kName + shape,
          .function = &CodeStreamKernelOf<C>,
          .codes = C::Codes::kType,
          .x = HalfConstants<typename C::T>::kType,
          .group_step = C::kColumnK,
          .rows = C::kRows,
          .tokens = C::kTokens,
          .most = C::kTokens,
          .block_k = C::kBlockK,
          .stages = C::kStages,
          .ctas = C::kCtas,
          .streams = true,
          .registers = registers,
          .stage_bytes = C::kWeightBytes,
          .token_bytes = 0,
          .scale_bytes = C::kScaleBytes,
          .sum_bytes = 0};
}

}  // namespace culet::cuda_ops
