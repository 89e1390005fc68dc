// The grouped kernel for few rows a group: tiles of C::kRows rows of a group's weights by up to 8
// of its rows, which CTAs take in a fixed stride until none is left. Gated, eights of gate's rows
// and of up's take turns. The warps of a CTA share K; each runs through all of the CTA's tiles with
// one ring, which is filled for the next tile while this one's sums are added up and stored.
//
// Where groups lie is known on the device alone. Each warp finds its tiles itself: a lane counts
// those of as many neighbouring groups, and a scan of the lanes says which has a tile.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm90/grouped/rows.cuh"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/skinny/kernel.cuh"

namespace culet::sm90 {

template <class Policy, class List, int kIndex, bool kPaired>
struct GroupedSkinnyConfig : SkinnyConfig<Policy, List, kIndex, EpilogueKind::kGeneral,
                                          OutputType::kBf16, SkinnyFusion::kNone> {
  using Base = SkinnyConfig<Policy, List, kIndex, EpilogueKind::kGeneral, OutputType::kBf16,
                            SkinnyFusion::kNone>;
  static constexpr bool kGated = kPaired;
  static constexpr int kColumns = Base::kRows / (kGated ? 2 : 1);  ///< of D
  /// Of a k-block, with all of the rows of A that there may be.
  static constexpr int kBlockSlot = Base::kSlotBytes + kSkinnyTokens * kBlockBytes;
  static constexpr int kRingBytes = Base::kDepth * kBlockSlot;
  /// Two, so that a warp may go on to the next tile while others read its sums of this one.
  static constexpr int kSumBuffers = 2;
  static constexpr int kWarpBytes = kRingBytes + kSumBuffers * Base::kSumBytes;
  static_assert(Base::kRows % 16 == 0 && kWarpBytes % 16 == 0);
};

/// What the warps of a CTA compute at a time.
struct GroupedSkinnyTile {
  int group;
  int place;   ///< the first row of D
  int tokens;  ///< rows of D
  int column;  ///< the first one of D
};

/// A warp's view of all tiles: each lane has the same number of groups, side by side.
template <class C>
class GroupedSkinnyTiles {
 public:
  __device__ __forceinline__ GroupedSkinnyTiles(const GroupedSkinnyParams& p, int lane)
      : p_(p), each_((p.groups + 31) / 32), first_(lane * each_) {
    int own = 0;
#pragma unroll 4
    for (int i = 0; i < each_; ++i) own += TilesOf(first_ + i);
    int sum = own;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += other;
    }
    before_ = sum - own;
    count_ = __shfl_sync(0xFFFFFFFFu, sum, 31);
  }
  __device__ __forceinline__ int count() const { return count_; }

  /// Requires: index < count().
  __device__ __forceinline__ GroupedSkinnyTile Find(int index) const {
    const uint32_t begun = __ballot_sync(0xFFFFFFFFu, before_ <= index ? 1 : 0);
    const int lane = 31 - __clz(static_cast<int>(begun));
    int group = first_, rest = index - before_;
    if (rest >= 0) {  // in later lanes it is below zero, in earlier ones some group or none
#pragma unroll 1
      for (int i = 1; i < each_; ++i) {
        const int tiles = TilesOf(group);
        if (rest < tiles) break;
        rest -= tiles, ++group;
      }
    }
    group = __shfl_sync(0xFFFFFFFFu, group, lane);
    rest = __shfl_sync(0xFFFFFFFFu, rest, lane);
    // Tiles of the same weights lie side by side, so that neighbouring CTAs read them together.
    const int2 range = GroupRange(p_, group);
    const int tiles = (range.y - range.x + kSkinnyTokens - 1) / kSkinnyTokens;
    const int tile_n = tiles == 1 ? rest : rest / tiles;
    const int place = range.x + (rest - tile_n * tiles) * kSkinnyTokens;
    return {group, place, min(range.y - place, kSkinnyTokens), tile_n * C::kColumns};
  }

