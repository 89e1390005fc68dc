// A ring of shared-memory stages between one producer thread and the consumer warps, which may be
// of several CTAs. Barrier full[s] counts the producer's arrive.expect_tx and the bytes of stage s.
// Barrier empty[s] counts the consumer warps that have read it (FullArrivals and EmptyArrivals in
// descriptor.h).
#pragma once

#include <cstdint>

#include "sm90/descriptor.h"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// A thread's place in the ring. `parity` alternates each time that the stage is filled.
template <int kStages>
struct RingCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  /// Advances by `count` stages.
  __device__ __forceinline__ void Skip(int count) {
    const int to = stage + count;
    stage = to % kStages;
    parity ^= static_cast<uint32_t>(to / kStages) & 1;
  }
};

template <int kStages>
struct Ring {
  uint64_t full[kStages];
  uint64_t empty[kStages];

  /// Called by one thread each, which then calls BarrierInitFence. Other threads use the barriers
  /// after a barrier of the CTA or cluster.
  __device__ __forceinline__ void InitFull(uint32_t arrivals) {
#pragma unroll
    for (int s = 0; s < kStages; ++s) BarrierInit(&full[s], arrivals);
  }
  __device__ __forceinline__ void InitEmpty(uint32_t arrivals) {
#pragma unroll
    for (int s = 0; s < kStages; ++s) BarrierInit(&empty[s], arrivals);
  }

  /// Producer: waits until the stage is free. The first kStages calls pass at once, because the
  /// phase before the first has parity 1.
  __device__ __forceinline__ void WaitEmpty(const RingCursor<kStages>& at) {
    BarrierWait(&empty[at.stage], at.parity ^ 1);
  }

  /// Consumer: waits for the stage's data.
  __device__ __forceinline__ void WaitFull(const RingCursor<kStages>& at) {
    BarrierWait(&full[at.stage], at.parity);
  }

  /// Consumer: whether the stage's data have arrived.
  __device__ __forceinline__ bool TestFull(const RingCursor<kStages>& at) {
    return BarrierTest(&full[at.stage], at.parity);
  }

  /// All lanes of a consumer warp: the warp has read the stage. With kCtas > 1 every CTA of the
  /// multicast group is told.
  template <int kCtas>
  __device__ __forceinline__ void Release(int stage, int lane) {
    if constexpr (kCtas == 1) {
      if (lane == 0) BarrierArrive(&empty[stage]);
    } else {
      if (lane < kCtas) BarrierArriveRemote(&empty[stage], lane);
    }
  }

  /// Producer, before it exits: waits until all stages have been read, by its peers too. Otherwise
  /// a late arrival would address a CTA that has exited.
  __device__ __forceinline__ void Drain(RingCursor<kStages> at) {
#pragma unroll 1
    for (int s = 0; s < kStages; ++s) {
      BarrierWait(&empty[at.stage], at.parity ^ 1);
      at.Advance();
    }
  }
};

}  // namespace culet::sm90
