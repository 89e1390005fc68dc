// Arithmetic on pairs of 16-bit numbers in a register. tests/host_cuda has the same for the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace culet::cuda_ops {

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