 private:
  __device__ __forceinline__ int TilesOf(int group) const {
    if (group >= p_.groups) return 0;
    const int2 range = GroupRange(p_, group);
    const int rows = max(range.y - range.x, 0);
    return (rows + kSkinnyTokens - 1) / kSkinnyTokens * p_.tiles_n;
  }

  const GroupedSkinnyParams& p_;
  const int each_, first_;
  int before_, count_;  // tiles of the lanes before; of all
};

/// Fills a warp's ring, k-block after k-block and tile after tile.
template <class C>
class GroupedSkinnyLoads {
 public:
  /// For `count` k-blocks of each tile, from `first` on.
  __device__ __forceinline__ GroupedSkinnyLoads(const GroupedSkinnyParams& p,
                                                const GroupedSkinnyTiles<C>& tiles,
                                                SkinnyWarp<C>& warp, int first, int count)
      : p_(p), tiles_(tiles), warp_(warp), first_(first), count_(count), index_(blockIdx.x) {}

  __device__ __forceinline__ bool there() const { return index_ < tiles_.count(); }

  /// The weights of the next tile. Requires: there().
  __device__ __forceinline__ void Begin() {
    tile_ = tiles_.Find(index_);
    left_ = count_;
    const int lane = static_cast<int>(warp_.lane), byte = first_ * 128 + lane % 4 * 16;
    warp_.weights_left = p_.k_bytes - byte;
    const int64_t matrix = tile_.group * p_.group_rows;
#pragma unroll
    for (int r = 0; r < C::kEights; ++r) {
      // Rows past the last one repeat it: read, multiplied and not stored.
      const int row = tile_.column + (C::kGated ? r / 2 : r) * 8 + lane / 4;
      const int64_t up = C::kGated && r % 2 == 1 ? p_.up_rows : 0;
      warp_.weight_row[r] = p_.b + (matrix + up + min(row, p_.n - 1)) * p_.k_bytes + byte;
    }
    if constexpr (C::kScaled) {
      if (lane == SkinnyWarp<C>::kWeightScaleLane || (C::kGated && IsUpLane())) {
        warp_.scale = reinterpret_cast<const uint8_t*>(
            p_.scale_b + tile_.group * p_.scale_b_group + (IsUpLane() ? p_.scale_b_up : 0) +
            int64_t{tile_.column / 128} * p_.k_blocks + first_);
      }
    }
  }

  /// The rows of A, which the kernel before may have written, of the tile that has begun.
  __device__ __forceinline__ void FindRows() {
    const int lane = static_cast<int>(warp_.lane);
    int row = -1;
    if (lane < tile_.tokens) {
      row = tile_.place + lane;
      if (p_.index != nullptr) row = p_.index[row] / p_.per_row;
      if (row >= p_.a_rows) row = -1;
    }
    if constexpr (C::kScaled) {
      if (lane < kSkinnyTokens) {
        scale_bytes_ = row < 0 ? 0 : 4;
        warp_.scale =
            reinterpret_cast<const uint8_t*>(p_.scale_a + int64_t{max(row, 0)} * p_.scale_a_row +
                                             int64_t{first_} * p_.scale_a_block);
      }
    }
    row = __shfl_sync(0xFFFFFFFFu, row, lane / 4);
    has_token_ = lane / 4 < tile_.tokens;
    const int byte = first_ * 128 + lane % 4 * 16;
    // Rows that A has not count as zeros.
    warp_.activations_left = row < 0 ? 0 : p_.k_bytes - byte;
    warp_.token_row = p_.a + max(row, 0) * p_.a_pitch + (row < 0 ? 0 : byte);
  }

  __device__ __forceinline__ void FetchWeights(uint32_t slot) {
    warp_.FetchWeights(slot);
    --left_;
  }

