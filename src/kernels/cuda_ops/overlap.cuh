// Programmatic dependent launch: a kernel begins while the one before it still runs.
#pragma once

#include <cuda_runtime.h>

namespace culet::cuda_ops {

/// Waits until the preceding kernel has ended and its writes are visible; since that one also
/// waited, all earlier kernels have ended. Every kernel does this before it reads or writes memory
/// that another one may write. First it lets the next kernel begin, which will wait in its turn and
/// until then reads only weights and tables, which no kernel writes. Both return at once in a plain
/// launch.
__device__ __forceinline__ void WaitForPrevious() {
#ifndef __CUDACC__
  host_cuda::WaitForPrevious();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Waits alone: LetNextBegin comes before or after it.
__device__ __forceinline__ void AwaitPrevious() {
#ifndef __CUDACC__
  host_cuda::WaitForPrevious();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Instead of WaitForPrevious, for a block that neither reads nor writes memory that another kernel
/// may write: it ends at once and frees its place. The kernel's other blocks wait.
__device__ __forceinline__ void NeedNotWait() {
#ifndef __CUDACC__
  host_cuda::WaitForPrevious();  // which counts those who have thought of it
#endif
}

/// Lets the next kernel begin, in one that waits later because it reads something before that.
__device__ __forceinline__ void LetNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace culet::cuda_ops
