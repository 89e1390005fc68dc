// Products of uint4 weights.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kStages, int kCtas>
using Config = CodeConfig<T, Uint4Codes, true, kSubTiles, kOctets, kStages, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Products() {
  static const CodeProductKernel kernels[] = {
      MakeCodeProduct<Config<Bf16, 1, 1, 8, 2>>("u4_bf16/16x8x8", DataType::kUint4,
                                                DataType::kBfloat16, 4, 92),
      MakeCodeProduct<Config<Bf16, 2, 1, 4, 2>>("u4_bf16/32x8x4", DataType::kUint4,
                                                DataType::kBfloat16, 8, 112),
      MakeCodeProduct<Config<Bf16, 4, 1, 2, 2>>("u4_bf16/64x8x2", DataType::kUint4,
                                                DataType::kBfloat16, 8, 128),
      MakeCodeProduct<Config<Bf16, 4, 1, 4, 1>>("u4_bf16/64x8x4", DataType::kUint4,
                                                DataType::kBfloat16, 8, 144),
      MakeCodeProduct<Config<Bf16, 4, 2, 2, 1>>("u4_bf16/64x16x2", DataType::kUint4,
                                                DataType::kBfloat16, kAnyTokens, 186),
      MakeCodeProduct<Config<Bf16, 4, 2, 3, 1>>("u4_bf16/64x16x3", DataType::kUint4,
                                                DataType::kBfloat16, 16, 186),
      MakeCodeProduct<Config<Bf16, 4, 4, 2, 1>>("u4_bf16/64x32x2", DataType::kUint4,
                                                DataType::kBfloat16, kAnyTokens, 250),
      MakeCodeProduct<Config<__half, 1, 1, 8, 2>>("u4_f16/16x8x8", DataType::kUint4,
                                                  DataType::kFloat16, 4, 92),
      MakeCodeProduct<Config<__half, 2, 1, 4, 2>>("u4_f16/32x8x4", DataType::kUint4,
                                                  DataType::kFloat16, 8, 112),
      MakeCodeProduct<Config<__half, 4, 1, 2, 2>>("u4_f16/64x8x2", DataType::kUint4,
                                                  DataType::kFloat16, 8, 128),
      MakeCodeProduct<Config<__half, 4, 1, 4, 1>>("u4_f16/64x8x4", DataType::kUint4,
                                                  DataType::kFloat16, 8, 144),
      MakeCodeProduct<Config<__half, 4, 2, 2, 1>>("u4_f16/64x16x2", DataType::kUint4,
                                                  DataType::kFloat16, kAnyTokens, 178),
      MakeCodeProduct<Config<__half, 4, 2, 3, 1>>("u4_f16/64x16x3", DataType::kUint4,
                                                  DataType::kFloat16, 16, 178),
      MakeCodeProduct<Config<__half, 4, 4, 2, 1>>("u4_f16/64x32x2", DataType::kUint4,
                                                  DataType::kFloat16, kAnyTokens, 250),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
