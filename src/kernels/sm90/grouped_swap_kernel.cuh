// The grouped kernel: D^T = B A^T, tiles of 128 rows of a group's weights by up to C::kTokens of its
// rows, which CTAs take in a fixed stride until none is left. Weights come by TMA, rows of A by
// copies of 16 bytes, so that an index may gather them. The ring of stages runs on from tile to
// tile: while one is stored, the next one's operands come.
//
// Warps: the first warpgroup produces (warp 0 weights, the others rows of A and scales), two
// consume, 64 rows of weights each. Clusters, where there are any, split K: ranks send their sums
// to rank 0, which adds them in rank order.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/sm90/grouped_swap.h"
#include "kernels/sm90/output.cuh"
#include "kernels/sm90/silu.cuh"
#include "sm90/epilogue.cuh"
#include "sm90/fragment.cuh"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

template <class P, int kMostTokens, bool kPaired>
struct GroupedConfig {
  using Policy = P;
  using Format = typename P::Format;
  static constexpr bool kGated = kPaired;
  static constexpr bool kScaled = P::kInfo.sums == Sums::kBlockScaled;
  static constexpr int kRows = 128, kTokens = kMostTokens;
  static constexpr int kConsumerWarps = 8, kTokenWarps = 3, kThreads = 384;
  static constexpr int kWeightBytes = kRows * kBlockBytes;
  static constexpr int kBoxRows = kTokens <= 32 ? 8 : 32;  ///< of A
  static constexpr int kStageBytes = kWeightBytes + kTokens * kBlockBytes;
  /// Of a stage: a scale for each of its rows of A, then those of the weights, gate's and up's.
  static constexpr int kScaleFloats = kScaled ? kTokens + 4 : 0;
  /// Where results wait to be stored: of each consumer warpgroup so many rows of 128 bytes.
  static constexpr int kStoreTokens = kTokens < 64 ? kTokens : 64;
  static constexpr int kStoreBytes = kStoreTokens * 128;
  /// Sums of the other CTAs of a cluster, in kernels that may split K.
  static constexpr int kSplitTokens = kTokens <= 32 ? 8 : 0;
  static constexpr int kExchangeBytes = (kMostGroupedSplits - 1) * kRows * kSplitTokens * 4;
  static constexpr int kTableBytes = (kMostExperts + 4 + kTokens + 48) * 4;
  static constexpr int kBarriers = 2 * 16 + 2;
  static constexpr int kFixedBytes =
      1024 + 2 * kStoreBytes + kExchangeBytes + kTableBytes + kBarriers * 8;
  /// CTAs on a multiprocessor. Two leave each other's stores and barriers in the shade, and let the
  /// next launch's CTAs load weights beside this one's last.
  static constexpr int kResident = kTokens <= 32 ? 2 : 1;
  static constexpr int kSmemMost = kResident == 1 ? kSmemPerCta : kSmemPerSm / 2 - kSmemReserved;
  static constexpr int kStages = (kSmemMost - kFixedBytes) / (kStageBytes + 4 * kScaleFloats);
  static constexpr int kSmemBytes = kFixedBytes + kStages * (kStageBytes + 4 * kScaleFloats);
  /// Consumers of many tokens get registers from the producers.
  static constexpr bool kReallocates = kResident == 1;
  static constexpr int kProducerRegisters = 56, kConsumerRegisters = 224;
  static_assert(kStages >= 3 && kStages <= 16 && kTokens / kBoxRows <= kMostRowBoxes);
};

template <class C>
struct GroupedShared {
  uint8_t* stages;
  uint8_t* store;
  float4* exchange;
  float* scales;
  int* first_tile;
  int* sources;  ///< of a tile's rows, each written and read by one warp
  Ring<C::kStages>* ring;
  uint64_t* sums_full;  ///< rank 0: the other ranks' sums have come
  uint64_t* sums_free;  ///< the others: rank 0 has read them

