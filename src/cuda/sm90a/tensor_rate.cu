// The rate of the tensor cores when nothing but them and the power limit holds it back.
#include "cuda/measure.h"
#include "sm90/descriptor.h"
#include "sm90/wgmma.cuh"

namespace culet {
namespace {

// Two warpgroups of m64n256k32 products, over four stages of A (128 x 128) and B (256 x 128).
constexpr int kStages = 4, kDepth = 128, kRowsA = 128, kRowsB = 256, kThreads = 256;
constexpr int kStageBytes = (kRowsA + kRowsB) * kDepth;
constexpr int kSmemBytes = kStages * kStageBytes + 1024;
static_assert(2.0 * kRowsA * kRowsB * kDepth * kStages == kTensorRateOperations);

// Four E4M3 values with random signs and mantissas and exponents of 8 to 11:
// about what a quantiser leaves. Zeros would draw little power and run faster.
__device__ unsigned RandomE4m3(unsigned index) {
  unsigned x = index * 0x9e3779b9u + 0x7f4a7c15u;
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return (x & 0x9f9f9f9fu) | 0x40404040u;
}

__global__ void __launch_bounds__(kThreads, 1) TensorRate(int rounds, float* sink) {
  using Product = sm90::Wgmma<sm90::E4m3, 256>;
  extern __shared__ unsigned char raw[];
  const auto start = static_cast<unsigned>(__cvta_generic_to_shared(raw));
  const unsigned pad = (1024 - start % 1024) % 1024;
  auto* words = reinterpret_cast<unsigned*>(raw + pad);
  for (int i = threadIdx.x; i < kStages * kStageBytes / 4; i += kThreads) {
    words[i] = RandomE4m3(blockIdx.x * 65536u + i);
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  float sums[Product::kRegisters] = {};
  const unsigned base = start + pad, group = threadIdx.x / 128;
  for (int round = 0; round < rounds; ++round) {
    sm90::FenceRegisters(sums);
    sm90::WgmmaFence();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      const unsigned at = base + stage * kStageBytes;
      const auto a = sm90::WgmmaDescriptor128(at + group * 64 * kDepth);
      const auto b = sm90::WgmmaDescriptor128(at + kRowsA * kDepth);
#pragma unroll
      for (int k = 0; k < kDepth; k += sm90::kWgmmaKBytes) {
        Product::Ss<true>(sums, a + sm90::WgmmaDescriptorStep(k), b + sm90::WgmmaDescriptorStep(k));
      }
    }
    sm90::WgmmaCommit();
    sm90::WgmmaWait<0>();
    sm90::FenceRegisters(sums);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < Product::kRegisters; ++i) sum += sums[i];
  if (sum == 0.125f) *sink = sum;
}

}  // namespace

cudaError_t LaunchTensorRate(int rounds, int multiprocessors, float* sink, cudaStream_t stream) {
  const cudaError_t error =
      cudaFuncSetAttribute(TensorRate, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  if (error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessors));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, &TensorRate, rounds, sink);
}

}  // namespace culet
