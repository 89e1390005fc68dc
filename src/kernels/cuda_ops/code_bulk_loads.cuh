// What brings a stage of code_bulk.cuh to shared memory: one warp by bulk copies, others the
// scales.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda_ops/bulk.cuh"
#include "kernels/cuda_ops/code_numbers.cuh"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/code_rows.cuh"
#include "kernels/cuda_ops/overlap.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// Tokens of a product by tiles of 32, at most: each tile makes numbers of the codes again.
inline constexpr int kBulkMost = 256;

/// `kColumnK`: elements of K that share a scale, at least. `kSlices`: warps that share a stage
/// along K, 64 bytes of each row a warp. `kRowWarps`: warps that share its rows, kSubTiles x 16 a
/// warp.
template <class T_, class Codes_, int kColumnK_, int kSlices_, int kRowWarps_, int kSubTiles_,
          int kOctets_, int kCtas_>
struct BulkConfig {
  using T = T_;
  using Codes = Codes_;
  static constexpr int kSlices = kSlices_, kRowWarps = kRowWarps_;
  static constexpr int kSubTiles = kSubTiles_;  // of 16 rows, of a warp
  static constexpr int kOctets = kOctets_;      // of 8 tokens
  static constexpr int kCtas = kCtas_;
  static constexpr int kWarpRows = 16 * kSubTiles, kRows = kRowWarps * kWarpRows;
  static constexpr int kEights = kRows / 8, kTokens = 8 * kOctets;
  static constexpr int kMultipliers = kSlices * kRowWarps;  // warps
  // 16 bytes of a row are a chunk, of which a lane's four bytes are the codes of one word.
  static constexpr int kChunkK = 128 / Codes::kBits, kChunks = 4;
  static constexpr int kSliceK = kChunks * kChunkK, kBlockK = kSlices * kSliceK;
  static constexpr int kRowBytes = 64 * kSlices;
  // Eight rows' pieces of 16 bytes lie on different banks, and so do the tokens' of eight lanes.
  static constexpr int kRowPitch = kRowBytes + 16;
  static constexpr int kTokenPitch = 2 * kBlockK + (Codes::kBits == 4 ? 64 : 32);
  static constexpr int kWeightBytes = kRows * kRowPitch;
  // Scales of a stage: a word of each column and row, with zero points two.
  static constexpr int kColumnK = kColumnK_, kColumns = kBlockK / kColumnK;
  static constexpr int kScaleWords = Codes::kZeros ? 2 : 1;
  static constexpr int kScaleBytes = kColumns * kRows * kScaleWords * 4;
  // A warp brings them in groups of columns, a few a lane.
  static constexpr int kEntries = std::min(8, kColumns* kRows / 32);
  static constexpr int kGroups = kColumns * kRows / (32 * kEntries);
  static constexpr int kAhead = Codes::kZeros ? 2 : 3;  // groups that are on their way
  static constexpr int kWarpGroups = std::min(kGroups, Codes::kZeros ? 2 : 4);
  static constexpr int kScaleWarps = kGroups / kWarpGroups;
  static constexpr int kGroupColumns = kColumns / kGroups;
  static constexpr int kSliceGroups = std::max(1, kGroups / kSlices);
  // Of chunks: more products between promotions would need more registers than there are.
  static constexpr int kUnrolled = kColumnK == 32 && (kOctets > 1 || Codes::kZeros) ? 2 : kChunks;
  static constexpr int kColumnChunks = std::min(kChunks, kColumnK / kChunkK);
  static constexpr int kWarps = kMultipliers + 1 + kScaleWarps, kThreads = 32 * kWarps;
  static constexpr int kMaxStages = 8;
  static constexpr int kSumPitch = kRows + 4;  // of a token's sums
  static constexpr int kSumFloats = kTokens * kSumPitch;
  static constexpr bool kGates = true;
  // In front of the stages: barriers, and in which groups zero points are no whole numbers.
  static constexpr int kBrokenAt = 2 * kMaxStages * 8;
  static constexpr int kFrontBytes = kBrokenAt + (kMaxStages * kGroups * 4 + 127) / 128 * 128;
  static constexpr int kSumBytes = (kSlices + 1) * kSumFloats * 4;
  static_assert(kGroups * kGroupColumns == kColumns && kScaleWarps * kWarpGroups == kGroups);
  static_assert(kSlices % kGroups == 0 || kGroups % kSlices == 0);
  static_assert(kColumnK % kChunkK == 0 && kBlockK % kColumnK == 0);
  static_assert(kSliceK % kColumnK == 0 || kColumnK % kSliceK == 0);
};

/// What lies in a block's shared memory.
template <class C>
struct BulkMemory {
  char* start;
  int stage_bytes;

