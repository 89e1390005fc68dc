// Tensor copies between global and shared memory. One thread issues each, through libcu++'s
// cuda::ptx where that has the instruction.
#pragma once

#include <cstdint>
#include <cuda/ptx>

#include "sm90/sync.cuh"

namespace culet::sm90 {

/// Fetches a tensor map into the descriptor cache, which saves the first copy some 500 clocks. PTX
/// ISA 9.7.9 prefetch.
__device__ __forceinline__ void PrefetchTensorMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// What L2 does with the lines of a load when it needs room. PTX ISA 9.7.9 createpolicy.
using L2Policy = uint64_t;

/// The policy for data that is read once: its lines leave L2 first. Activations, D and the code,
/// constants and descriptors of later launches stay.
__device__ __forceinline__ L2Policy EvictFirst() {
  L2Policy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

/// Loads the box at element (inner, outer) into this CTA's shared memory and completes its bytes on
/// barrier `full`.
__device__ __forceinline__ void TmaLoad(void* destination, const void* map, uint64_t* full,
                                        int inner, int outer) {
  const int32_t at[2] = {inner, outer};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination,
                                  map, at, full);
}

/// TmaLoad with an L2 policy, which cuda::ptx does not have. PTX ISA 9.7.9.27 cp.async.bulk.tensor.
__device__ __forceinline__ void TmaLoad(void* destination, const void* map, uint64_t* full,
                                        int inner, int outer, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(SharedAddress(destination)),
      "l"(map), "r"(inner), "r"(outer), "r"(SharedAddress(full)), "l"(policy)
      : "memory");
}

/// As TmaLoad, for a map with a third axis.
__device__ __forceinline__ void TmaLoad3(void* destination, const void* map, uint64_t* full,
                                         int inner, int outer, int slice) {
  const int32_t at[3] = {inner, outer, slice};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination,
                                  map, at, full);
}
/// TmaLoad3 with an L2 policy.
__device__ __forceinline__ void TmaLoad3(void* destination, const void* map, uint64_t* full,
                                         int inner, int outer, int slice, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(SharedAddress(destination)),
      "l"(map), "r"(inner), "r"(outer), "r"(slice), "r"(SharedAddress(full)), "l"(policy)
      : "memory");
}

/// TmaLoad from a map with four axes: all slices, from row `outer` and block `block` on.
__device__ __forceinline__ void TmaLoad4(void* destination, const void* map, uint64_t* full,
                                         int inner, int outer, int block) {
  const int32_t at[4] = {inner, outer, 0, block};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination,
                                  map, at, full);
}
/// TmaLoad4 with an L2 policy.
__device__ __forceinline__ void TmaLoad4(void* destination, const void* map, uint64_t* full,
                                         int inner, int outer, int block, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(SharedAddress(destination)),
      "l"(map), "r"(inner), "r"(outer), "r"(0), "r"(block), "r"(SharedAddress(full)), "l"(policy)
      : "memory");
}

/// TmaLoad into every CTA of the cluster whose bit is set in `mask`, at the same offset. Each of
/// them counts the bytes on its own barrier.
__device__ __forceinline__ void TmaLoadMulticast(void* destination, const void* map, uint64_t* full,
                                                 int inner, int outer, uint16_t mask) {
  const int32_t at[2] = {inner, outer};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination,
                                  map, at, full, mask);
}
/// TmaLoadMulticast with an L2 policy.
__device__ __forceinline__ void TmaLoadMulticast(void* destination, const void* map, uint64_t* full,
                                                 int inner, int outer, uint16_t mask,
                                                 L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(
          SharedAddress(destination)),
      "l"(map), "r"(inner), "r"(outer), "r"(SharedAddress(full)), "h"(mask), "l"(policy)
      : "memory");
}

/// TmaLoad4 from row 0 on, to the CTAs of `mask`.
__device__ __forceinline__ void TmaLoadMulticast4(void* destination, const void* map,
                                                  uint64_t* full, int inner, int block,
                                                  uint16_t mask) {
  const int32_t at[4] = {inner, 0, 0, block};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, destination,
                                  map, at, full, mask);
}
/// TmaLoadMulticast4 with an L2 policy.
__device__ __forceinline__ void TmaLoadMulticast4(void* destination, const void* map,
                                                  uint64_t* full, int inner, int block,
                                                  uint16_t mask, L2Policy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3, %3, %4}], [%5], %6, %7;" ::"r"(
          SharedAddress(destination)),
      "l"(map), "r"(inner), "r"(0), "r"(block), "r"(SharedAddress(full)), "h"(mask), "l"(policy)
      : "memory");
}

/// Stores shared memory to the box at (inner, outer). Elements outside the tensor are not written.
/// Before it, the threads that wrote the box call FenceAsyncShared and meet at a barrier.
__device__ __forceinline__ void TmaStore(const void* map, const void* source, int inner,
                                         int outer) {
  const int32_t at[2] = {inner, outer};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_global, cuda::ptx::space_shared, map, at,
                                  source);
}

__device__ __forceinline__ void TmaStoreCommit() { cuda::ptx::cp_async_bulk_commit_group(); }

/// Waits until all but the latest kPending store groups of this thread have read shared memory.
template <int kPending>
__device__ __forceinline__ void TmaStoreWaitRead() {
  cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<kPending>{});
}

}  // namespace culet::sm90
