// Products of E2M1 weights by few tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kColumnK, int kSubTiles, int kOctets, int kStages, int kCtas, int kBlockK,
          bool kInTurn>
using Config =
    StreamConfig<T, E2m1Codes, kColumnK, kSubTiles, kOctets, kStages, kCtas, kBlockK, kInTurn>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E2m1Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<Bf16, 32, 1, 1, 8, 2, 128, true>>(
          "e2m1_stream_bf16/16x8x8", DataType::kFloat4_e2m1, DataType::kBfloat16, 118),
      MakeCodeStream<Config<Bf16, 32, 2, 1, 4, 2, 128, true>>(
          "e2m1_stream_bf16/32x8x4", DataType::kFloat4_e2m1, DataType::kBfloat16, 126),
      MakeCodeStream<Config<Bf16, 32, 1, 1, 4, 2, 256, true>>(
          "e2m1_stream_bf16/16x8x4k256", DataType::kFloat4_e2m1, DataType::kBfloat16, 123),
      MakeCodeStream<Config<Bf16, 32, 2, 2, 4, 1, 128, true>>(
          "e2m1_stream_bf16/32x16x4", DataType::kFloat4_e2m1, DataType::kBfloat16, 202),
      MakeCodeStream<Config<__half, 32, 1, 1, 8, 2, 128, true>>(
          "e2m1_stream_f16/16x8x8", DataType::kFloat4_e2m1, DataType::kFloat16, 118),
      MakeCodeStream<Config<__half, 32, 2, 2, 4, 1, 128, true>>(
          "e2m1_stream_f16/32x16x4", DataType::kFloat4_e2m1, DataType::kFloat16, 209),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