  __device__ __forceinline__ explicit GroupedShared(uint8_t* base) : stages(base) {
    store = stages + C::kStages * C::kStageBytes;
    exchange = reinterpret_cast<float4*>(store + 2 * C::kStoreBytes);
    scales = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(exchange) + C::kExchangeBytes);
    first_tile = reinterpret_cast<int*>(scales + C::kStages * C::kScaleFloats);
    ring = reinterpret_cast<Ring<C::kStages>*>(reinterpret_cast<uint8_t*>(first_tile) +
                                               C::kTableBytes);
    sources = first_tile + kMostExperts + 4;
    sums_full = reinterpret_cast<uint64_t*>(ring + 1);
    sums_free = sums_full + 1;
  }
  /// Descriptors of a stage's tiles.
  __device__ __forceinline__ uint64_t Weights(int stage, int warpgroup) const {
    return WgmmaDescriptor128(SharedAddress(stages + stage * C::kStageBytes) +
                              warpgroup * 64 * kBlockBytes);
  }
  __device__ __forceinline__ uint64_t Rows(int stage) const {
    return WgmmaDescriptor128(SharedAddress(stages + stage * C::kStageBytes) + C::kWeightBytes);
  }
};

/// What a CTA computes at a time.
struct GroupedTile {
  int group;
  int place;   ///< the first row of D
  int tokens;  ///< rows of D
  int row;     ///< the first row of the group's weights; gated: of gate's
};

/// The rows of a group: [begin, end), cut off at the rows that there are.
__device__ __forceinline__ int2 GroupRange(const GroupedSwapParams& p, int group) {
  const int start = p.starts[group];
  const int64_t end = p.counts != nullptr ? int64_t{start} + max(p.counts[group], 0)
                                          : int64_t{p.starts[group + 1]};
  return make_int2(max(start, 0), static_cast<int>(end < p.rows ? end : p.rows));
}

template <class C>
struct GroupedWalk {
  const GroupedSwapParams& p;
  const int* first;
  int index, step;

  __device__ __forceinline__ GroupedWalk(const GroupedSwapParams& p, const int* first, int splits)
      : p(p), first(first), index(blockIdx.x / splits), step(gridDim.x / splits) {}
  __device__ __forceinline__ bool there() const { return index < first[p.groups] * p.tiles_n; }
  __device__ __forceinline__ void Advance() { index += step; }
  __device__ __forceinline__ GroupedTile Place() const {
    int low = 0, high = p.groups - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first[middle] * p.tiles_n <= index)
        low = middle;
      else
        high = middle - 1;
    }
    // Tiles of one weight tile lie side by side, so that neighbouring CTAs read it together.
    const int in_group = index - first[low] * p.tiles_n, tiles = first[low + 1] - first[low];
    const int tile_n = in_group / tiles, tile_m = in_group - tile_n * tiles;
    const int2 range = GroupRange(p, low);
    // Near-equal shares, in units of eight rows.
    const int each = ((range.y - range.x + tiles - 1) / tiles + 7) / 8 * 8;
    const int place = range.x + tile_m * each;
    return {low, place, min(each, range.y - place), tile_n * (C::kGated ? C::kRows / 2 : C::kRows)};
  }
};

/// 16 bytes from global to shared memory by way of L2 alone, of which the first `there` come and
/// zeros for the rest. PTX ISA 9.7.9.25.3 cp.async.
__device__ __forceinline__ void CopyAsyncWide(uint32_t shared_address, const void* source,
                                              int there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(source),
               "r"(there)
               : "memory");
}

/// How many tiles of rows the groups before each have. By all threads; ends with a barrier.
template <class C>
__device__ __forceinline__ void CountTiles(const GroupedSwapParams& p, int* first) {
  for (int group = threadIdx.x; group < p.groups; group += C::kThreads) {
    const int2 range = GroupRange(p, group);
    first[group + 1] = max(range.y - range.x + p.tile_tokens - 1, 0) / p.tile_tokens;
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int before = 0;
    if (lane == 0) first[0] = 0;
    for (int base = 0; base < p.groups; base += 32) {
      int sum = base + lane < p.groups ? first[base + lane + 1] : 0;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
        if (lane >= step) sum += other;
      }
      if (base + lane < p.groups) first[base + lane + 1] = before + sum;
      before += __shfl_sync(0xFFFFFFFFu, sum, 31);
    }
  }
  __syncthreads();
}

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
    // Rows of A that this warp brings; negative: zeros. In whole batches, whose copies are asked for
    // without a branch between them.
    constexpr int kBatch = kPasses < 4 ? kPasses : 4;
    const int passes =
        p.index != nullptr ? ((tile.tokens + kRowsAtOnce - 1) / kRowsAtOnce + kBatch - 1) / kBatch : 0;
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
      const uint32_t to = SharedAddress(shared.stages + at.stage * C::kStageBytes + C::kWeightBytes);
      const int k_byte = kb * kBlockBytes + chunk * 16;
      const int there = min(max(p.k_bytes - k_byte, 0), 16);
      const char* const from = p.a + (there > 0 ? k_byte : 0);
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

