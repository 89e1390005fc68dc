// Products by codes for few tokens, whose weights go from memory straight to registers. A CTA
// computes kRows rows of the weight by up to kTokens tokens. Its warps share these rows and take
// blocks of K in turn.
//
// Four lanes share a row: each reads 16 bytes of a block, which are kLaneK neighbouring codes, and
// of each token the same elements. Tensor cores do not ask which elements of K a step holds, as
// long as both operands have the same ones. So nothing passes through shared memory but the sums of
// the warps, and a weight takes little more than the instructions that make a number of its code.
#pragma once

#include <string>

#include "kernels/cuda_ops/code_finish.cuh"
#include "kernels/cuda_ops/code_nans.cuh"
#include "kernels/cuda_ops/code_numbers.cuh"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/code_rows.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/overlap.cuh"

namespace culet::cuda_ops {

/// How scales lie, and so where they are multiplied.
enum class CodeScales {
  kBlocks,  ///< float16 or bfloat16 for a multiple of a block: by the sums of each block
  kPowers,  ///< UE8M0 for a multiple of what a lane reads: by the codes, which stays exact
  kRows,    ///< float32, float16 or bfloat16 for a row: by the sum of the row
};

/// `kAhead`: blocks whose codes are on their way while one is multiplied, and itself.
template <class T_, class Codes_, CodeScales kScales_, int kSubTiles_, int kOctets_, int kAhead_,
          int kCtas_>
struct DirectConfig {
  using T = T_;
  using Codes = Codes_;
  static constexpr CodeScales kScales = kScales_;
  static constexpr int kSubTiles = kSubTiles_;  // of 16 rows
  static constexpr int kOctets = kOctets_;      // of 8 tokens
  static constexpr int kAhead = kAhead_;
  static constexpr int kCtas = kCtas_;
  static constexpr int kRows = 16 * kSubTiles, kTokens = 8 * kOctets, kEights = kRows / 8;
  static constexpr int kWarps = kCodeProductWarps, kThreads = 32 * kWarps;
  static constexpr int kLaneK = 128 / Codes::kBits, kBlockK = 4 * kLaneK;
  static constexpr int kWordK = kLaneK / 4, kWordSteps = kWordK / 4;  // steps of 16 elements of K
  static constexpr int kPieces = kLaneK / 8;                          // of 8 elements of a token
  static constexpr int kSumPitch = kRows + 4;                         // of a token's sums
  static constexpr bool kGates = true;
  static_assert(kScales != CodeScales::kPowers || Codes::kType == DataType::kFloat4_e2m1);
  static_assert(kScales != CodeScales::kBlocks || Codes::kZeros);
};

/// 16 bytes that are read once.
__device__ __forceinline__ uint4 LoadOnce(const char* from) {
#ifdef __CUDACC__
  uint4 to;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "l"(from));
  return to;
#else
  return *reinterpret_cast<const uint4*>(from);
#endif
}

/// One warp's blocks of K: `count` from `first` on, every kWarps-th.
template <class C>
class DirectWarp {
 public:
  float sums[C::kSubTiles][C::kOctets][4] = {};

