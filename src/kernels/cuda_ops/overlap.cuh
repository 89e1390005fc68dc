// Programmatic dependent launch: a kernel begins while the one before it still runs.
#pragma once

#include <cuda_runtime.h>

namespace culet::cuda_ops {

/// Waits until the kernel before has ended and all its writes are there; as that one waited for the
/// kernel before it, so have all others. Every kernel does this before it reads or writes what
/// another one may write. Lets the next kernel begin first: it waits in its turn, and what it reads
/// before that, weights and tables, no kernel writes. Both return at once in a plain launch.
__device__ __forceinline__ void WaitForPrevious() {
#ifndef __CUDACC__
  host_cuda::WaitForPrevious();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// In a block that neither reads nor writes what another kernel may write: it ends at once, and
/// leaves its place, in the place of WaitForPrevious. The kernel's other blocks wait.
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