/// Adds kBlocks k-blocks, times their scales, to the sums. Of wide tiles each half is a product of
/// its own, so that one is scaled while the tensor core makes the next. Nothing is in flight at the
/// end: ptxas serialises products that cross a loop's back edge and are read in the loop.
template <class C, int kWidth, int kBlocks>
__device__ __forceinline__ void AddScaledBlocks(const GroupedShared<C>& shared,
                                                RingCursor<C::kStages>& at,
                                                float (&sum)[kWidth / 2], bool gathers,
                                                int warpgroup, int lane) {
  constexpr int kParts = kWidth > 64 ? 2 : 1, kPart = kWidth / kParts;
  constexpr int kProducts = kBlocks * kParts;
  using Product = Wgmma<typename C::Format, kPart>;
  float product[2][kPart / 2];
  int stage[kBlocks];
  const auto issue = [&](int i) {
    if (i % kParts == 0) {
      stage[i / kParts] = at.stage;
      shared.ring->WaitFull(at);
      if (gathers) FenceAsyncShared();  // copies, not TMA, wrote the rows
      at.Advance();
    }
    const uint64_t weights = shared.Weights(stage[i / kParts], warpgroup);
    const uint64_t rows = shared.Rows(stage[i / kParts]) +
                          WgmmaDescriptorStep(i % kParts * kPart * kBlockBytes);
    WgmmaFence();
    Product::template Ss<false>(product[i % 2], weights, rows);
#pragma unroll
    for (int slice = 1; slice < 4; ++slice) {
      const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
      Product::template Ss<true>(product[i % 2], weights + step, rows + step);
    }
    WgmmaCommit();
  };
  issue(0);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    if (i + 1 < kProducts) {
      issue(i + 1);
      WgmmaWait<1>();
    } else {
      WgmmaWait<0>();
    }
    float(&done)[kPart / 2] = product[i % 2];
    FenceRegisters(done);
    const float* const scales = shared.scales + stage[i / kParts] * C::kScaleFloats;
    const float first = scales[C::kTokens], second = C::kGated ? scales[C::kTokens + 1] : first;
    const float2* const of_tokens =
        reinterpret_cast<const float2*>(scales + i % kParts * kPart) + (lane & 3);
    float* const to = sum + i % kParts * (kPart / 2);
#pragma unroll
    for (int j = 0; j < kPart / 8; ++j) {
      const float2 x = of_tokens[4 * j];
      to[4 * j] += x.x * first * done[4 * j];
      to[4 * j + 1] += x.y * first * done[4 * j + 1];
      to[4 * j + 2] += x.x * second * done[4 * j + 2];
      to[4 * j + 3] += x.y * second * done[4 * j + 3];
    }
    if (i % kParts == kParts - 1) shared.ring->template Release<1>(stage[i / kParts], lane);
  }
}

/// One consumer warpgroup's sums of a tile: rows of weights by tokens, as wgmma leaves them.
template <class C, int kWidth>
__device__ __forceinline__ void SumTile(const GroupedShared<C>& shared, RingCursor<C::kStages>& at,
                                        float (&sum)[kWidth / 2], bool gathers, int kb_begin,
                                        int kb_end, int warpgroup, int lane) {
  using Product = Wgmma<typename C::Format, kWidth>;
#pragma unroll
  for (float& x : sum) x = 0.0f;
  if constexpr (C::kScaled) {
    constexpr int kBlocks = C::kResident == 1 ? 4 : 1;
    int kb = kb_begin;
#pragma unroll 1
    for (; kb + kBlocks <= kb_end; kb += kBlocks)
      AddScaledBlocks<C, kWidth, kBlocks>(shared, at, sum, gathers, warpgroup, lane);
#pragma unroll 1
    for (; kb < kb_end; ++kb) AddScaledBlocks<C, kWidth, 1>(shared, at, sum, gathers, warpgroup, lane);
  } else {
    RingCursor<C::kStages> left = at;
#pragma unroll 1
    for (int kb = kb_begin; kb < kb_end; ++kb) {
      shared.ring->WaitFull(at);
      if (gathers) FenceAsyncShared();  // copies, not TMA, wrote the rows
      const uint64_t weights = shared.Weights(at.stage, warpgroup), rows = shared.Rows(at.stage);
      WgmmaFence();
#pragma unroll
      for (int slice = 0; slice < 4; ++slice) {
        const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
        Product::template Ss<true>(sum, weights + step, rows + step);
      }
      WgmmaCommit();
      at.Advance();
      WgmmaWait<1>();
      if (kb > kb_begin) {
        shared.ring->template Release<1>(left.stage, lane);
        left.Advance();
      }
    }
    WgmmaWait<0>();
    FenceRegisters(sum);
    if (kb_end > kb_begin) shared.ring->template Release<1>(left.stage, lane);
  }
}