  __device__ __forceinline__ DirectWarp(const CodeProductParams& p, int row0, int token0,
                                        int tokens, int first, int count)
      : p_(p),
        lane_(static_cast<int>(threadIdx.x) % 32),
        rows_(p, row0),
        first_(first),
        count_(count),
        k_(first * C::kBlockK + lane_ % 4 * C::kLaneK) {
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) {
      const auto row = static_cast<std::uint32_t>(rows_.Of(j, lane_ / 4) - rows_.Of(j % 2, 0));
      codes_at_[j] = row * static_cast<std::uint32_t>(p.code_stride);
      scale_at_[j] = row * static_cast<std::uint32_t>(p.scale_row_stride) * kScaleBytes;
    }
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      // Those beyond the last are the last again: no one reads their sums.
      const int token = min(8 * t + lane_ / 4, tokens - 1);
      x_from_[t] = static_cast<const char*>(p.x) + (token0 + token) * p.x_stride * 2;
    }
    scales_of_part_ =
        p.group >= p.k ? 0.0f : static_cast<float>(kScaleK) / static_cast<float>(p.group);
  }

  /// What no kernel writes: the first codes and their scales.
  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int i = 0; i < C::kAhead; ++i) LoadCodes(i, words_[i]);
    LoadScales(0);
  }

  __device__ __forceinline__ void Multiply() {
    if (count_ > 0) LoadTokens(Within(k_) * 2);
#pragma unroll 1
    for (int i = 0; i < count_; i += C::kAhead) {
#pragma unroll
      for (int j = 0; j < C::kAhead; ++j) {
        if (i + j < count_) MultiplyBlock(i + j, words_[j]);
      }
    }
    if constexpr (C::kScales == CodeScales::kBlocks) {
      if (__any_sync(kAllLanes, Finite() ? 0 : 1) != 0) MultiplyWithoutBias();
    }
    if constexpr (C::kScales == CodeScales::kRows) {
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = rows_.Of(2 * s + half, lane_ / 4);
          const float scale = ScaleOf(p_.scales, p_.scale_type, row * p_.scale_row_stride);
#pragma unroll
          for (int t = 0; t < C::kOctets; ++t) {
            sums[s][t][2 * half] *= scale, sums[s][t][2 * half + 1] *= scale;
          }
        }
      }
    }
    nans_.Spoil(sums);
  }

 private:
  using T = typename C::T;
  using Codes = typename C::Codes;
  using Half = HalfConstants<T>;
  using Words = uint4[C::kEights];
  static constexpr int kStepK = C::kWarps * C::kBlockK;  // to a warp's next block
  static constexpr std::uint32_t kScaleBytes = C::kScales == CodeScales::kBlocks ? 2 : 1;
  // Elements that may have a scale of their own, at least.
  static constexpr int kScaleK = C::kScales == CodeScales::kPowers ? C::kLaneK : C::kBlockK;

  // The lane's elements of block `i` begin here. The last block may end within K; what the lane
  // would read behind that is read elsewhere and multiplied by 0.
  __device__ __forceinline__ int PlaceOf(int i) const { return k_ + i * kStepK; }
  __device__ __forceinline__ int Within(int k) const { return k < p_.k ? k : 0; }

  __device__ __forceinline__ void LoadCodes(int i, Words& to) const {
    if (i >= count_) return;
    const auto at = static_cast<std::uint32_t>(Within(PlaceOf(i))) * Codes::kBits / 8;
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) to[j] = LoadOnce(CodesOf(j) + (codes_at_[j] + at));
  }

  __device__ __forceinline__ void LoadTokens(int at) {
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (int j = 0; j < C::kPieces; ++j) LoadPiece(t, j, at);
    }
  }
  __device__ __forceinline__ void LoadPiece(int t, int j, int at) {
    x_[t][j] = *reinterpret_cast<const uint4*>(x_from_[t] + at + 16 * j);
  }

  // Eights of rows begin at one of two places, which are the same for all lanes; what follows is
  // less than 4 GiB.
  __device__ __forceinline__ const char* CodesOf(int eight) const {
    return static_cast<const char*>(p_.codes) + rows_.Of(eight % 2, 0) * p_.code_stride;
  }
  __device__ __forceinline__ const char* ScalesOf(const void* scales, int eight) const {
    return static_cast<const char*>(scales) +
           rows_.Of(eight % 2, 0) * p_.scale_row_stride * kScaleBytes;
  }

  // Bytes from a row's first scale to that of the lane's elements of block `i`.
  __device__ __forceinline__ std::uint32_t ScaleOffset(int i) const {
    const int part =
        C::kScales == CodeScales::kPowers ? Within(PlaceOf(i)) / C::kLaneK : first_ + i * C::kWarps;
    const auto column =
        static_cast<std::uint32_t>((static_cast<float>(part) + 0.5f) * scales_of_part_);
    return column * static_cast<std::uint32_t>(p_.scale_k_stride) * kScaleBytes;
  }

  // As they lie in memory, a block ahead.
  __device__ __forceinline__ void LoadScales(int i) {
    if (C::kScales == CodeScales::kRows || i >= count_) return;
    const std::uint32_t along_k = ScaleOffset(i);
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) {
      const char* const from = ScalesOf(p_.scales, j) + (scale_at_[j] + along_k);
      if constexpr (C::kScales == CodeScales::kPowers) {
        scale_[j] = *reinterpret_cast<const std::uint8_t*>(from);
      } else {
        scale_[j] = *reinterpret_cast<const std::uint16_t*>(from);
        if (p_.zeros != nullptr) {
          zero_[j] = *reinterpret_cast<const std::uint16_t*>(ScalesOf(p_.zeros, j) +
                                                             (scale_at_[j] + along_k));
        }
      }
    }
  }

  __device__ __forceinline__ void MultiplyBlock(int i, Words& words) {
    constexpr bool kBlocks = C::kScales == CodeScales::kBlocks;
    float parts[C::kSubTiles][C::kOctets][4] = {}, ones[C::kOctets][4] = {};
    std::uint32_t factors[C::kEights] = {};  // of E2M1
    bool large = false;
    if constexpr (C::kScales == CodeScales::kPowers) {
#pragma unroll
      for (int j = 0; j < C::kEights; ++j) {
        large |= scale_[j] > kMostPower;
        factors[j] = scale_[j] > kMostPower ? 0 : Twice(scale_[j] + 126);
      }
      LoadScales(i + 1);
    }
    if ((first_ + i * C::kWarps + 1) * C::kBlockK > p_.k && PlaceOf(i) >= p_.k) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (uint4& x : x_[t]) x = make_uint4(0, 0, 0, 0);
      }
    }
    const bool more = i + 1 < count_;
    const int next = Within(PlaceOf(i + 1)) * 2;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      std::uint32_t b[C::kOctets][2 * C::kWordSteps];
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        PairTokens(x_[t][word / kPieceWords], word, b[t]);
        if ((word + 1) % kPieceWords == 0 && more) LoadPiece(t, word / kPieceWords, next);
      }
      if constexpr (kBlocks) {
        const std::uint32_t a[4] = {Half::kOnes, Half::kOnes, Half::kOnes, Half::kOnes};
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
          for (int step = 0; step < C::kWordSteps; ++step) {
            MultiplyAdd<T>(ones[t], a, b[t][2 * step], b[t][2 * step + 1]);
          }
        }
      }
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s) {
        const std::uint32_t upper = WordOf(words[2 * s], word);
        const std::uint32_t lower = WordOf(words[2 * s + 1], word);
        nans_.Look(s, upper, lower);
        MultiplyWord(kBlocks ? parts[s] : sums[s], upper, lower, factors[2 * s], factors[2 * s + 1],
                     b);
      }
    }
    if constexpr (C::kScales == CodeScales::kPowers) {
      if (__any_sync(kAllLanes, large ? 1 : 0) != 0) AddLarge(i);
    }
    LoadCodes(i + C::kAhead, words);
    if constexpr (kBlocks) {
      AddParts(parts, ones);
      LoadScales(i + 1);
    }
  }

  static __device__ __forceinline__ std::uint32_t WordOf(const uint4& words, int word) {
    return word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w;
  }

  // Elements of a token in the pairs that Codes make of a word: those of 4 bits are 4 apart, of 8
  // bits 2.
  static __device__ __forceinline__ void PairTokens(const uint4& x, int word,
                                                    std::uint32_t (&b)[2 * C::kWordSteps]) {
    if constexpr (C::kWordSteps == 2) {
      b[0] = __byte_perm(x.x, x.z, 0x5410), b[1] = __byte_perm(x.x, x.z, 0x7632);
      b[2] = __byte_perm(x.y, x.w, 0x5410), b[3] = __byte_perm(x.y, x.w, 0x7632);
    } else {
      const std::uint32_t low = word % 2 == 0 ? x.x : x.z, high = word % 2 == 0 ? x.y : x.w;
      b[0] = __byte_perm(low, high, 0x5410), b[1] = __byte_perm(low, high, 0x7632);
    }
  }

  // kZeros: `factor` is the zero point of codes that have one, beside the magic number.
  template <bool kZeros, int kFirst>
  static __device__ __forceinline__ std::uint32_t PairOfCodes(std::uint32_t word,
                                                              std::uint32_t factor) {
    if constexpr (C::kScales == CodeScales::kBlocks && !kZeros) {
      return Codes::template Biased<T, kFirst>(word);
    } else if constexpr (C::kScales == CodeScales::kPowers) {
      return Codes::template Scaled<T, kFirst>(word, factor);
    } else {
      return Codes::template Pair<T, kFirst>(word, factor);
    }
  }

  template <bool kZeros = false>
  static __device__ __forceinline__ void MultiplyWord(
      float (&to)[C::kOctets][4], std::uint32_t upper, std::uint32_t lower,
      std::uint32_t upper_factor, std::uint32_t lower_factor,
      const std::uint32_t (&b)[C::kOctets][2 * C::kWordSteps]) {
    MultiplyStep<kZeros, 0>(to, upper, lower, upper_factor, lower_factor, b);
    if constexpr (C::kWordSteps == 2) {
      MultiplyStep<kZeros, 1>(to, upper, lower, upper_factor, lower_factor, b);
    }
  }
  template <bool kZeros, int kStep>
  static __device__ __forceinline__ void MultiplyStep(
      float (&to)[C::kOctets][4], std::uint32_t upper, std::uint32_t lower,
      std::uint32_t upper_factor, std::uint32_t lower_factor,
      const std::uint32_t (&b)[C::kOctets][2 * C::kWordSteps]) {
    const std::uint32_t a[4] = {PairOfCodes<kZeros, 2 * kStep>(upper, upper_factor),
                                PairOfCodes<kZeros, 2 * kStep>(lower, lower_factor),
                                PairOfCodes<kZeros, 2 * kStep + 1>(upper, upper_factor),
                                PairOfCodes<kZeros, 2 * kStep + 1>(lower, lower_factor)};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      MultiplyAdd<T>(to[t], a, b[t][2 * kStep], b[t][2 * kStep + 1]);
    }
  }

  // The sums of a block have codes that are kBias too large, and so the zero point is: it is
  // multiplied by the sums of the tokens, which ones have found.
  __device__ __forceinline__ void AddParts(const float (&parts)[C::kSubTiles][C::kOctets][4],
                                           const float (&ones)[C::kOctets][4]) {
    const bool halves = p_.scale_type == DataType::kFloat16;
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) {
      const float scale =
          ScaleOfBits(scale_[j], halves ? DataType::kFloat16 : DataType::kBfloat16, 0);
      const float zero = Codes::template kBias<T> + __uint_as_float(zero_[j] << 16);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& sum = sums[j / 2][t][j % 2 * 2 + i];
          sum = fmaf(scale, fmaf(-zero, ones[t][i], parts[j / 2][t][j % 2 * 2 + i]), sum);
        }
      }
    }
  }

  __device__ __forceinline__ bool Finite() const {
    bool finite = true;
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (const float sum : sums[s][t]) finite &= fabsf(sum) < __uint_as_float(0x7F800000u);
      }
    }
    return finite;
  }

  // Everything once more, from codes less their zero points. So an infinite activation has the sign
  // of the weight, and large ones do not overflow for the bias alone. Zero points that are no whole
  // numbers are multiplied by the sums of the tokens here, too.
  __device__ __forceinline__ void MultiplyWithoutBias() {
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (float& sum : sums[s][t]) sum = 0;
      }
