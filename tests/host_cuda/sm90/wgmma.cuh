// See host_cuda.h: src/sm90/wgmma.cuh on the CPU.
#pragma once

#include <async.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "sm90/format.h"

namespace culet::sm90 {

inline void WgmmaFence() { host_cuda::FenceProducts(); }
inline void WgmmaCommit() { host_cuda::CommitProducts(); }
template <int kPending>
void WgmmaWait() {
  host_cuda::AwaitProducts(kPending);
}

template <int kCount>
void FenceRegisters(float (&)[kCount]) {}
inline void FenceRegister(float2&) {}

template <class Format>
inline constexpr host_cuda::Operands kOperandsOf;
template <>
inline constexpr host_cuda::Operands kOperandsOf<E4m3> = host_cuda::Operands::kE4m3;
template <>
inline constexpr host_cuda::Operands kOperandsOf<Bf16> = host_cuda::Operands::kBf16;
template <>
inline constexpr host_cuda::Operands kOperandsOf<F16> = host_cuda::Operands::kF16;

template <class Format, int kN>
struct Wgmma {
  static constexpr int kRegisters = kN / 2;
  static_assert(kN % 8 == 0 && kN <= 256);
  template <bool kAccumulate>
  static void Ss(float (&d)[kRegisters], uint64_t a, uint64_t b) {
    host_cuda::Multiply(kOperandsOf<Format>, kN, kAccumulate, d, a, b);
  }
};

template <class Format, int kN>
struct WgmmaTransposedB {
  template <bool kAccumulate>
  static void Rs(float (&d)[kN / 2], const uint32_t (&a)[4], uint64_t b) {
    host_cuda::MultiplyRegisters(kOperandsOf<Format>, kN, kAccumulate, d, a, b);
  }
};

}  // namespace culet::sm90
