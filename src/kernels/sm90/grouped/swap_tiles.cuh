// A grouped kernel's configuration, its shared memory, and the tiles that a CTA takes.
#pragma once

#include <cstdint>

#include "kernels/sm90/grouped/rows.cuh"
#include "kernels/sm90/grouped/swap.h"
#include "sm90/descriptor.h"
#include "sm90/pipeline.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// `kMultiplied`: of block scales, the producers multiply those of rows with those of weights, so
/// that consumers, whose FP32 instructions take the tensor core's time, need one less for each pair
/// of sums.
template <class P, int kWeightRows, int kMostTokens, bool kPaired, bool kMultiplied = false>
struct GroupedConfig {
  using Policy = P;
  using Format = typename P::Format;
  static constexpr bool kGated = kPaired;
  static constexpr bool kScaled = P::kInfo.sums == Sums::kBlockScaled;
  static constexpr bool kFactors = kScaled && kMultiplied;
  static constexpr int kRows = kWeightRows, kTokens = kMostTokens;
  static constexpr int kBlocks = kRows / 128;  ///< of 64 rows of weights, of a warpgroup
  static constexpr int kConsumerWarps = 8, kTokenWarps = 3, kThreads = 384;
  static constexpr int kWeightBytes = kRows * kBlockBytes;
  static constexpr int kBoxRows = kTokens <= 32 ? 8 : kTokens <= 144 ? 16 : 32;  ///< of A
  /// From one width of a product to the next, above 64.
  static constexpr int kWidthStep = kTokens <= 144 ? 16 : 32;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kBlockBytes;
  static constexpr int kScaleBlocks = kGated ? 2 : kBlocks;  ///< gate's and up's, or of 128 rows
  /// Of a stage: a scale for each of its rows of A, then those of the weights, gate's and up's; or
  /// of each block of weights the rows' scales times its own.
  static constexpr int kScaleFloats = kFactors ? kTokens * kScaleBlocks : kScaled ? kTokens + 4 : 0;
  static constexpr int kScalesAhead = kBlocks > 1 ? 1 : 2;  ///< k-blocks
  /// Where results wait to be stored: of each consumer warpgroup so many rows of 128 bytes.
  static constexpr int kStoreTokens = kTokens < 64 ? kTokens : 64;
  static constexpr int kStoreBytes = kStoreTokens * 128;
  /// Sums of the other CTAs of a cluster, in kernels that may split K.
  static constexpr int kSplitTokens = kTokens <= 32 ? 8 : 0;
  static constexpr int kExchangeBytes = (kMostGroupedSplits - 1) * kRows * kSplitTokens * 4;
  static constexpr int kTableBytes = (kMostExperts + 4 + kTokens + 48) * 4;
  /// Where K is whole the producer hands a tile on with its first stage.
  static constexpr bool kHandsOn = kSplitTokens == 0;
  static constexpr int kPlaceBytes = kHandsOn ? 16 * 16 : 0;
  static constexpr int kBarriers = 2 * 16 + 2;
  static constexpr int kFixedBytes =
      1024 + 2 * kStoreBytes + kExchangeBytes + kTableBytes + kPlaceBytes + kBarriers * 8;
  /// CTAs on a multiprocessor. Two leave each other's stores and barriers in the shade, and let the
  /// next launch's CTAs load weights beside this one's last.
  static constexpr int kResident = kTokens <= 32 ? 2 : 1;
  static constexpr int kSmemMost = kResident == 1 ? kSmemPerCta : kSmemPerSm / 2 - kSmemReserved;
  static constexpr int kStages = (kSmemMost - kFixedBytes) / (kStageBytes + 4 * kScaleFloats);
  static constexpr int kSmemBytes = kFixedBytes + kStages * (kStageBytes + 4 * kScaleFloats);
  /// Consumers of many tokens get registers from the producers.
  static constexpr bool kReallocates = kResident == 1;
  static constexpr int kProducerRegisters = kFactors && kBlocks > 1 ? 40 : 56,
                       kConsumerRegisters = kFactors && kBlocks > 1 ? 232 : 224;
  /// Clocks that the second warpgroup begins behind the first: one's stores then lie under the
  /// other's products.
  static constexpr int kLag = kBlocks > 1 || kFactors ? 500 : 0;
  static_assert(kStages >= 3 && kStages <= 16 && kTokens / kBoxRows <= kMostRowBoxes);
  static_assert(kBlocks == 1 || !kScaled || kFactors);
};

/// What a CTA computes at a time.
struct alignas(16) GroupedTile {
  int group;
  int place;   ///< the first row of D
  int tokens;  ///< rows of D
  int row;     ///< the first row of the group's weights; gated: of gate's
};

