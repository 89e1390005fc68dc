// Products of E2M1 weights by few tokens of float16.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <int kSubTiles, int kOctets, int kStages, int kCtas>
using Config = StreamConfig<__half, E2m1Codes, kSubTiles, kOctets, kStages, kCtas>;

}  // namespace

std::span<const CodeProductKernel> E2m1Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<1, 1, 8, 2>>("e2m1_stream", 118),
      MakeCodeStream<Config<2, 2, 4, 1>>("e2m1_stream", 209),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
