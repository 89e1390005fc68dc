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

/// Before a block of a cluster ends: returns when no other one reads its shared memory. Requires
/// that what the caller does before needs all that it has read there.
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

/// A value that is computed here, not where it is used.
__device__ __forceinline__ void Pin(int& value) { asm volatile("" : "+r"(value)::"memory"); }

}  // namespace culet::cuda_ops