template <class C>
struct GroupedShared {
  uint8_t* stages;
  uint8_t* store;
  float4* exchange;
  GroupedTile* places;  ///< of the tile whose first k-block the stage holds
  float* scales;
  int* first_tile;
  int* sources;  ///< of a tile's rows, each written and read by one warp
  Ring<C::kStages>* ring;
  uint64_t* sums_full;  ///< rank 0: the other ranks' sums have come
  uint64_t* sums_free;  ///< the others: rank 0 has read them

  __device__ __forceinline__ explicit GroupedShared(uint8_t* base) : stages(base) {
    store = stages + C::kStages * C::kStageBytes;
    exchange = reinterpret_cast<float4*>(store + 2 * C::kStoreBytes);
    places =
        reinterpret_cast<GroupedTile*>(reinterpret_cast<uint8_t*>(exchange) + C::kExchangeBytes);
    scales = reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(places) + C::kPlaceBytes);
    first_tile = reinterpret_cast<int*>(scales + C::kStages * C::kScaleFloats);
    ring = reinterpret_cast<Ring<C::kStages>*>(reinterpret_cast<uint8_t*>(first_tile) +
                                               C::kTableBytes);
    sources = first_tile + kMostExperts + 4;
    sums_full = reinterpret_cast<uint64_t*>(ring + 1);
    sums_free = sums_full + 1;
  }
  /// Descriptors of a stage's tiles.
  __device__ __forceinline__ uint64_t Weights(int stage, int block) const {
    return WgmmaDescriptor128(SharedAddress(stages + stage * C::kStageBytes) +
                              block * 64 * kBlockBytes);
  }
  __device__ __forceinline__ uint64_t Rows(int stage) const {
    return WgmmaDescriptor128(SharedAddress(stages + stage * C::kStageBytes) + C::kWeightBytes);
  }
};

/// Where the table of first tiles has the group of the CTA's first tile.
inline constexpr int kFirstGroupAt = kMostExperts + 2;

template <class C>
struct GroupedWalk {
  const GroupedSwapParams& p;
  const int* first;
  int index, step;
  bool is_first = true;

  __device__ __forceinline__ GroupedWalk(const GroupedSwapParams& p, const int* first, int splits)
      : p(p), first(first), index(blockIdx.x / splits), step(gridDim.x / splits) {}
  __device__ __forceinline__ bool there() const { return index < first[p.groups] * p.tiles_n; }
  /// Tiles that there are.
  __device__ __forceinline__ int left() const {
    return max(first[p.groups] * p.tiles_n - index + step - 1, 0) / step;
  }
  __device__ __forceinline__ void Advance() { index += step, is_first = false; }
  __device__ __forceinline__ GroupedTile Place() const {
    int low = is_first ? first[kFirstGroupAt] : 0, high = is_first ? low : p.groups - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (first[middle] * p.tiles_n <= index)
        low = middle;
      else
        high = middle - 1;
    }
    // Tiles of one weight tile lie side by side, so that neighbouring CTAs read it together.
    const int in_group = index - first[low] * p.tiles_n, tiles = first[low + 1] - first[low];
    const int tile_n = tiles == 1 ? in_group : in_group / tiles;
    const int tile_m = in_group - tile_n * tiles;
    const int2 range = GroupRange(p, low);
    // Near-equal shares, in units of eight rows.
    const int share = tiles == 1 ? range.y - range.x : (range.y - range.x + tiles - 1) / tiles;
    const int each = (share + 7) / 8 * 8;
    const int place = range.x + tile_m * each;
    return {low, place, min(each, range.y - place), tile_n * (C::kGated ? C::kRows / 2 : C::kRows)};
  }
};

/// How many tiles of rows the groups before each have, and the group of the CTA's first tile. By
/// all threads; ends with a barrier. `sums`: an int for each warp.
template <class C>
__device__ __forceinline__ void CountTiles(const GroupedSwapParams& p, int* first, int* sums,
                                           int splits) {
  constexpr int kWarps = C::kThreads / 32;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, index = blockIdx.x / splits;
  int before = 0;  // tiles of the rounds before
  if (threadIdx.x == 0) first[0] = 0;
  for (int base = 0; base < p.groups; base += C::kThreads) {
    const int group = base + threadIdx.x;
    int tiles = 0;
    if (group < p.groups) {
      const int2 range = GroupRange(p, group);
      tiles = max(range.y - range.x + p.tile_tokens - 1, 0) / p.tile_tokens;
    }
    int sum = tiles;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
      if (lane >= step) sum += other;
    }
    if (base > 0) __syncthreads();
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const int of_warp = sums[w];
      if (w < warp) sum += of_warp;
    }
    sum += before;
    if (group < p.groups) {
      first[group + 1] = sum;
      if ((sum - tiles) * p.tiles_n <= index && index < sum * p.tiles_n)
        first[kFirstGroupAt] = group;
    }
#pragma unroll
    for (int w = 0; w < kWarps; ++w) before += sums[w];
  }
  __syncthreads();
}

}  // namespace culet::sm90
