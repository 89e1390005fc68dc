// Products of uint4 weights in groups of 32 by few tokens.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_stream.cuh"

namespace culet::cuda_ops {
namespace {

template <class T>
using Config = StreamConfig<T, Uint4Codes, 1, 1, 8, 2>;

}  // namespace

std::span<const CodeProductKernel> Uint4Streams() {
  static const CodeProductKernel kernels[] = {
      MakeCodeStream<Config<__nv_bfloat16>>("u4_g32", 124),
      MakeCodeStream<Config<__half>>("u4_g32", 124),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
