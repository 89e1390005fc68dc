// Synchronisation on Hopper: mbarriers, named barriers, clusters, proxies, register reallocation,
// dependent launches. mbarrier forms come from libcu++'s cuda::ptx where it has them; the rest
// names its PTX ISA section.
#pragma once

#include <cstdint>
#include <cuda/ptx>

namespace culet::sm90 {

/// The shared-window address of a pointer into shared memory.
__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// True in exactly one lane of a converged warp. PTX ISA 9.7.13 elect.sync.
__device__ __forceinline__ bool ElectOne() {
  uint32_t elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

/// A value that is the same in all lanes, as one that the compiler knows to be uniform.
__device__ __forceinline__ int WarpUniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// ---- mbarrier
// ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  cuda::ptx::mbarrier_init(barrier, arrivals);
}

/// Makes initialised barriers visible to the async proxy and to the cluster. This thread may use
/// them at once, for its own loads; others after a CTA or cluster barrier.
__device__ __forceinline__ void BarrierInitFence() {
  cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
}

__device__ __forceinline__ void BarrierArriveExpect(uint64_t* barrier, uint32_t bytes) {
  cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                       cuda::ptx::space_shared, barrier, bytes);
}

__device__ __forceinline__ void BarrierArrive(uint64_t* barrier) {
  cuda::ptx::mbarrier_arrive(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared,
                             barrier);
}

/// Arrives at the same barrier in CTA `rank` of the cluster. PTX ISA 9.7.13.15.13 mbarrier.arrive,
/// default semantics: 220 clocks measured; cuda::ptx only has .release.cluster, which compiles to a
/// GPU-wide fence (490 clocks). Enough where the arrival orders reads that have completed (a
/// consumer that releases a stage).
__device__ __forceinline__ void BarrierArriveRemote(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{.reg .b32 a; mapa.shared::cluster.u32 a, %0, %1; mbarrier.arrive.shared::cluster.b64 _, "
      "[a];}" ::"r"(SharedAddress(barrier)),
      "r"(rank)
      : "memory");
}

/// Waits until the phase of the given parity has completed.
__device__ __forceinline__ void BarrierWait(uint64_t* barrier, uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(barrier, parity)) {
  }
}

/// Whether that phase has completed, without waiting. Lets a waiter ask early: the answer of a wait
/// takes some 100 clocks even when it is yes.
__device__ __forceinline__ bool BarrierTest(uint64_t* barrier, uint32_t parity) {
  return cuda::ptx::mbarrier_test_wait_parity(barrier, parity);
}

/// As BarrierWait, for data that other CTAs of the cluster wrote with ordinary or st.async stores.
__device__ __forceinline__ void BarrierWaitCluster(uint64_t* barrier, uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster,
                                              barrier, parity)) {
  }
}

/// Lets `clocks` go by.
__device__ __forceinline__ void Lag(uint32_t clocks) {
  const long long begin = clock64();
  while (clock64() - begin < clocks) {
  }
}

// ---- named barriers: PTX ISA 9.7.13.1 barrier.cta. Id 0 is __syncthreads.
// ----------------------------------------

__device__ __forceinline__ void NamedSync(int id, int threads) {
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// As NamedSync; whether `mine` holds in any of the threads.
__device__ __forceinline__ bool NamedAny(int id, int threads, bool mine) {
  uint32_t any;
  asm volatile(
      "{.reg .pred p, q; setp.ne.u32 p, %3, 0; barrier.cta.red.or.pred.aligned q, %1, %2, p; "
      "selp.u32 %0, 1, 0, q;}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<uint32_t>(mine))
      : "memory");
  return any != 0;
}

/// Counts towards `threads` without waiting for the rest.
__device__ __forceinline__ void NamedArrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// cp.async, PTX ISA 9.7.9.25.3: 4 or 16 bytes (both addresses aligned to them) from global to
// shared memory; CopyAsyncArrive tells when.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t shared_address, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address), "l"(source),
               "n"(kBytes)
               : "memory");
}

/// The same of 4 or 8 bytes, of which the first `there` come and zeros for the rest.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t shared_address, const void* source, int there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address), "l"(source),
               "n"(kBytes), "r"(there)
               : "memory");
}

/// Makes a group of this thread's copies since the last one.
__device__ __forceinline__ void CopyAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until all groups of this thread's copies but the latest kGroups have landed.
template <int kGroups>
__device__ __forceinline__ void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

/// Arrives at the barrier once this thread's copies so far have landed; the barrier counts it as
/// one of its arrivals. PTX ISA 9.7.13.15.16 cp.async.mbarrier.arrive.
__device__ __forceinline__ void CopyAsyncArrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}

/// Waits for this thread's copies. PTX ISA 9.7.9.25.3.3 cp.async.wait_all.
__device__ __forceinline__ void CopyAsyncWaitAll() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// 4 and 8 bytes from shared memory, in their place among the asm volatile statements.
__device__ __forceinline__ float LoadShared(uint32_t shared_address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(shared_address) : "memory");
  return v;
}
__device__ __forceinline__ int2 LoadSharedInt2(uint32_t shared_address) {
  int2 v;
  asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "r"(shared_address)
               : "memory");
  return v;
}

// ---- clusters
// ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t ClusterRank() { return cuda::ptx::get_sreg_cluster_ctarank(); }

/// The address of `address` (this CTA's shared window) in CTA `rank`. PTX ISA 9.7.9 mapa.
__device__ __forceinline__ uint32_t MapToRank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// A barrier of all threads of the cluster (PTX ISA 9.7.13.3 barrier.cluster) in two halves, for
/// work in between. The first does not order memory (83 to 108 clocks; 352 to 433 where it does):
/// after the wait, what the others did is seen as far as they made it visible themselves
/// (BarrierInitFence).
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Stores 16 bytes to another CTA's shared memory and completes so many transaction bytes on a
/// barrier of that CTA. Both addresses come from MapToRank. PTX ISA 9.7.9 st.async.
__device__ __forceinline__ void StoreAsync(uint32_t address, float4 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

/// The same of 4 and 8 bytes.
__device__ __forceinline__ void StoreAsync(uint32_t address, float value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
          address),
      "f"(value), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void StoreAsync(uint32_t address, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, "
      "[%3];" ::"r"(address),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

// ---- proxies, registers, launches
// --------------------------------------------------------------------------------

/// Orders this thread's ordinary shared-memory stores before later TMA or wgmma reads of them.
__device__ __forceinline__ void FenceAsyncShared() {
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

/// PTX ISA 9.7.19.5 setmaxnreg, by all warps of a warpgroup. Needs __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ __forceinline__ void RegistersUp() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void RegistersDown() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// PTX ISA 9.7.13.13 griddepcontrol: waits for the kernels this one depends on, all their writes
/// included; returns at once when the launch is not a programmatic dependent one.
__device__ __forceinline__ void GridDependencyWait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Lets dependent kernels start; their GridDependencyWait still waits for this grid's end.
__device__ __forceinline__ void GridDependencyLaunch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace culet::sm90
