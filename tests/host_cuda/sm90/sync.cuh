// See host_cuda.h: what the kernels of src/kernels/sm90 that run on the CPU take of
// src/sm90/sync.cuh. All threads of a block come to each named barrier; what needs a
// cluster stops.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdlib>

#include "kernels/cuda_ops/mma.cuh"

namespace culet::sm90 {

inline uint32_t SharedAddress(const void* pointer) { return cuda_ops::SharedAddress(pointer); }

inline void GridDependencyWait() { host_cuda::WaitForPrevious(); }
inline void GridDependencyLaunch() {}

inline void NamedSync(int, int) { __syncthreads(); }

/// What it waits for has already happened.
inline void BarrierWait(uint64_t*, uint32_t) {}
inline void BarrierArrive(uint64_t*) {}

inline void BarrierArriveExpect(uint64_t*, uint32_t) { std::abort(); }
inline void BarrierWaitCluster(uint64_t*, uint32_t) { std::abort(); }
inline uint32_t MapToRank(uint32_t, uint32_t) { std::abort(); }
inline void StoreAsync(uint32_t, float4, uint32_t) { std::abort(); }

template <int kBytes>
void CopyAsync(uint32_t to, const void* from) {
  static_assert(kBytes == 4);
  cuda_ops::CopyAsync4(to, from);
}
inline void CopyAsyncWaitAll() {
  cuda_ops::CommitCopies();
  cuda_ops::AwaitCopies<0>();
}

}  // namespace culet::sm90