  /// The k-block's rows of A, and its scales.
  __device__ __forceinline__ void FetchRows(uint32_t slot) {
    if constexpr (C::kScaled) {
      const uint32_t lane = warp_.lane;
      if (lane < kSkinnyTokens || lane == SkinnyWarp<C>::kWeightScaleLane ||
          (C::kGated && IsUpLane())) {
        CopyAsync<4>(slot + C::kWeightBytes + lane * 4, warp_.scale,
                     lane < kSkinnyTokens ? scale_bytes_ : 4);
      }
    }
    warp_.has_token = has_token_ ? 1 : 0;
    warp_.FetchActivations(slot);  // which goes on to the next block's scales, too
  }

  /// The next k-block, if there is one.
  __device__ __forceinline__ void Fetch(uint32_t slot) {
    if (left_ == 0) {
      if (begun_) index_ += gridDim.x;
      if (!there()) return;
      Begin();
      FindRows();
      begun_ = true;
    }
    FetchWeights(slot);
    FetchRows(slot);
  }

  /// Begin and FindRows have been called for the first tile.
  __device__ __forceinline__ void SetBegun() { begun_ = true; }

 private:
  __device__ __forceinline__ bool IsUpLane() const {
    return warp_.lane == SkinnyWarp<C>::kWeightScaleLane + 1;
  }

  const GroupedSkinnyParams& p_;
  const GroupedSkinnyTiles<C>& tiles_;
  SkinnyWarp<C>& warp_;
  const int first_, count_;
  int index_, left_ = 0;
  bool begun_ = false, has_token_ = false;
  int scale_bytes_ = 0;  // 0: the row's scales count as zeros
  GroupedSkinnyTile tile_ = {};
};

/// Of a thread's first pair of columns, loaded while its warp multiplies.
struct GroupedSkinnyFactor {
  float value = 1.0f;

  __device__ __forceinline__ GroupedSkinnyFactor(const GroupedSkinnyParams& p,
                                                 const GroupedSkinnyTile& tile, int token) {
    if (p.factors != nullptr && token < tile.tokens)
      value = LoadGlobal<float>(p.factors + p.factor_index[tile.place + token]);
  }
};

/// Adds the sums of `splits` warps, in their order, and stores the tile's part of D.
template <class C>
__device__ __forceinline__ void StoreGroupedSkinny(const GroupedSkinnyParams& p, const float* sums,
                                                   int splits, const GroupedSkinnyTile& tile,
                                                   int thread, GroupedSkinnyFactor factor) {
  constexpr int kPairs = C::kColumns / 2;  // of a token
  const int element = p.d_type == OutputType::kF32 ? 4 : 2;
#pragma unroll 1
  for (int i = thread; i < tile.tokens * kPairs; i += splits * 32) {
    const int token = i / kPairs, in_tile = i % kPairs * 2, column = tile.column + in_tile;
    if (column >= p.n) continue;
    const bool both = column + 1 < p.n;
    const int row = C::kGated ? in_tile / 8 * 16 + in_tile % 8 : in_tile;
    const float* from = sums + token * C::kSumStride + row;
    float2 total = make_float2(0.0f, 0.0f), up = total;
#pragma unroll 4
    for (int s = 0; s < splits; ++s) {
      const float2 v = *reinterpret_cast<const float2*>(from);
      total.x += v.x, total.y += v.y;
      if constexpr (C::kGated) {
        const float2 u = *reinterpret_cast<const float2*>(from + 8);
        up.x += u.x, up.y += u.y;
      }
      from += C::kWarpBytes / 4;
    }
    if (p.factors != nullptr) {
      if (i != thread) factor = GroupedSkinnyFactor(p, tile, token);
      total.x *= factor.value, total.y *= factor.value;
      up.x *= factor.value, up.y *= factor.value;
    }
    if (p.bias != nullptr || p.biases != nullptr) {
      const bool listed = p.bias != nullptr;
      const void* const bias = listed ? p.bias[C::kGated ? 2 * tile.group : tile.group]
                                      : p.biases + tile.group * p.bias_group;
      total.x += LoadOutput(bias, p.bias_type, column);
      if (both) total.y += LoadOutput(bias, p.bias_type, column + 1);
      if constexpr (C::kGated) {
        const void* const second = listed ? p.bias[2 * tile.group + 1] : bias;
        const int at = listed ? column : column + p.n;
        up.x += LoadOutput(second, p.bias_type, at);
        up.y += LoadOutput(second, p.bias_type, at + 1);
      }
    }
    if constexpr (C::kGated)
      total = make_float2(GatedOf(p, total.x, up.x), GatedOf(p, total.y, up.y));
    SkinnyStore(
        static_cast<uint8_t*>(p.d) + (int64_t{tile.place + token} * p.ldd + column) * element,
        p.d_type, total, both);
  }
}