#pragma unroll 1
      for (int i = 0; i < count_; ++i) {
        float scale[2], rest[2];
        std::uint32_t zeros[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t at = (scale_at_[2 * s + j] + ScaleOffset(i)) / kScaleBytes;
          const float zero =
              p_.zeros != nullptr ? ScaleOf(ScalesOf(p_.zeros, j), p_.zero_type, at) : 0.0f;
          const bool whole = Codes::IsWhole(zero);
          scale[j] = ScaleOf(ScalesOf(p_.scales, j), p_.scale_type, at);
          zeros[j] = Codes::template ZeroPair<T>(whole ? zero : 0.0f);
          rest[j] = whole ? 0.0f : zero;
        }
        float parts[C::kOctets][4] = {}, ones[C::kOctets][4] = {};
        MultiplyFromMemory(i, s, zeros, parts, ones);
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float part = parts[t][j];
            if (rest[j / 2] != 0.0f) part = fmaf(-rest[j / 2], ones[t][j], part);
            sums[s][t][j] = fmaf(scale[j / 2], part, sums[s][t][j]);
          }
        }
      }
    }
  }

  // Sub-tile `s` of block `i`, which is read again: what is seldom needed takes no registers.
  __device__ __forceinline__ void MultiplyFromMemory(int i, int s,
                                                     const std::uint32_t (&factors)[2],
                                                     float (&parts)[C::kOctets][4],
                                                     float (&ones)[C::kOctets][4]) const {
    const auto at = static_cast<std::uint32_t>(Within(PlaceOf(i)));
    const std::uint32_t* codes[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      codes[j] = reinterpret_cast<const std::uint32_t*>(
          CodesOf(j) + (codes_at_[2 * s + j] + at * Codes::kBits / 8));
    }
#pragma unroll 1
    for (int word = 0; word < 4; ++word) {
      std::uint32_t b[C::kOctets][2 * C::kWordSteps];
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        uint4 x = *reinterpret_cast<const uint4*>(x_from_[t] + at * 2 + 16 * word);
        if (PlaceOf(i) >= p_.k) x = make_uint4(0, 0, 0, 0);
        PairTokens(x, word, b[t]);
        if constexpr (C::kScales == CodeScales::kBlocks) {
          const std::uint32_t a[4] = {Half::kOnes, Half::kOnes, Half::kOnes, Half::kOnes};
          MultiplyAdd<T>(ones[t], a, b[t][0], b[t][1]);
          MultiplyAdd<T>(ones[t], a, b[t][2], b[t][3]);
        }
      }
      MultiplyWord<true>(parts, codes[0][word], codes[1][word], factors[0], factors[1], b);
    }
  }

  // Adds block `i` of the lanes whose scale is above kMostPower, or NaN: by factors 2^-126 as
  // large.
  __device__ __forceinline__ void AddLarge(int i) {
    constexpr std::uint32_t kNotANumber = 0xFF;
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
      std::uint32_t factors[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const std::uint32_t power = *reinterpret_cast<const std::uint8_t*>(
            ScalesOf(p_.scales, j) + (scale_at_[2 * s + j] + ScaleOffset(i)));
        factors[j] = power == kNotANumber ? 0x7FC07FC0u : power > kMostPower ? Twice(power) : 0;
      }
      float parts[C::kOctets][4] = {}, ones[C::kOctets][4];
      MultiplyFromMemory(i, s, factors, parts, ones);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[s][t][j] += 0x1p126f * parts[t][j];
      }
    }
  }

  static __device__ __forceinline__ std::uint32_t Twice(std::uint32_t exponent) {
    return exponent << 7 | exponent << 23;
  }

  // 2^126 by a scale fits bfloat16 to 2.
  static constexpr std::uint32_t kMostPower = 128;
  static constexpr int kPieceWords = 8 / C::kWordK;

  const CodeProductParams& p_;
  const int lane_;
  const StreamRows rows_;
  const int first_, count_, k_;
  std::uint32_t codes_at_[C::kEights], scale_at_[C::kEights];  // bytes
  const char* x_from_[C::kOctets];
  float scales_of_part_;
  Words words_[C::kAhead] = {};
  uint4 x_[C::kOctets][C::kPieces] = {};
  std::uint32_t scale_[C::kEights] = {}, zero_[C::kEights] = {};
  NanRows<Codes, C::kSubTiles> nans_ = {};
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtas)
    CodeDirectKernelOf(const __grid_constant__ CodeProductParams p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = static_cast<int>(blockIdx.x) * C::kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int token0 = static_cast<int>(blockIdx.z) * C::kTokens;
  const int tokens = min(C::kTokens, p.m - token0);
  // Blocks of K of a part, and of a warp, differ by one at most.
  const int blocks = (p.k - 1) / C::kBlockK + 1;
  const int begin = blocks * split / p.splits, end = blocks * (split + 1) / p.splits;
  const int first = begin + warp;
  const int count = (end - first + C::kWarps - 1) / C::kWarps;  // 0, or less, behind the end

  // What no kernel writes may come before the wait.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  DirectWarp<C> own(p, row0, token0, tokens, first, count);
  own.Begin();
  if (p.early) AwaitPrevious();
  if (!p.chain) LetNextBegin();
  own.Multiply();
  FinishCodes<C>(p, own.sums, row0, token0, tokens, split,
                 reinterpret_cast<float*>(DynamicShared()), C::kTokens * C::kSumPitch);
}

/// `name`: the codes and what is said of their groups, at the beginning of the id.
template <class C>
CodeProductKernel MakeCodeDirect(const char* name, int registers) {
  const std::string shape =
      std::to_string(C::kRows) + "x" + std::to_string(C::kTokens) + "x" + std::to_string(C::kAhead);
  return {.id = std::string(name) + HalfConstants<typename C::T>::kName + shape + "r",
          .function = &CodeDirectKernelOf<C>,
          .codes = C::Codes::kType,
          .x = HalfConstants<typename C::T>::kType,
          .group_step = C::kScales == CodeScales::kPowers ? C::kLaneK : C::kBlockK,
          .rows = C::kRows,
          .tokens = C::kTokens,
          .most = C::kTokens,
          .block_k = C::kBlockK,
          .stages = C::kAhead,
          .ctas = C::kCtas,
          .streams = true,
          .registers = registers,
          .stage_bytes = 0,
          .token_bytes = 0,
          .scale_bytes = 0,
          .sum_bytes = C::kWarps * C::kTokens * C::kSumPitch * 4,
          .direct = true};
}

}  // namespace culet::cuda_ops
