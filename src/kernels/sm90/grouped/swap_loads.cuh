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
      if constexpr (C::kHandsOn)
        if (kb == kb_begin) shared.places[at.stage] = tile;
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

/// Scales of a k-block that a thread brings: of its rows of A, and of the tile's weights.
template <class C>
struct GroupedScales {
  static constexpr int kRows = (C::kTokens + 32 * C::kTokenWarps - 1) / (32 * C::kTokenWarps);
  float rows[kRows], blocks[C::kScaleBlocks];

  /// `sources`: rows of A, negative where there are none. `first`: the scales of the tile's first
  /// block of weights; without gate and up those of the next one lie `next` behind them.
  __device__ __forceinline__ void Load(const GroupedSwapParams& p, const int (&sources)[kRows],
                                       const float* first, int next, int kb) {
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      rows[i] =
          sources[i] < 0
              ? 0.0f
              : p.scale_a[int64_t{sources[i]} * p.scale_a_row + int64_t{kb} * p.scale_a_block];
#pragma unroll
    for (int b = 0; b < C::kScaleBlocks; ++b)
      blocks[b] = first[b * (C::kGated ? p.scale_b_up : next) + kb];
  }
  /// Their products, to a stage's scales: of a block of weights after the other, but of gate and up
  /// two of gate's rows, then the same two of up's.
  __device__ __forceinline__ void Multiply(float* to, int thread) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = thread + i * 32 * C::kTokenWarps;
      if (row >= C::kTokens) break;
#pragma unroll
      for (int b = 0; b < C::kScaleBlocks; ++b)
        to[C::kGated ? row / 2 * 4 + b * 2 + row % 2 : b * C::kTokens + row] = rows[i] * blocks[b];
    }
  }
};

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
    constexpr int kMostBatch = C::kProducerRegisters < 56 ? 2 : 4;
    constexpr int kBatch = kPasses < kMostBatch ? kPasses : kMostBatch;
    const int passes = p.index != nullptr
                           ? ((tile.tokens + kRowsAtOnce - 1) / kRowsAtOnce + kBatch - 1) / kBatch
                           : 0;
    for (int i = thread % 32; i < 4 * passes * kBatch; i += 32) {
      const int in_tile = i / 4 * kRowsAtOnce + thread / 32 * 4 + i % 4;
      shared.sources[in_tile] = row_of(in_tile);
    }
    __syncwarp();
    // Scales of rows that the thread brings.
    constexpr int kScaleRows = C::kScaled ? GroupedScales<C>::kRows : 1;
    [[maybe_unused]] int scale_source[kScaleRows];
    [[maybe_unused]] const float* weight_scale = nullptr;
    [[maybe_unused]] int next_block = 0;
    if constexpr (C::kScaled) {
#pragma unroll
      for (int i = 0; i < kScaleRows; ++i) scale_source[i] = row_of(thread + i * 96);
      if (C::kFactors || thread < (C::kGated ? 2 : 1))
        weight_scale = p.scale_b + tile.group * p.scale_b_group +
                       (C::kFactors ? 0 : thread * p.scale_b_up) +
                       int64_t{tile.row / 128} * p.k_blocks;
      if (tile.row / 128 < (p.n - 1) / 128) next_block = p.k_blocks;
    }
    const auto load = [&](int kb, [[maybe_unused]] auto& scales_of_block) {
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
      if constexpr (C::kFactors) {
        scales_of_block.Multiply(shared.scales + at.stage * C::kScaleFloats, thread);
        if (kb + C::kScalesAhead < kb_end)
          scales_of_block.Load(p, scale_source, weight_scale, next_block, kb + C::kScalesAhead);
        __syncwarp();
        if (thread % 32 == 0) BarrierArrive(&shared.ring->full[at.stage]);
      } else if constexpr (C::kScaled) {
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
      if (!C::kFactors || p.index != nullptr) CopyAsyncArrive(&shared.ring->full[at.stage]);
      at.Advance();
    };
    if constexpr (C::kFactors) {
      // Ahead, so that no stage waits for L2: two k-blocks, or one where products are long.
      GroupedScales<C> scales[C::kScalesAhead];
#pragma unroll
      for (int i = 0; i < C::kScalesAhead; ++i)
        if (kb_begin + i < kb_end)
          scales[i].Load(p, scale_source, weight_scale, next_block, kb_begin + i);
#pragma unroll 1
      for (int kb = kb_begin; kb < kb_end; kb += C::kScalesAhead) {
#pragma unroll
        for (int i = 0; i < C::kScalesAhead; ++i)
          if (kb + i < kb_end) load(kb + i, scales[i]);
      }
    } else {
      int none = 0;
#pragma unroll 1
      for (int kb = kb_begin; kb < kb_end; ++kb) load(kb, none);
    }
    __syncwarp();
  }
  CopyAsyncWaitAll();
}

}  // namespace culet::sm90
