// Arithmetic on pairs of 16-bit numbers in a register. tests/host_cuda has the same for the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace culet::cuda_ops {

/// (bits & mask) | others in one instruction, which the compiler does not make of two constants.
/// PTX ISA, lop3.
__device__ __forceinline__ std::uint32_t MaskedOr(std::uint32_t bits, std::uint32_t mask,
                                                  std::uint32_t others) {
  std::uint32_t to;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(to) : "r"(bits), "r"(mask), "r"(others));
  return to;
}

template <class Pair>
__device__ __forceinline__ Pair PairOf(std::uint32_t bits) {
  Pair pair;
  std::memcpy(&pair, &bits, sizeof bits);
  return pair;
}
template <class Pair>
__device__ __forceinline__ std::uint32_t BitsOfPair(Pair pair) {
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}

template <class T>
using PairType = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

template <class T>
__device__ __forceinline__ std::uint32_t SubtractPairs(std::uint32_t a, std::uint32_t b) {
  using Pair = PairType<T>;
  return BitsOfPair(__hsub2(PairOf<Pair>(a), PairOf<Pair>(b)));
}

/// Subnormal numbers count.
template <class T>
__device__ __forceinline__ std::uint32_t MultiplyPairs(std::uint32_t a, std::uint32_t b) {
  using Pair = PairType<T>;
  return BitsOfPair(__hmul2(PairOf<Pair>(a), PairOf<Pair>(b)));
}

}  // namespace culet::cuda_ops
