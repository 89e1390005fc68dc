// See host_cuda.h: src/kernels/cuda_ops/code_pairs.cuh on the CPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace culet::cuda_ops {

inline std::uint32_t MaskedOr(std::uint32_t bits, std::uint32_t mask, std::uint32_t others) {
  return (bits & mask) | others;
}

template <class T, class Function>
std::uint32_t EachOfPairs(std::uint32_t a, std::uint32_t b, Function function) {
  std::uint32_t both = 0;
  for (int i = 0; i < 2; ++i) {
    const auto one = static_cast<unsigned short>(a >> (16 * i));
    const auto other = static_cast<unsigned short>(b >> (16 * i));
    unsigned short bits;
    if constexpr (std::is_same_v<T, __half>) {
      bits = __float2half_rn(function(__half2float({one}), __half2float({other}))).bits;
    } else {
      bits = __float2bfloat16_rn(function(__bfloat162float({one}), __bfloat162float({other}))).bits;
    }
    both |= std::uint32_t{bits} << (16 * i);
  }
  return both;
}

template <class T>
std::uint32_t SubtractPairs(std::uint32_t a, std::uint32_t b) {
  return EachOfPairs<T>(a, b, [](float x, float y) { return x - y; });
}
template <class T>
std::uint32_t MultiplyPairs(std::uint32_t a, std::uint32_t b) {
  return EachOfPairs<T>(a, b, [](float x, float y) { return x * y; });
}

}  // namespace culet::cuda_ops
