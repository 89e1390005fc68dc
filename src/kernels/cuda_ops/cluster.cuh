// Thread block clusters, whose blocks run at once and read each other's shared memory (compute
// capability 9.0 on). In older code a cluster is one block. tests/host_cuda has the same for the
// CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace culet::cuda_ops {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CULET_HAS_CLUSTERS 1
#endif

/// Returns when all threads of the cluster's `blocks` blocks are here; what they have written to
/// shared memory can be read by all. PTX ISA, barrier.cluster.
__device__ __forceinline__ void MeetCluster(int blocks) {
#ifdef CULET_HAS_CLUSTERS
  if (blocks > 1) {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    return;
  }
#endif
  __syncthreads();
}

/// Call before a block of a cluster ends: returns when no other block reads its shared memory.
/// Requires: the caller has consumed everything that it read from other blocks.
__device__ __forceinline__ void LeaveCluster(int blocks) {
#ifdef CULET_HAS_CLUSTERS
  if (blocks == 1) return;
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/// Floats at address `from` of the shared memory of the cluster's block `rank`. PTX ISA, mapa.
__device__ __forceinline__ void LoadOfCluster(std::uint32_t from, int rank, float (&to)[4]) {
#ifdef CULET_HAS_CLUSTERS
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(there)
               : "memory");
#else
  static_cast<void>(rank);
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
#endif
}

__device__ __forceinline__ void LoadOfCluster(std::uint32_t from, int rank, float (&to)[2]) {
#ifdef CULET_HAS_CLUSTERS
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(rank));
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(to[0]), "=f"(to[1])
               : "r"(there)
               : "memory");
#else
  static_cast<void>(rank);
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(to[0]), "=f"(to[1])
               : "r"(from)
               : "memory");
#endif
}

__device__ __forceinline__ void LoadOfCluster(std::uint32_t from, int rank, float (&to)[1]) {
#ifdef CULET_HAS_CLUSTERS
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(from), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(to[0]) : "r"(there) : "memory");
#else
  static_cast<void>(rank);
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(to[0]) : "r"(from) : "memory");
#endif
}

/// A float to address `to` of the shared memory of the cluster's block `rank`, which exists
/// (AwaitCluster) and reads it behind MeetCluster. PTX ISA, mapa.
__device__ __forceinline__ void StoreToBlock(std::uint32_t to, int rank, float x) {
#ifdef CULET_HAS_CLUSTERS
  std::uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
#else
  static_cast<void>(rank);
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(x) : "memory");
#endif
}

/// For blocks of a cluster that only need to know that the others, and their shared memory, exist:
/// all threads arrive, and later wait until all have.
__device__ __forceinline__ void ArriveAtCluster() {
#ifdef CULET_HAS_CLUSTERS
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void AwaitCluster() {
#ifdef CULET_HAS_CLUSTERS
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/// Stores to the shared memory of other blocks without waiting: a barrier of the receiver counts
/// their bytes. One thread initialises it before it arrives at the cluster barrier, and announces
/// how many `bytes` will come before it waits. PTX ISA, mbarrier, st.async.
__device__ __forceinline__ void MakeStoresBarrier(std::uint32_t barrier) {
#ifdef CULET_HAS_CLUSTERS
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  static_cast<void>(barrier);
#endif
}
__device__ __forceinline__ void ExpectStores(std::uint32_t barrier, int bytes) {
#ifdef CULET_HAS_CLUSTERS
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
#else
  static_cast<void>(barrier), static_cast<void>(bytes);
#endif
}
/// Two floats to address `to` in block `rank`, whose `barrier` counts them.
__device__ __forceinline__ void StoreToCluster(std::uint32_t to, std::uint32_t barrier, int rank,
                                               float x, float y) {
#ifdef CULET_HAS_CLUSTERS
  std::uint32_t there, counts;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(to), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counts) : "r"(barrier), "r"(rank));
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(there),
      "f"(x), "f"(y), "r"(counts)
      : "memory");
#else
  static_cast<void>(to), static_cast<void>(barrier), static_cast<void>(rank);
  static_cast<void>(x), static_cast<void>(y);
#endif
}
__device__ __forceinline__ void AwaitStores(std::uint32_t barrier) {
#ifdef CULET_HAS_CLUSTERS
  asm volatile(
      "{\n\t"
      ".reg .pred there;\n\t"
      "again:\n\t"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%0], 0;\n\t"
      "@!there bra again;\n\t"
      "}" ::"r"(barrier)
      : "memory");
#else
  static_cast<void>(barrier);
#endif
}

/// A value that is computed here, not where it is used.
__device__ __forceinline__ void Pin(int& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void Pin(float& value) { asm volatile("" : "+f"(value)::"memory"); }
template <class T>
__device__ __forceinline__ void Pin(T*& value) {
  asm volatile("" : "+l"(value)::"memory");
}

}  // namespace culet::cuda_ops