  __device__ __forceinline__ std::uint64_t* Full(int stage) const {
    return reinterpret_cast<std::uint64_t*>(start) + stage;
  }
  __device__ __forceinline__ std::uint64_t* Empty(int stage) const {
    return Full(C::kMaxStages + stage);
  }
  __device__ __forceinline__ int& Broken(int stage, int group) const {
    return reinterpret_cast<int*>(start + C::kBrokenAt)[stage * C::kGroups + group];
  }
  __device__ __forceinline__ char* Weights(int stage) const {
    return start + C::kFrontBytes + stage * stage_bytes;
  }
  __device__ __forceinline__ std::uint32_t* Scales(int stage) const {
    return reinterpret_cast<std::uint32_t*>(Weights(stage) + C::kWeightBytes);
  }
  __device__ __forceinline__ char* Tokens(int stage) const {
    return Weights(stage) + C::kWeightBytes + C::kScaleBytes;
  }
  /// In the stages' place, once all are read.
  __device__ __forceinline__ float* Sums(int slice) const {
    return reinterpret_cast<float*>(start + C::kFrontBytes) + slice * C::kSumFloats;
  }
};

/// A place in the ring of stages; `parity` alternates each time around.
struct BulkCursor {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void Advance(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

/// The warp that copies weights and tokens.
template <class C>
struct BulkCopies {
  const CodeProductParams& p;
  const BulkMemory<C> memory;
  const StreamRows rows;
  const int token0, tokens, first;

  __device__ __forceinline__ int Lane() const { return static_cast<int>(threadIdx.x) % 32; }
  /// Elements of K of block `i`.
  __device__ __forceinline__ int Elements(int i) const {
    return min(C::kBlockK, p.k - (first + i) * C::kBlockK);
  }

  __device__ __forceinline__ void Run(int count) const {
    const int begun = min(count, p.stages);
    for (int i = 0; i < begun; ++i) {
      Announce(i, i);
      CopyWeights(i, i);
    }
    if (p.early) AwaitPrevious();
    if (!p.chain) LetNextBegin();
    for (int i = 0; i < begun; ++i) CopyTokens(i, i);
    BulkCursor at;
#pragma unroll 1
    for (int i = begun; i < count; ++i) {
      sm90::BarrierWait(memory.Empty(at.stage), at.parity);
      Announce(i, at.stage);
      CopyWeights(i, at.stage);
      CopyTokens(i, at.stage);
      at.Advance(p.stages);
    }
  }

 private:
  /// Announces block `i`'s bytes. What the last one lacks of a warp's slice is 0.
  __device__ __forceinline__ void Announce(int i, int stage) const {
    const int elements = Elements(i), rest = elements % C::kSliceK;
    if (rest != 0) {
      constexpr int kBits = C::Codes::kBits;
      Clear(memory.Weights(stage), C::kRows, C::kRowPitch, elements * kBits / 8,
            (C::kSliceK - rest) * kBits / 8);
      Clear(memory.Tokens(stage), tokens, C::kTokenPitch, elements * 2, (C::kSliceK - rest) * 2);
      __syncwarp();
    }
    if (Lane() == 0) {
      const int bytes = C::kRows * (elements * C::Codes::kBits / 8) + tokens * elements * 2;
      sm90::BarrierArriveExpect(memory.Full(stage), static_cast<std::uint32_t>(bytes));
    }
    __syncwarp();
  }

  __device__ __forceinline__ void CopyWeights(int i, int stage) const {
    const int bytes = Elements(i) * C::Codes::kBits / 8;
    const auto* const from =
        static_cast<const char*>(p.codes) + std::int64_t{first + i} * C::kRowBytes;
    const sm90::L2Policy once = sm90::EvictFirst();
#pragma unroll
    for (int j = 0; j < (C::kRows + 31) / 32; ++j) {
      const int row = 32 * j + Lane();
      if (row >= C::kRows) break;
      CopyBulk(memory.Weights(stage) + row * C::kRowPitch,
               from + rows.Of(row / 8, row % 8) * p.code_stride, bytes, memory.Full(stage), once);
    }
  }

  __device__ __forceinline__ void CopyTokens(int i, int stage) const {
    if (Lane() >= tokens) return;
    const auto* const from =
        static_cast<const char*>(p.x) +
        ((token0 + Lane()) * p.x_stride + std::int64_t{first + i} * C::kBlockK) * 2;
    CopyBulk(memory.Tokens(stage) + Lane() * C::kTokenPitch, from, Elements(i) * 2,
             memory.Full(stage));
  }

  // `bytes`, a multiple of 16, from byte `at` on of each row.
  __device__ __forceinline__ void Clear(char* to, int count, int pitch, int at, int bytes) const {
    const int pieces = bytes / 16;
    for (int j = Lane(); j < count * pieces; j += 32) {
      *reinterpret_cast<uint4*>(to + j / pieces * pitch + at + j % pieces * 16) =
          make_uint4(0, 0, 0, 0);
    }
  }
};

/// A warp that brings scales and zero points, kWarpGroups groups of each stage.
template <class C>
struct BulkScales {
  const CodeProductParams& p;
  const BulkMemory<C> memory;
  const StreamRows rows;
  const int warp, first;

  __device__ __forceinline__ void Run(int count) const {
    const int all = count * C::kWarpGroups;
    Fetched ahead[C::kAhead];
#pragma unroll
    for (int j = 0; j < C::kAhead; ++j) {
      if (j < all) Fetch(j, ahead[j]);
    }
    if (p.early) AwaitPrevious();
    if (!p.chain) LetNextBegin();
    BulkCursor at;
#pragma unroll 1
    for (int i = 0; i < all; i += C::kAhead) {
#pragma unroll
      for (int j = 0; j < C::kAhead; ++j) {
        if (i + j >= all) break;
        if ((i + j) % C::kWarpGroups == 0) sm90::BarrierWait(memory.Empty(at.stage), at.parity ^ 1);
        Put(i + j, at.stage, ahead[j]);
        if (i + j + C::kAhead < all) Fetch(i + j + C::kAhead, ahead[j]);
        if ((i + j + 1) % C::kWarpGroups != 0) continue;
        if (Lane() == 0) sm90::BarrierArrive(memory.Full(at.stage));
        at.Advance(p.stages);
      }
    }
  }

 private:
  /// A group's, as they lie in memory.
  struct Fetched {
    std::uint32_t scale[C::kEntries], zero[C::Codes::kZeros ? C::kEntries : 1];
    std::uint32_t odd;  // the last bits of their indices
  };

  static __device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ int GroupOf(int i) const {
    return warp * C::kWarpGroups + i % C::kWarpGroups;
  }
  // Column and row. Neighbouring lanes read neighbouring scales.
  __device__ __forceinline__ int2 PlaceOf(int group, int entry) const {
    const int place = entry * 32 + Lane();
    const int2 at = p.scale_k_stride == 1
                        ? make_int2(place % C::kGroupColumns, place / C::kGroupColumns)
                        : make_int2(place / C::kRows, place % C::kRows);
    return make_int2(group * C::kGroupColumns + at.x, at.y);
  }

  // `i` counts the warp's groups of all stages.
  __device__ __forceinline__ void Fetch(int i, Fetched& to) const {
    to.odd = 0;
#pragma unroll
    for (int j = 0; j < C::kEntries; ++j) {
      const int2 at = PlaceOf(GroupOf(i), j);
      const int k = (first + i / C::kWarpGroups) * C::kBlockK + at.x * C::kColumnK;
      const bool there = k < p.k;
      int row = rows.Of(at.y / 8, at.y % 8);
      if constexpr (C::Codes::kType == DataType::kFloat8_e4m3) row /= p.group_rows;
      const std::int64_t index =
          there ? row * p.scale_row_stride + k / p.group * p.scale_k_stride : 0;
      to.odd |= static_cast<std::uint32_t>(index & 1) << j;
      to.scale[j] = there ? LoadScaleBits(p.scales, p.scale_type, index) : 0;
      if constexpr (C::Codes::kZeros) {
        to.zero[j] = there && p.zeros != nullptr ? LoadScaleBits(p.zeros, p.zero_type, index) : 0;
      }
    }
  }

  // All lanes have written when it returns.
  __device__ __forceinline__ void Put(int i, int stage, const Fetched& from) const {
    std::uint32_t* const to = memory.Scales(stage);
    float zeros[C::kEntries] = {};
    bool broken = false;
    if constexpr (C::Codes::kZeros) {
#pragma unroll
      for (int j = 0; j < C::kEntries; ++j) {
        if (p.zeros != nullptr)
          zeros[j] = ScaleOfBits(from.zero[j], p.zero_type, from.odd >> j & 1);
        broken |= !C::Codes::IsWhole(zeros[j]);
      }
      broken = __any_sync(kAllLanes, broken ? 1 : 0) != 0;
      if (Lane() == 0) memory.Broken(stage, GroupOf(i)) = broken ? 1 : 0;
    }
#pragma unroll
    for (int j = 0; j < C::kEntries; ++j) {
      const int2 at = PlaceOf(GroupOf(i), j);
      // Rows r and r + 8 side by side.
      const int place = at.y / 16 * 16 + at.y % 8 * 2 + at.y / 8 % 2;
      std::uint32_t* const word = to + (at.x * C::kRows + place) * C::kScaleWords;
      word[0] = __float_as_uint(ScaleOfBits(from.scale[j], p.scale_type, from.odd >> j & 1));
      if constexpr (C::Codes::kZeros) {
        word[1] = broken ? __float_as_uint(zeros[j])
                         : C::Codes::template ZeroPair<typename C::T>(zeros[j]);
      }
    }
    __syncwarp();
  }
};

}  // namespace culet::cuda_ops
