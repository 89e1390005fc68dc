// Products of E2M1 weights with groups of a multiple of 32.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kStages, int kCtas>
using Config = CodeConfig<T, E2m1Codes, true, kSubTiles, kOctets, kStages, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E2m1Products() {
  static const CodeProductKernel kernels[] = {
      MakeCodeProduct<Config<Bf16, 1, 1, 8, 2>>("e2m1_bf16/16x8x8", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, 4, 92),
      MakeCodeProduct<Config<Bf16, 2, 1, 4, 2>>("e2m1_bf16/32x8x4", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, 8, 79),
      MakeCodeProduct<Config<Bf16, 4, 1, 2, 2>>("e2m1_bf16/64x8x2", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, 8, 128),
      MakeCodeProduct<Config<Bf16, 4, 1, 4, 1>>("e2m1_bf16/64x8x4", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, 8, 128),
      MakeCodeProduct<Config<Bf16, 4, 2, 2, 1>>("e2m1_bf16/64x16x2", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, kAnyTokens, 160),
      MakeCodeProduct<Config<Bf16, 4, 2, 3, 1>>("e2m1_bf16/64x16x3", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, 16, 160),
      MakeCodeProduct<Config<Bf16, 4, 4, 2, 1>>("e2m1_bf16/64x32x2", DataType::kFloat4_e2m1,
                                                DataType::kBfloat16, kAnyTokens, 237),
      MakeCodeProduct<Config<__half, 1, 1, 8, 2>>("e2m1_f16/16x8x8", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, 4, 94),
      MakeCodeProduct<Config<__half, 2, 1, 4, 2>>("e2m1_f16/32x8x4", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, 8, 80),
      MakeCodeProduct<Config<__half, 4, 1, 2, 2>>("e2m1_f16/64x8x2", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, 8, 128),
      MakeCodeProduct<Config<__half, 4, 1, 4, 1>>("e2m1_f16/64x8x4", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, 8, 128),
      MakeCodeProduct<Config<__half, 4, 2, 2, 1>>("e2m1_f16/64x16x2", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, kAnyTokens, 161),
      MakeCodeProduct<Config<__half, 4, 2, 3, 1>>("e2m1_f16/64x16x3", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, 16, 161),
      MakeCodeProduct<Config<__half, 4, 4, 2, 1>>("e2m1_f16/64x32x2", DataType::kFloat4_e2m1,
                                                  DataType::kFloat16, kAnyTokens, 239),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
