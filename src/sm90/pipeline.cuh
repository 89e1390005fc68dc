// A ring of shared-memory stages between one producer thread and the consumer warps, possibly of
// several CTAs. full[s] counts the producer's arrive.expect_tx and the bytes of the stage; empty[s]
// counts the consumer warps that have read it (descriptor.h: FullArrivals, EmptyArrivals).
#pragma once

#include <cstdint>

#include "sm90/descriptor.h"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// Where in the ring a thread is. `parity` is that of the stage's current fill.
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
  /// `count` stages at once.
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

  /// By one thread each, which then fences (BarrierInitFence); others use them after a CTA
  /// (cluster) barrier.
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

  /// Consumer: whether the stage's data are there.
  __device__ __forceinline__ bool TestFull(const RingCursor<kStages>& at) {
    return BarrierTest(&full[at.stage], at.parity);
  }

  /// Consumer warp (all lanes): this warp has read the stage. kCtas > 1: tells every CTA of the
  /// multicast group.
  template <int kCtas>
  __device__ __forceinline__ void Release(int stage, int lane) {
    if constexpr (kCtas == 1) {
      if (lane == 0) BarrierArrive(&empty[stage]);
    } else {
      if (lane < kCtas) BarrierArriveRemote(&empty[stage], lane);
    }
  }

  /// Producer, at its end: waits until everything it filled has been read, here and in the peers,
  /// so that no late arrival meets a CTA that has exited.
  __device__ __forceinline__ void Drain(RingCursor<kStages> at) {
#pragma unroll 1
    for (int s = 0; s < kStages; ++s) {
      BarrierWait(&empty[at.stage], at.parity ^ 1);
      at.Advance();
    }
  }
};

}  // namespace culet::sm90
