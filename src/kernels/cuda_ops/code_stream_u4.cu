// Products of uint4 weights by few tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <class T, int kColumnK, int kSubTiles, int kOctets, int kStages, int kCtas,
          int kBlockK = 128>
using Config = StreamConfig<T, Uint4Codes, kColumnK, kSubTiles, kOctets, kStages, kCtas, kBlockK>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<Bf16, 128, 2, 1, 4, 2>>("u4_g128", 120),
      MakeCodeStream<Config<Bf16, 128, 2, 2, 4, 1>>("u4_g128", 164),
      MakeCodeStream<Config<Bf16, 32, 1, 1, 8, 2>>("u4_g32", 124),
      MakeCodeStream<Config<Bf16, 128, 4, 1, 4, 1>>("u4_g128", 193),
      MakeCodeStream<Config<Bf16, 128, 2, 1, 3, 2, 256>>("u4_g128", 128),
      MakeCodeStream<Config<Bf16, 128, 1, 1, 4, 2, 256>>("u4_g128", 124),
      MakeCodeStream<Config<Bf16, 128, 1, 1, 8, 2>>("u4_g128", 104),
      MakeCodeStream<Config<Bf16, 128, 4, 2, 4, 1>>("u4_g128", 236),
      MakeCodeStream<Config<__half, 128, 2, 1, 4, 2>>("u4_g128", 120),
      MakeCodeStream<Config<__half, 128, 2, 2, 4, 1>>("u4_g128", 164),
      MakeCodeStream<Config<__half, 32, 1, 1, 8, 2>>("u4_g32", 124),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
