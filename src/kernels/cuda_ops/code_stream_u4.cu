// Products of uint4 weights by few tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kColumnK, int kSubTiles, int kOctets, int kStages, int kCtas, int kBlockK,
          bool kInTurn>
using Config =
    StreamConfig<T, Uint4Codes, kColumnK, kSubTiles, kOctets, kStages, kCtas, kBlockK, kInTurn>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<Bf16, 128, 2, 1, 4, 2, 128, true>>(
          "u4_g128_bf16/32x8x4", DataType::kUint4, DataType::kBfloat16, 120),
      MakeCodeStream<Config<Bf16, 128, 2, 2, 4, 1, 128, true>>(
          "u4_g128_bf16/32x16x4", DataType::kUint4, DataType::kBfloat16, 164),
      MakeCodeStream<Config<Bf16, 32, 1, 1, 8, 2, 128, true>>(
          "u4_g32_bf16/16x8x8", DataType::kUint4, DataType::kBfloat16, 124),
      MakeCodeStream<Config<Bf16, 128, 4, 1, 4, 1, 128, true>>(
          "u4_g128_bf16/64x8x4", DataType::kUint4, DataType::kBfloat16, 193),
      MakeCodeStream<Config<Bf16, 128, 2, 1, 3, 2, 256, true>>(
          "u4_g128_bf16/32x8x3k256", DataType::kUint4, DataType::kBfloat16, 128),
      MakeCodeStream<Config<Bf16, 128, 1, 1, 4, 2, 256, true>>(
          "u4_g128_bf16/16x8x4k256", DataType::kUint4, DataType::kBfloat16, 124),
      MakeCodeStream<Config<Bf16, 128, 1, 1, 8, 2, 128, true>>(
          "u4_g128_bf16/16x8x8", DataType::kUint4, DataType::kBfloat16, 104),
      MakeCodeStream<Config<Bf16, 128, 4, 2, 4, 1, 128, true>>(
          "u4_g128_bf16/64x16x4", DataType::kUint4, DataType::kBfloat16, 236),
      MakeCodeStream<Config<__half, 128, 2, 1, 4, 2, 128, true>>(
          "u4_g128_f16/32x8x4", DataType::kUint4, DataType::kFloat16, 120),
      MakeCodeStream<Config<__half, 128, 2, 2, 4, 1, 128, true>>(
          "u4_g128_f16/32x16x4", DataType::kUint4, DataType::kFloat16, 164),
      MakeCodeStream<Config<__half, 32, 1, 1, 8, 2, 128, true>>(
          "u4_g32_f16/16x8x8", DataType::kUint4, DataType::kFloat16, 124),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