__device__ __forceinline__ float GatedOf(const GroupedSwapParams& p, float gate, float up) {
  if (p.gate == GroupedGate::kSilu) return Silu(gate) * up;
  gate = fminf(gate, p.limit);
  up = fminf(fmaxf(up, -p.limit), p.limit);
  return Silu(p.slope * gate) / p.slope * (up + 1.0f);
}

/// One consumer warpgroup applies factors, bias and gate to a tile's sums and stores them.
template <class C, int kWidth>
__device__ __forceinline__ void StoreTile(const GroupedSwapParams& p,
                                          const GroupedShared<C>& shared, const GroupedTile& tile,
                                          float (&sum)[kWidth / 2], int warpgroup, int warp,
                                          int lane) {
  constexpr int kGroups = kWidth / 8;
  constexpr int kColumns = C::kGated ? 32 : 64;  // of D, of a warpgroup
  const int in_row = lane / 4, token = 2 * (lane & 3);
  const int column0 = tile.row + warpgroup * kColumns;  // the warpgroup's first of D
  const int column = column0 + warp * (C::kGated ? 8 : 16) + in_row;
  if (p.factors != nullptr) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = j * 8 + token + i;
        if (at >= tile.tokens) continue;
        const int place = tile.place + at;
        const float factor = p.factors[p.factor_index[place]];
        sum[4 * j + i] *= factor, sum[4 * j + 2 + i] *= factor;
      }
    }
  }
  if (p.bias != nullptr) {
    const void* const bias = p.bias[C::kGated ? 2 * tile.group : tile.group];
    const void* const second = C::kGated ? p.bias[2 * tile.group + 1] : bias;
    const int other = C::kGated ? column : column + 8;
    const float low = column < p.n ? LoadOutput(bias, p.bias_type, column) : 0.0f;
    const float high = other < p.n ? LoadOutput(second, p.bias_type, other) : 0.0f;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      sum[4 * j] += low, sum[4 * j + 1] += low;
      sum[4 * j + 2] += high, sum[4 * j + 3] += high;
    }
  }
  if constexpr (C::kGated) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) sum[4 * j + i] = GatedOf(p, sum[4 * j + i], sum[4 * j + 2 + i]);
    }
  }
  constexpr int kEach = C::kGated ? 2 : 4;  // values of a lane and eight tokens
  if (p.d_type == OutputType::kF32) {
    float* const d = static_cast<float*>(p.d) + int64_t{tile.place} * p.ldd;
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int at = j * 8 + token + i % 2, to = column + i / 2 * 8;
        if (at < tile.tokens && to < p.n) d[int64_t{at} * p.ldd + to] = sum[4 * j + i];
      }
    }
    return;
  }
  // By way of shared memory, in pieces of 64 tokens: a token's columns side by side.
  constexpr int kPiece = kWidth < 64 ? kGroups : 8;
  constexpr int kChunks = kColumns / 8;  // of 16 bytes, of a token
  uint8_t* const store = shared.store + warpgroup * C::kStoreBytes;
  const uint32_t to = SharedAddress(store);
  const int barrier = 1 + warpgroup, thread = warp * 32 + lane;
  uint16_t* const d = static_cast<uint16_t*>(p.d) + int64_t{tile.place} * p.ldd;
  const bool wide = ((reinterpret_cast<uint64_t>(d) | (p.ldd * 2)) & 15) == 0;
