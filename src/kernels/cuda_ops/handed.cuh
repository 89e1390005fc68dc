// A value that a kernel hands on word by word, so that the next one need not wait for its end: from
// the last word to the next kernel's products that takes a third of the time (docs/performance-log.md).
// The words go to memory that was zero before all launches of the graph, and each says by not being
// zero that it is there. So nothing orders them, and nobody counts.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace culet::cuda_ops {

/// A word of one float32, or two 16-bit values. Zeros go as negative zeros, which sums of products
/// that begin with zero do not tell apart.
template <int kBytes>
__device__ __forceinline__ std::uint32_t AsHanded(std::uint32_t word) {
  static_assert(kBytes == 2 || kBytes == 4);
  return word != 0 ? word : kBytes == 4 ? 0x80000000u : 0x80008000u;
}
__device__ __forceinline__ bool IsHanded(const uint4& v) {
  return v.x != 0 && v.y != 0 && v.z != 0 && v.w != 0;
}

// Relaxed: from where all multiprocessors meet, each word as a whole. PTX ISA 8.5, 9.7.9.8, 9.7.9.11.
__device__ __forceinline__ uint4 LoadHanded(const void* from) {
#ifndef __CUDACC__
  return *static_cast<const uint4*>(from);
#else
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
#endif
}
__device__ __forceinline__ void StoreHanded(void* to, std::uint32_t word) {
#ifndef __CUDACC__
  *static_cast<std::uint32_t*>(to) = word;
#else
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
#endif
}

}  // namespace culet::cuda_ops
