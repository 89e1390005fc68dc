// Products of uint4 weights by few tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kColumnK, int kSubTiles, int kOctets, int kStages, int kCtas>
using Config = StreamConfig<T, Uint4Codes, kColumnK, kSubTiles, kOctets, kStages, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<Bf16, 128, 4, 1, 3, 2>>("u4_g128_bf16/64x8x3", DataType::kUint4,
                                                    DataType::kBfloat16, 126),
      MakeCodeStream<Config<Bf16, 128, 4, 1, 6, 1>>("u4_g128_bf16/64x8x6", DataType::kUint4,
                                                    DataType::kBfloat16, 144),
      MakeCodeStream<Config<Bf16, 128, 2, 1, 4, 2>>("u4_g128_bf16/32x8x4", DataType::kUint4,
                                                    DataType::kBfloat16, 108),
      MakeCodeStream<Config<Bf16, 128, 2, 1, 6, 2>>("u4_g128_bf16/32x8x6", DataType::kUint4,
                                                    DataType::kBfloat16, 110),
      MakeCodeStream<Config<Bf16, 128, 1, 1, 8, 2>>("u4_g128_bf16/16x8x8", DataType::kUint4,
                                                    DataType::kBfloat16, 90),
      MakeCodeStream<Config<Bf16, 128, 4, 2, 4, 1>>("u4_g128_bf16/64x16x4", DataType::kUint4,
                                                    DataType::kBfloat16, 204),
      MakeCodeStream<Config<Bf16, 128, 2, 2, 6, 1>>("u4_g128_bf16/32x16x6", DataType::kUint4,
                                                    DataType::kBfloat16, 150),
      MakeCodeStream<Config<Bf16, 32, 4, 1, 6, 1>>("u4_g32_bf16/64x8x6", DataType::kUint4,
                                                   DataType::kBfloat16, 174),
      MakeCodeStream<Config<Bf16, 32, 2, 1, 6, 2>>("u4_g32_bf16/32x8x6", DataType::kUint4,
                                                   DataType::kBfloat16, 122),
      MakeCodeStream<Config<Bf16, 32, 2, 2, 6, 1>>("u4_g32_bf16/32x16x6", DataType::kUint4,
                                                   DataType::kBfloat16, 173),
      MakeCodeStream<Config<__half, 128, 4, 1, 3, 2>>("u4_g128_f16/64x8x3", DataType::kUint4,
                                                      DataType::kFloat16, 126),
      MakeCodeStream<Config<__half, 128, 4, 1, 6, 1>>("u4_g128_f16/64x8x6", DataType::kUint4,
                                                      DataType::kFloat16, 144),
      MakeCodeStream<Config<__half, 128, 2, 1, 4, 2>>("u4_g128_f16/32x8x4", DataType::kUint4,
                                                      DataType::kFloat16, 108),
      MakeCodeStream<Config<__half, 128, 2, 1, 6, 2>>("u4_g128_f16/32x8x6", DataType::kUint4,
                                                      DataType::kFloat16, 110),
      MakeCodeStream<Config<__half, 128, 1, 1, 8, 2>>("u4_g128_f16/16x8x8", DataType::kUint4,
                                                      DataType::kFloat16, 90),
      MakeCodeStream<Config<__half, 128, 4, 2, 4, 1>>("u4_g128_f16/64x16x4", DataType::kUint4,
                                                      DataType::kFloat16, 204),
      MakeCodeStream<Config<__half, 128, 2, 2, 6, 1>>("u4_g128_f16/32x16x6", DataType::kUint4,
                                                      DataType::kFloat16, 150),
      MakeCodeStream<Config<__half, 32, 4, 1, 6, 1>>("u4_g32_f16/64x8x6", DataType::kUint4,
                                                     DataType::kFloat16, 174),
      MakeCodeStream<Config<__half, 32, 2, 1, 6, 2>>("u4_g32_f16/32x8x6", DataType::kUint4,
                                                     DataType::kFloat16, 122),
      MakeCodeStream<Config<__half, 32, 2, 2, 6, 1>>("u4_g32_f16/32x16x6", DataType::kUint4,
                                                     DataType::kFloat16, 173),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
