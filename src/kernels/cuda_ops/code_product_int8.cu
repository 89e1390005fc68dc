// Products of int8 weights.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kStages, int kCtas>
using Config = CodeConfig<T, Int8Codes, false, kSubTiles, kOctets, kStages, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Int8Products() {
  static const CodeProductKernel kernels[] = {
      MakeCodeProduct<Config<Bf16, 1, 1, 8, 2>>("int8_bf16/16x8x8", DataType::kInt8,
                                                DataType::kBfloat16, 4, 95),
      MakeCodeProduct<Config<Bf16, 2, 1, 4, 2>>("int8_bf16/32x8x4", DataType::kInt8,
                                                DataType::kBfloat16, 8, 96),
      MakeCodeProduct<Config<Bf16, 4, 1, 2, 2>>("int8_bf16/64x8x2", DataType::kInt8,
                                                DataType::kBfloat16, 8, 128),
      MakeCodeProduct<Config<Bf16, 4, 1, 4, 1>>("int8_bf16/64x8x4", DataType::kInt8,
                                                DataType::kBfloat16, 8, 126),
      MakeCodeProduct<Config<Bf16, 4, 2, 2, 1>>("int8_bf16/64x16x2", DataType::kInt8,
                                                DataType::kBfloat16, kAnyTokens, 141),
      MakeCodeProduct<Config<Bf16, 4, 2, 3, 1>>("int8_bf16/64x16x3", DataType::kInt8,
                                                DataType::kBfloat16, 16, 162),
      MakeCodeProduct<Config<Bf16, 4, 4, 2, 1>>("int8_bf16/64x32x2", DataType::kInt8,
                                                DataType::kBfloat16, kAnyTokens, 234),
      MakeCodeProduct<Config<__half, 1, 1, 8, 2>>("int8_f16/16x8x8", DataType::kInt8,
                                                  DataType::kFloat16, 4, 95),
      MakeCodeProduct<Config<__half, 2, 1, 4, 2>>("int8_f16/32x8x4", DataType::kInt8,
                                                  DataType::kFloat16, 8, 96),
      MakeCodeProduct<Config<__half, 4, 1, 2, 2>>("int8_f16/64x8x2", DataType::kInt8,
                                                  DataType::kFloat16, 8, 128),
      MakeCodeProduct<Config<__half, 4, 1, 4, 1>>("int8_f16/64x8x4", DataType::kInt8,
                                                  DataType::kFloat16, 8, 126),
      MakeCodeProduct<Config<__half, 4, 2, 2, 1>>("int8_f16/64x16x2", DataType::kInt8,
                                                  DataType::kFloat16, kAnyTokens, 141),
      MakeCodeProduct<Config<__half, 4, 2, 3, 1>>("int8_f16/64x16x3", DataType::kInt8,
                                                  DataType::kFloat16, 16, 162),
      MakeCodeProduct<Config<__half, 4, 4, 2, 1>>("int8_f16/64x32x2", DataType::kInt8,
                                                  DataType::kFloat16, kAnyTokens, 234),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
