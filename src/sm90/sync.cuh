// Synchronisation on Hopper: mbarriers, named barriers, clusters, proxies, register reallocation,
// dependent launches. libcu++'s cuda::ptx is used where it has the instruction; inline assembly
// names its section of the PTX ISA.
#pragma once

#include <cstdint>
#include <cuda/ptx>

/// Declares `name`, a kernel's dynamic shared memory. It starts at a multiple of 1024 where there
/// is no static one. A function that returned the address would change the kernels' code.
#define CULET_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) uint8_t name[]

namespace culet::sm90 {

/// The address, in the shared window, of a pointer to shared memory.
__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// True in exactly one lane of a converged warp. PTX ISA 9.7.13 elect.sync.
__device__ __forceinline__ bool ElectOne() {
  uint32_t elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

/// Tells the compiler that a value is the same in all lanes.
__device__ __forceinline__ int WarpUniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// ---- mbarrier
// ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  cuda::ptx::mbarrier_init(barrier, arrivals);
}

/// Makes initialised barriers visible to the async proxy and to the cluster. This thread may use
/// them for its loads at once, other threads after a barrier of the CTA or cluster.
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

/// Arrives at the same barrier in CTA `rank` of the cluster. PTX ISA 9.7.13.15.13 mbarrier.arrive
/// with default semantics takes 220 clocks (measured). cuda::ptx only has .release.cluster, which
/// becomes a fence of the whole GPU (490 clocks). The default is enough where the arrival comes
/// after completed reads, as of a consumer that releases a stage.
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

/// Whether that phase has completed, without waiting. Callers ask early, because the answer takes
/// some 100 clocks even when it is yes.
__device__ __forceinline__ bool BarrierTest(uint64_t* barrier, uint32_t parity) {
  return cuda::ptx::mbarrier_test_wait_parity(barrier, parity);
}

/// BarrierWait for data that other CTAs of the cluster wrote with ordinary stores or st.async.
__device__ __forceinline__ void BarrierWaitCluster(uint64_t* barrier, uint32_t parity) {
  while (!cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cluster,
                                              barrier, parity)) {
  }
}

/// Waits for so many clocks.
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

/// NamedSync that returns whether `mine` is true in any of the threads.
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

/// Arrives at the barrier without waiting for the other threads.
__device__ __forceinline__ void NamedArrive(int id, int threads) {
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// cp.async, PTX ISA 9.7.9.25.3: copies 4 or 16 bytes from global to shared memory. Both addresses
// are aligned to as many bytes. CopyAsyncArrive and CopyAsyncWait tell when they have arrived.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t shared_address, const void* source) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address), "l"(source),
               "n"(kBytes)
               : "memory");
}

/// The same for 4 or 8 bytes, of which the first `there` are copied and the others become zero.
template <int kBytes>
__device__ __forceinline__ void CopyAsync(uint32_t shared_address, const void* source, int there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address), "l"(source),
               "n"(kBytes), "r"(there)
               : "memory");
}

/// 16 bytes from global to shared memory by way of L2 alone, of which the first `there` come and
/// zeros for the rest.
__device__ __forceinline__ void CopyAsyncWide(uint32_t shared_address, const void* source,
                                              int there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address), "l"(source),
               "r"(there)
               : "memory");
}

/// Makes a group of this thread's copies since the last group.
__device__ __forceinline__ void CopyAsyncCommit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until all but the latest kGroups groups of this thread's copies have arrived.
template <int kGroups>
__device__ __forceinline__ void CopyAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

/// Arrives at the barrier when this thread's copies so far have arrived. The barrier counts it as
/// one arrival. PTX ISA 9.7.13.15.16 cp.async.mbarrier.arrive.
__device__ __forceinline__ void CopyAsyncArrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}

/// Waits for this thread's copies. PTX ISA 9.7.9.25.3.3 cp.async.wait_all.
__device__ __forceinline__ void CopyAsyncWaitAll() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

/// Loads 4 and 8 bytes from shared memory. The compiler keeps their order among other asm volatile
/// statements.
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
/// CTAs of the cluster; 1 where there is none.
__device__ __forceinline__ uint32_t ClusterSize() { return cuda::ptx::get_sreg_cluster_nctarank(); }

/// The address of `address` (this CTA's shared window) in CTA `rank`. PTX ISA 9.7.9 mapa.
__device__ __forceinline__ uint32_t MapToRank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

/// A barrier of all threads of the cluster (PTX ISA 9.7.13.3 barrier.cluster) in two halves, with
/// work in between. The arrival does not order memory: it takes 83 to 108 clocks, and 352 to 433 if
/// it does. After the wait a thread sees what the others made visible themselves
/// (BarrierInitFence).
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Stores 16 bytes to another CTA's shared memory and completes as many transaction bytes on a
/// barrier of that CTA. Both addresses come from MapToRank. PTX ISA 9.7.9 st.async.
__device__ __forceinline__ void StoreAsync(uint32_t address, float4 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

/// The same for 4 and 8 bytes.
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

/// Makes this thread's ordinary stores to shared memory visible to later reads by TMA and wgmma.
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

/// PTX ISA 9.7.13.13 griddepcontrol: waits until the kernels that this one depends on have ended
/// and their writes are visible. Returns at once if the launch is not a programmatic dependent one.
__device__ __forceinline__ void GridDependencyWait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// Lets the dependent kernel start. Its GridDependencyWait still waits for the end of this grid.
__device__ __forceinline__ void GridDependencyLaunch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace culet::sm90
