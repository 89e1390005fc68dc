// Split-K of a large-M kernel that quantises: at the end each CTA of a cluster has some of the
// tile's rows, with all columns of a scale.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/quantise.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// The groups of eight rows of a tile that this thread's warp has sums of, and the CTAs that add
/// them up. A lane has one row of each group, eight rows apart (h = 0, 1).
template <class C>
struct RowEights {
  int warp;  ///< along M
  int rank;

  __device__ __forceinline__ int Eight(int h) const { return h * (C::kRowEights / 2) + warp; }
  /// The CTA that adds up a group of eight rows.
  __device__ __forceinline__ static int Owner(int eight) {
    return eight * C::kSplit / C::kRowEights;
  }
  __device__ __forceinline__ static int First(int rank) {
    return (rank * C::kRowEights + C::kSplit - 1) / C::kSplit;
  }
  /// Which of a lane's two rows this CTA adds up, or -1.
  __device__ __forceinline__ int Mine() const {
    return Owner(Eight(0)) == rank ? 0 : Owner(Eight(1)) == rank ? 1 : -1;
  }
};

/// Exchanges partial sums through distributed shared memory. Where Mine() is a row of this lane,
/// `row` becomes its sums over all of K, added in the order of the parts. See ReduceSplit.
template <class C>
__device__ __forceinline__ void ReduceRows(const float* sum, float (&row)[C::kColumns / 4],
                                           const RowEights<C>& eights, int group_n, int lane,
                                           BlockShared<C>& shared, uint8_t* incoming_sums) {
  constexpr int kVectors = C::kColumns / 16;  // of four sums
  const int rank = eights.rank;
  const int owned = eights.First(rank + 1) - eights.First(rank);
  // Where the vectors of a group of eight rows begin, among those that one CTA sends another.
  const auto place = [&](int slot, int eight) {
    const int local = eight - eights.First(eights.Owner(eight));
    return ((slot * C::kOwnedEights + local) * C::kWarpgroupsN + group_n) * kVectors * 32 + lane;
  };
  if constexpr (!C::kOwnPartials) {
    __syncwarp();
    if (lane < C::kSplit) BarrierArriveRemote(&shared.peers_done, lane);
    BarrierWait(&shared.peers_done, 0);
  }
  if (threadIdx.x == 128)
    BarrierArriveExpect(&shared.partials,
                        (C::kSplit - 1) * owned * C::kWarpgroupsN * kVectors * 32 * 16);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int to = eights.Owner(eights.Eight(h));
    if (to == rank) continue;
    const uint32_t base = MapToRank(SharedAddress(incoming_sums), to) +
                          place(rank < to ? rank : rank - 1, eights.Eight(h)) * 16;
    const uint32_t barrier = MapToRank(SharedAddress(&shared.partials), to);
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const float* const v = sum + j * 8 + h * 2;
      StoreAsync(base + j * 32 * 16, make_float4(v[0], v[1], v[4], v[5]), barrier);
    }
  }
  const int mine = eights.Mine();
  if (mine < 0) return;
  BarrierWaitCluster(&shared.partials, 0);
#pragma unroll
  for (int j = 0; j < kVectors; ++j) {
    float own[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = j * 8 + i / 2 * 4 + i % 2;
      own[i] = mine == 0 ? sum[at] : sum[at + 2];
      row[j * 4 + i] = 0.0f;
    }
#pragma unroll
    for (int from = 0; from < C::kSplit; ++from) {
      float4 v = make_float4(own[0], own[1], own[2], own[3]);
      if (from != rank)
        v = reinterpret_cast<const float4*>(
            incoming_sums)[place(from < rank ? from : from - 1, eights.Eight(mine)) + j * 32];
      row[j * 4] += v.x, row[j * 4 + 1] += v.y, row[j * 4 + 2] += v.z, row[j * 4 + 3] += v.w;
    }
  }
}

/// Computes SwiGLU of a lane's row of the product, quantises it and stores it with its scales.
/// `row`, `column`: the lane's row of D and the warp's first column. `largest`: see
/// StoreQuantisedTogether.
template <class C>
__device__ __forceinline__ void StoreQuantisedRow(const BlockParams& p,
                                                  float (&sum)[C::kColumns / 4],
                                                  const RowEights<C>& eights, int group_n,
                                                  int column, float* largest, int row, int lane) {
  constexpr int kValues = C::kColumns / 8;
  float value[kValues];
#pragma unroll
  for (int i = 0; i < kValues; ++i)
    value[i] = Silu(sum[i / 2 * 4 + i % 2]) * sum[i / 2 * 4 + i % 2 + 2];
  const int n = p.n / 2;
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < kValues; ++i) {
    if (column + i / 2 * 8 + lane % 4 * 2 + i % 2 >= n) value[i] = 0.0f;  // anything
    most = LargerMagnitude(most, value[i]);
  }
  most = LargestOfLanes<1, 2>(most);
  if constexpr (C::kWarpgroupsN == 2) {
    float* const of_row = largest + eights.warp * 8 + lane / 4;
    if (lane % 4 == 0) of_row[group_n * C::kTileM] = most;
    NamedSync(2 + eights.warp, 64);  // with the warp that has the row's other columns
    most = LargerMagnitude(most, of_row[(1 - group_n) * C::kTileM]);
  }
  bool lifts;
  const RowScale scale = ScaleOfLargest(most, lifts);
#pragma unroll
  for (int i = 0; i < kValues; ++i)
    value[i] = (lifts ? value[i] * 0x1p100f : value[i]) * scale.inverse;
  if (group_n == 0 && lane % 4 == 0 && row < p.m)
    p.epilogue.d_scale[std::int64_t{row} * p.epilogue.d_scale_row +
                       std::int64_t{column / 128} * p.epilogue.d_scale_block] = scale.scale;
#pragma unroll
  for (int first = 0; first < kValues; first += 16)  // 64 columns
    StoreBlocks(p, row, column + first * 4 + lane % 4 * 16, lane,
                [&](int i, int eight) { return value + first + i * 4 + eight * 2; });
}

}  // namespace culet::sm90