#pragma unroll
  for (int first = 0; first < kGroups; first += kPiece) {
    if (first * 8 >= tile.tokens) break;
    NamedSync(barrier, 128);
    if constexpr (C::kGated) {
#pragma unroll
      for (int j = 0; j < kPiece; j += 2) {
        const int in_tile = (j + (lane >> 3 & 1)) * 8 + (lane & 7);
        const int g = first + j, h = j + 1 < kPiece ? g + 1 : g;  // of one: its neighbour's place
        StoreMatrix2Transposed(to + TmaOffset128(in_tile, warp * 16),
                               PackOutput(p.d_type, sum[4 * g], sum[4 * g + 1]),
                               PackOutput(p.d_type, sum[4 * h], sum[4 * h + 1]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < kPiece; ++j) {
        const float* const v = sum + 4 * (first + j);
        StoreMatrix2Transposed(
            to + TmaOffset128(j * 8 + (lane & 7), (warp * 2 + (lane >> 3 & 1)) * 16),
            PackOutput(p.d_type, v[0], v[1]), PackOutput(p.d_type, v[2], v[3]));
      }
    }
    NamedSync(barrier, 128);
    const int chunk = thread % kChunks, at_column = column0 + chunk * 8;
#pragma unroll 1
    for (int i = thread / kChunks; i < kPiece * 8; i += 128 / kChunks) {
      const int at = first * 8 + i;
      if (at >= tile.tokens) break;
      const uint4 data = *reinterpret_cast<const uint4*>(store + TmaOffset128(i, chunk * 16));
      uint16_t* const row = d + int64_t{at} * p.ldd + at_column;
      if (wide && at_column + 8 <= p.n) {
        *reinterpret_cast<uint4*>(row) = data;
      } else {
        const uint16_t* const narrow = reinterpret_cast<const uint16_t*>(&data);
#pragma unroll
        for (int c = 0; c < 8; ++c)
          if (at_column + c < p.n) row[c] = narrow[c];
      }
    }
  }
}

/// The consumers' side of a cluster that splits K.
template <class C, int kWidth>
__device__ __forceinline__ bool SumRanks(const GroupedShared<C>& shared, float (&sum)[kWidth / 2],
                                         int rank, int splits, uint32_t parity, bool is_first,
                                         int warp, int lane) {
  constexpr int kGroups = kWidth / 8;
  const int thread = warp * 32 + lane;
  if (rank != 0) {
    if (!is_first) BarrierWait(shared.sums_free, parity ^ 1);
    const uint32_t barrier = MapToRank(SharedAddress(shared.sums_full), 0);
    const uint32_t to =
        MapToRank(SharedAddress(shared.exchange + (rank - 1) * kGroups * 256 + thread), 0);
#pragma unroll
    for (int j = 0; j < kGroups; ++j)
      StoreAsync(to + j * 256 * 16,
                 make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]), barrier);
    return false;
  }
  if (thread == 0) BarrierArriveExpect(shared.sums_full, (splits - 1) * kGroups * 256 * 16);
  BarrierWaitCluster(shared.sums_full, parity);
#pragma unroll 1
  for (int r = 0; r < splits - 1; ++r) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const float4 v = shared.exchange[(r * kGroups + j) * 256 + thread];
      sum[4 * j] += v.x, sum[4 * j + 1] += v.y, sum[4 * j + 2] += v.z, sum[4 * j + 3] += v.w;
    }
  }
  __syncwarp();
  if (lane < splits - 1) BarrierArriveRemote(shared.sums_free, lane + 1);
  return true;
}

template <class C, int kWidth>
__device__ __forceinline__ void ConsumeTile(const GroupedSwapParams& p,
                                            const GroupedShared<C>& shared,
                                            RingCursor<C::kStages>& at, const GroupedTile& tile,
                                            int kb_begin, int kb_end, int rank, int splits,
                                            int number, int warp, int lane) {
  const int warpgroup = warp / 4;
  float sum[kWidth / 2];
  SumTile<C, kWidth>(shared, at, sum, p.index != nullptr, kb_begin, kb_end, warpgroup, lane);
  if constexpr (kWidth <= C::kSplitTokens) {
    if (splits > 1 && !SumRanks<C, kWidth>(shared, sum, rank, splits, number & 1, number == 0, warp,
                                           lane))
      return;
  }
  StoreTile<C, kWidth>(p, shared, tile, sum, warpgroup, warp % 4, lane);
}