/// Block dimensions: (32, warps that share K).
template <class C>
__global__ void __launch_bounds__(32 * kMostGroupedWarps)
    GroupedSkinny(const __grid_constant__ GroupedSkinnyParams p) {
  uint8_t* const shared_base = SharedBase();
  const int lane = static_cast<int>(threadIdx.x), splits = static_cast<int>(blockDim.y);
  const int part = WarpUniform(static_cast<int>(threadIdx.y));
  const int count = p.blocks_each + (part < p.blocks_rest ? 1 : 0);
  const int first = part * p.blocks_each + min(part, p.blocks_rest);
  uint8_t* const own = shared_base + part * C::kWarpBytes;
  SkinnyWarp<C> warp(SharedAddress(own), lane, C::kBlockSlot, kSkinnyTokens,
                     int64_t{4} * (lane < kSkinnyTokens ? p.scale_a_block : 1));
  const bool early = p.early_weights != 0;
  if (!early) {
    GridDependencyWait();
    GridDependencyLaunch();
  }
  const GroupedSkinnyTiles<C> tiles(p, lane);
  GroupedSkinnyLoads<C> loads(p, tiles, warp, first, count);
  int ahead = 0;
  if (early) {
    if (loads.there()) {
      ahead = min(count, C::kDepth);
      loads.Begin();
#pragma unroll 1
      for (int i = 0; i < ahead; ++i) loads.FetchWeights(warp.Slot(i));
    }
    GridDependencyWait();
    GridDependencyLaunch();
    if (loads.there()) {
      loads.FindRows();
      loads.SetBegun();
    }
  }
#pragma unroll 1
  for (int i = 0; i < C::kDepth; ++i) {
    if (i < ahead)
      loads.FetchRows(warp.Slot(i));
    else
      loads.Fetch(warp.Slot(i));
    CopyAsyncCommit();
  }
  constexpr int kPairs = C::kColumns / 2;
  const int thread = part * 32 + lane;
  int slot = 0, buffer = 0;
#pragma unroll 1
  for (int index = blockIdx.x; index < tiles.count(); index += gridDim.x) {
    const GroupedSkinnyTile tile = tiles.Find(index);
    const GroupedSkinnyFactor factor(p, tile, thread / kPairs);
    const int has_token = lane / 4 < tile.tokens ? 1 : 0;
    warp.Clear();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      CopyAsyncWait<C::kDepth - 1>();
      __syncwarp();
      const uint32_t at = warp.Slot(slot);
      slot = (slot + 1) % C::kDepth;
      warp.has_token = has_token;
      warp.Multiply(at, [&] {
        __syncwarp();
        loads.Fetch(at);
        CopyAsyncCommit();
      });
    }
    const int sums_at = C::kRingBytes + buffer * C::kSumBytes;
    warp.PutSums(reinterpret_cast<float*>(own + sums_at));
    __syncthreads();
    StoreGroupedSkinny<C>(p, reinterpret_cast<const float*>(shared_base + sums_at), splits, tile,
                          thread, factor);
    buffer ^= 1;
  }
}

}  // namespace culet::sm90
