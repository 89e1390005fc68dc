// What the warpgroups of attention_wgmma.cuh share: their arguments, the work, shared memory.
#pragma once

#include <cuda.h>

#include "culet/layout/tma_swizzle.h"
#include "kernels/cuda_ops/attention_mma.cuh"
#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/attention_tile.cuh"
#include "sm90/descriptor.h"
#include "sm90/pipeline.cuh"
#include "sm90/scheduler.h"
#include "sm90/sync.cuh"

namespace culet::cuda_ops {

struct WgmmaArgs {
  AttentionArgs attention;
  int box = 0, boxes = 0;  ///< keys of a box, boxes of a tile of keys
  int units = 0;           ///< tiles of all key-value heads
  sm90::Divisor group, kv_heads, all_units;
  CUtensorMap k, v;  ///< (head_dim, kv_heads, key_rows); unused of codes
};

/// A tile, and a split of the keys that it sees.
struct WgmmaWork {
  Tile tile;
  int kv_head, unit, split;
  int begin, end, tiles;  ///< keys of the split; `begin` starts a box. tiles: -1 ends the work
  int splits;
  int2 all_see;  ///< keys of the split that all queries see
};

/// Where query `i` of a tile lies.
struct QueryPlace {
  std::int64_t row;
  int head;
  __device__ __forceinline__ QueryPlace(const WgmmaArgs& args, const WgmmaWork& work, int i) {
    const int query = work.tile.first + i, size = args.attention.params.heads;
    const int group = size / args.attention.params.kv_heads;
    const int of_row = args.group.Quotient(query);
    row = static_cast<std::int64_t>(work.tile.row) + of_row;
    head = work.kv_head * group + query - of_row * group;
  }
  __device__ __forceinline__ std::int64_t element(const AttentionParams& p) const {
    return (row * p.heads + head) * p.head_dim;
  }
};

/// Shared memory for a cache of Cache elements. E4M3 codes are copied as they are and become
/// float16 in the ring.
template <class Cache, int kDim>
struct WgmmaKernel {
  static constexpr bool kCodes = kAreCodes<Cache>;
  static constexpr int kWarpgroups = 2, kQueries = kWgmmaQueries;
  static constexpr int kConsumers = 128 * kWarpgroups, kThreads = 128 + kConsumers;
  static constexpr int kKeys = WgmmaKeys(kDim);
  // A row of 128 bytes holds 64 dimensions; a tile has the first 64 of all its rows, then the next.
  static constexpr int kRow = 128, kChunks = (kDim + 63) / 64;
  static constexpr int kQueryChunk = kQueries * kRow, kChunk = kKeys * kRow;
  static constexpr int kStageBytes = kChunks * kChunk, kQueryBytes = kChunks * kQueryChunk;
  static constexpr int kPieces = kStageBytes / 16 / 128;  // of 16 bytes, a thread of a warpgroup
  static constexpr int kWorks = kDim <= 128 ? 2 : 1;      // whose queries are there at once
  // What a unit of work has in shared memory besides its queries: its description and the keys that
  // each query sees.
  static constexpr int kWorkBytes = (static_cast<int>(sizeof(WgmmaWork)) + 15) / 16 * 16;
  static constexpr int kSeenBytes = kQueries * static_cast<int>(sizeof(int2));
  static constexpr int kBoundsBytes = kQueries / 32 * static_cast<int>(sizeof(int4));
  static constexpr int kMostStages = 8, kMostBytes = 232448;
  static constexpr int kOtherBytes =
      kWorks * (kWorkBytes + kSeenBytes) + kBoundsBytes + kMostStages * 20 + kWorks * 16;
  static constexpr int kCodeBytes = kCodes ? kKeys * kDim : 0;  // of a tile's keys or values
  static constexpr int kRoom =
      (kMostBytes - kOtherBytes - 2 * kCodeBytes - kWorks * kQueryBytes) / kStageBytes;
  static constexpr int kStages = kRoom < kMostStages ? kRoom : kMostStages;
  // Shared memory: queries, the ring of keys and values, the rest; for each stage the boxes whose
  // keys lie outside the cache.
  static constexpr int kStagesAt = kWorks * kQueryBytes;
  static constexpr int kSeenAt = kStagesAt + kStages * kStageBytes;
  static constexpr int kWorksAt = kSeenAt + kWorks * kSeenBytes;
  static constexpr int kBoundsAt = kWorksAt + kWorks * kWorkBytes;
  static constexpr int kRingAt = kBoundsAt + kBoundsBytes;
  static constexpr int kWorkRingAt = kRingAt + static_cast<int>(sizeof(sm90::Ring<kStages>));
  static constexpr int kLostAt = kWorkRingAt + static_cast<int>(sizeof(sm90::Ring<kWorks>));
  static constexpr int kCodesAt =
      (kLostAt + kStages * static_cast<int>(sizeof(unsigned)) + 15) / 16 * 16;
  static constexpr int kShared = kCodesAt + 2 * kCodeBytes;
  static_assert(kStages >= 4 && kShared <= kMostBytes);
  static_assert(kSeenAt % 16 == 0 && kRingAt % 16 == 0);
  // 64 Ki registers = 128 x (producer + 2 x consumer); multiples of 8.
  static constexpr int kProducerRegisters = 72, kConsumerRegisters = 216;
};

// Named barriers; 0 is the block's.
inline constexpr int kTurnBarrier = 1;      // one a warpgroup
inline constexpr int kGroupBarrier = 3;     // one a warpgroup: its own threads
inline constexpr int kConsumerBarrier = 5;  // both
inline constexpr int kProducerBarrier = 6;

/// What lies in a block's shared memory.
template <class Cache, int kDim>
struct WgmmaMemory {
  using Kernel = WgmmaKernel<Cache, kDim>;
  char* start;
  __device__ __forceinline__ auto& ring() const {
    return *reinterpret_cast<sm90::Ring<Kernel::kStages>*>(start + Kernel::kRingAt);
  }
  __device__ __forceinline__ auto& works() const {
    return *reinterpret_cast<sm90::Ring<Kernel::kWorks>*>(start + Kernel::kWorkRingAt);
  }
  __device__ __forceinline__ WgmmaWork& work(int slot) const {
    return *reinterpret_cast<WgmmaWork*>(start + Kernel::kWorksAt + slot * Kernel::kWorkBytes);
  }
  __device__ __forceinline__ int2* seen(int slot) const {
    return reinterpret_cast<int2*>(start + Kernel::kSeenAt + slot * Kernel::kSeenBytes);
  }
  __device__ __forceinline__ int4* bounds() const {
    return reinterpret_cast<int4*>(start + Kernel::kBoundsAt);
  }
  __device__ __forceinline__ unsigned& lost(int stage) const {
    return reinterpret_cast<unsigned*>(start + Kernel::kLostAt)[stage];
  }
  __device__ __forceinline__ char* stage(int which) const {
    return start + Kernel::kStagesAt + which * Kernel::kStageBytes;
  }
  /// Of a tile's keys, or its values.
  __device__ __forceinline__ char* codes(bool of_values) const {
    return start + Kernel::kCodesAt + (of_values ? Kernel::kCodeBytes : 0);
  }
  /// 16 bytes of query `query`.
  __device__ __forceinline__ char* queries(int slot, int query, int piece) const {
    return start + slot * Kernel::kQueryBytes + piece / 8 * Kernel::kQueryChunk +
           TmaOffset128(static_cast<unsigned>(query), static_cast<unsigned>(piece % 8 * 16));
  }
};

}  // namespace culet::cuda_ops
