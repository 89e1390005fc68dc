// Products of E2M1 weights by few tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kColumnK, int kSubTiles, int kOctets, int kStages, int kCtas,
          int kBlockK = 128>
using Config = StreamConfig<T, E2m1Codes, kColumnK, kSubTiles, kOctets, kStages, kCtas, kBlockK>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E2m1Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<Bf16, 32, 1, 1, 8, 2>>("e2m1_stream", 118),
      MakeCodeStream<Config<Bf16, 32, 2, 1, 4, 2>>("e2m1_stream", 126),
      MakeCodeStream<Config<Bf16, 32, 1, 1, 4, 2, 256>>("e2m1_stream", 123),
      MakeCodeStream<Config<Bf16, 32, 2, 2, 4, 1>>("e2m1_stream", 202),
      MakeCodeStream<Config<__half, 32, 1, 1, 8, 2>>("e2m1_stream", 118),
      MakeCodeStream<Config<__half, 32, 2, 2, 4, 1>>("e2m1_stream", 209),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
