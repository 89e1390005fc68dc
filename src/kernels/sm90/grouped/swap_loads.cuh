// What fills a grouped kernel's ring: weights and rows of A.
#pragma once

#include <cstdint>

#include "kernels/sm90/grouped/swap_tiles.cuh"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

/// One thread: the weights of all tiles, and rows of A that lie one behind the other. Boxes may
/// bring rows of the next group, which nobody reads.
template <class C>
__device__ __forceinline__ void LoadWeights(const GroupedSwapParams& p,
                                            const GroupedShared<C>& shared, int splits,
                                            int kb_begin, int kb_end) {
  RingCursor<C::kStages> at;
  const bool waits = p.index == nullptr;
  bool waited = false;
  for (GroupedWalk<C> walk(p, shared.first_tile, splits); walk.there(); walk.Advance()) {
    const GroupedTile tile = walk.Place();
    const int row = tile.group * p.group_rows + tile.row;
    const int units = waits ? (tile.tokens + C::kBoxRows - 1) / C::kBoxRows : 0;
    const uint32_t bytes = C::kWeightBytes + units * C::kBoxRows * kBlockBytes;
    const CUtensorMap* const rows = &p.a_maps[waits ? units - 1 : 0];
#pragma unroll 1
    for (int kb = kb_begin; kb < kb_end; ++kb) {
      shared.ring->WaitEmpty(at);
      uint64_t* const full = &shared.ring->full[at.stage];
      BarrierArriveExpect(full, bytes);
      uint8_t* const to = shared.stages + at.stage * C::kStageBytes;
      if constexpr (C::kGated)
        TmaLoad4(to, &p.b, full, kb * kBlockBytes, 0, row / 8);
      else
        TmaLoad(to, &p.b, full, kb * kBlockBytes, row);
      if (waits) {
        if (!waited) GridDependencyWait(), waited = true;
        TmaLoad(to + C::kWeightBytes, rows, full, kb * kBlockBytes, tile.place);
      }
      at.Advance();
    }
  }
  // A launch that ends has waited, so that whoever waits for it has waited for those before it.
  if (waits && !waited) GridDependencyWait();
}

/// 32 * kTokenWarps threads: rows of A, and scales, of all tiles. Copies arrive at the stage's
/// barrier by themselves; consumers fence before wgmma reads what they left.
template <class C>
__device__ __forceinline__ void LoadRows(const GroupedSwapParams& p, const GroupedShared<C>& shared,
                                         int splits, int kb_begin, int kb_end, int thread) {
  constexpr int kRowsAtOnce = 32 * C::kTokenWarps / 8;
  constexpr int kPasses = (C::kTokens + kRowsAtOnce - 1) / kRowsAtOnce;
  const int chunk = thread % 8, first_row = thread / 8;
  RingCursor<C::kStages> at;
  for (GroupedWalk<C> walk(p, shared.first_tile, splits); walk.there(); walk.Advance()) {
    const GroupedTile tile = walk.Place();
    const auto row_of = [&](int in_tile) {
      const int place = tile.place + in_tile;
      if (in_tile >= tile.tokens) return -1;
      const int row = p.index != nullptr ? p.index[place] / p.per_row : place;
      return row < p.a_rows ? row : -1;
    };
    // Rows of A that this warp brings; negative: zeros. In whole batches, whose copies are asked
    // for without a branch between them.
    constexpr int kBatch = kPasses < 4 ? kPasses : 4;
    const int passes = p.index != nullptr
                           ? ((tile.tokens + kRowsAtOnce - 1) / kRowsAtOnce + kBatch - 1) / kBatch
                           : 0;
    for (int i = thread % 32; i < 4 * passes * kBatch; i += 32) {
      const int in_tile = i / 4 * kRowsAtOnce + thread / 32 * 4 + i % 4;
      shared.sources[in_tile] = row_of(in_tile);
    }
    __syncwarp();
    // Scales of rows that the thread brings.
    constexpr int kScaleRows = C::kScaled ? (C::kTokens + 95) / 96 : 1;
    [[maybe_unused]] int scale_source[kScaleRows];
    [[maybe_unused]] const float* weight_scale = nullptr;
    if constexpr (C::kScaled) {
#pragma unroll
      for (int i = 0; i < kScaleRows; ++i) scale_source[i] = row_of(thread + i * 96);
      if (thread < (C::kGated ? 2 : 1))
        weight_scale = p.scale_b + tile.group * p.scale_b_group + thread * p.scale_b_up +
                       int64_t{tile.row / 128} * p.k_blocks;
    }
#pragma unroll 1
    for (int kb = kb_begin; kb < kb_end; ++kb) {
      shared.ring->WaitEmpty(at);
      const uint32_t to =
          SharedAddress(shared.stages + at.stage * C::kStageBytes + C::kWeightBytes);
      const int k_byte = kb * kBlockBytes + chunk * 16;
      const int there = min(max(p.k_bytes - k_byte, 0), 16);
      const uint8_t* const from = p.a + (there > 0 ? k_byte : 0);
#pragma unroll 1
      for (int i = 0; i < passes; ++i) {
        int source[kBatch];
#pragma unroll
        for (int j = 0; j < kBatch; ++j)
          source[j] = shared.sources[first_row + (i * kBatch + j) * kRowsAtOnce];
#pragma unroll
        for (int j = 0; j < kBatch; ++j) {
          const int row = first_row + (i * kBatch + j) * kRowsAtOnce;
          // What lies beyond the stage's rows goes to none.
          if (C::kTokens % (kRowsAtOnce * kBatch) != 0 && row >= C::kTokens) continue;
          CopyAsyncWide(to + row * kBlockBytes + ((chunk ^ (row % 8)) * 16),
                        from + max(source[j], 0) * p.a_pitch, source[j] < 0 ? 0 : there);
        }
      }
      if constexpr (C::kScaled) {
        const uint32_t scales = SharedAddress(shared.scales + at.stage * C::kScaleFloats);
#pragma unroll
        for (int i = 0; i < kScaleRows; ++i) {
          const int row = thread + i * 96;
          if (row >= tile.tokens) break;
          const bool zero = scale_source[i] < 0;
          CopyAsync<4>(scales + row * 4,
                       zero ? p.scale_a
                            : p.scale_a + int64_t{scale_source[i]} * p.scale_a_row +
                                  int64_t{kb} * p.scale_a_block,
                       zero ? 0 : 4);
        }
        if (weight_scale != nullptr)
          CopyAsync<4>(scales + (C::kTokens + thread) * 4, weight_scale + kb);
      }
      CopyAsyncArrive(&shared.ring->full[at.stage]);
      at.Advance();
    }
    __syncwarp();
  }
  CopyAsyncWaitAll();
}

}  // namespace culet::sm90