/// Calls `use<width>` with the smallest width of a wgmma, in steps of 32, that holds the tokens.
template <int kMost, class Use>
__device__ __forceinline__ void ForWidth(int tokens, Use use) {
  if constexpr (kMost == 16) {
    use.template operator()<16>();
  } else {
    constexpr int kNext = kMost == 32 ? 16 : kMost - 32;
    if (tokens <= kNext)
      ForWidth<kNext>(tokens, use);
    else
      use.template operator()<kMost>();
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kResident)
    GroupedSwap(const __grid_constant__ GroupedSwapParams p) {
  extern __shared__ __align__(1024) uint8_t shared_base[];
  const GroupedShared<C> shared(shared_base);
  const int warp = WarpUniform(threadIdx.x / 32), lane = threadIdx.x % 32;
  const int splits = static_cast<int>(cuda::ptx::get_sreg_cluster_nctarank());
  const int rank = splits > 1 ? static_cast<int>(ClusterRank()) : 0;
  // Whether warps copy to the stages beside TMA.
  const bool copies = C::kScaled || p.index != nullptr;
  if (warp == 0 && ElectOne()) {
    shared.ring->InitFull(FullArrivals(copies ? 32 * C::kTokenWarps : 0));
    shared.ring->InitEmpty(EmptyArrivals(C::kConsumerWarps, 1));
    BarrierInit(shared.sums_full, 1);
    BarrierInit(shared.sums_free, C::kConsumerWarps);
    BarrierInitFence();
    PrefetchTensorMap(&p.b);
  }
  if (p.early_weights == 0) {
    GridDependencyWait();
    GridDependencyLaunch();
  }
  CountTiles<C>(p, shared.first_tile);
  if (splits > 1) {
    ClusterArriveRelaxed();
    ClusterWait();
  }
  int kb_begin = 0, kb_end = p.k_blocks;
  if (splits > 1) SplitRange(p.k_blocks, splits, rank, kb_begin, kb_end);
  if (warp < 4) {
    if constexpr (C::kReallocates) RegistersDown<C::kProducerRegisters>();
    if (warp == 0) {
      if (ElectOne()) LoadWeights<C>(p, shared, splits, kb_begin, kb_end);
      __syncwarp();
    } else {
      if (p.early_weights != 0) {
        GridDependencyWait();
        GridDependencyLaunch();
      }
      if (copies) LoadRows<C>(p, shared, splits, kb_begin, kb_end, threadIdx.x - 32);
    }
  } else {
    if constexpr (C::kReallocates) RegistersUp<C::kConsumerRegisters>();
    RingCursor<C::kStages> at;
    int number = 0;
    for (GroupedWalk<C> walk(p, shared.first_tile, splits); walk.there(); walk.Advance()) {
      const GroupedTile tile = walk.Place();
      const auto consume = [&]<int kWidth>() {
        ConsumeTile<C, kWidth>(p, shared, at, tile, kb_begin, kb_end, rank, splits, number,
                               warp - 4, lane);
      };
      if constexpr (C::kTokens == 32) {
        if (tile.tokens <= 8)
          consume.template operator()<8>();
        else if (tile.tokens <= 16)
          consume.template operator()<16>();
        else
          consume.template operator()<32>();
      } else {
        ForWidth<C::kTokens>(tile.tokens, consume);
      }
      ++number;
    }
  }
  if (splits > 1) {
    __syncwarp();
    ClusterArriveRelaxed();
    ClusterWait();
  }
}

template <class Policy, int kTokens, bool kGated>
GroupedSwapKernel MakeGroupedSwap(const char* id) {
  using C = GroupedConfig<Policy, kTokens, kGated>;
  return {.id = id,
          .function = reinterpret_cast<const void*>(&GroupedSwap<C>),
          .format = &Policy::kInfo,
          .gated = kGated,
          .tokens = kTokens,
          .box_rows = C::kBoxRows,
          .split_tokens = C::kSplitTokens,
          .resident = C::kResident,
          .smem_bytes = C::kSmemBytes,
          .threads = C::kThreads};
}

}  // namespace culet::sm90
