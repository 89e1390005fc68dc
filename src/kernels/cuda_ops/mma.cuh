// Instructions of tensor cores from Ampere on, on 16-bit operands in shared memory, and what brings
// these there. Shared memory is the launch's own, addressed in bytes. tests/host_cuda has the same
// for the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace culet::cuda_ops {

/// The shared memory that the launch asked for, aligned to 16 bytes.
__device__ __forceinline__ char* DynamicShared() {
  extern __shared__ __align__(16) char dynamic_shared[];
  return dynamic_shared;
}

__device__ __forceinline__ std::uint32_t SharedAddress(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Copies the first `bytes` of 16 at `from` and fills up with zeros; with 0 it reads nothing.
/// PTX ISA, cp.async.
__device__ __forceinline__ void CopyAsync16(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(bytes)
               : "memory");
}

/// Copies 4 bytes, which stay in the first-level cache, too.
__device__ __forceinline__ void CopyAsync4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/// Brings `bytes`, a multiple of 16 as `from` is, to the second-level cache; before compute
/// capability 9.0 nothing. PTX ISA, cp.async.bulk.prefetch.
__device__ __forceinline__ void PrefetchBytes(const void* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Returns when all of this thread's groups but the last `kPending` are complete.
template <int kPending>
__device__ __forceinline__ void AwaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Four 8 x 8 matrices of 16 bits; lane l gives the address of row l % 8 of matrix l / 8 and gets
/// of each matrix elements 2 (l % 4) and the next of row l / 4. PTX ISA, ldmatrix.
__device__ __forceinline__ void LoadMatrices(std::uint32_t from, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

/// The same of the transposed matrices.
__device__ __forceinline__ void LoadTransposed(std::uint32_t from, std::uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

/// An 8 x 8 matrix of 16 bits, of which a lane has elements 2 (l % 4) and the next of row l / 4,
/// transposed. PTX ISA, movmatrix.
__device__ __forceinline__ std::uint32_t Transposed(std::uint32_t pair) {
  std::uint32_t to;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
  return to;
}

/// c (16, 8) += a (16, 16) b (16, 8), summed in FP32. PTX ISA, mma.m16n8k16.
template <class T>
__device__ __forceinline__ void MultiplyAdd(float (&c)[4], const std::uint32_t (&a)[4],
                                            std::uint32_t b0, std::uint32_t b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// 2^x to 2 units in the last place; subnormal results are 0. PTX ISA, ex2.approx.
__device__ __forceinline__ float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace culet::cuda_ops
