// Products of E4M3 weights by few tokens, codes straight to registers.
#include "kernels/cuda_ops/code_direct.cuh"
#include "kernels/cuda_ops/code_instances.h"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kAhead, int kCtas>
using Config = DirectConfig<T, E4m3Codes, CodeScales::kRows, kSubTiles, kOctets, kAhead, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E4m3Directs() {
  static const CodeProductKernel kernels[] = {
      MakeCodeDirect<Config<Bf16, 2, 1, 3, 2>>("e4m3_row", 115),
      MakeCodeDirect<Config<Bf16, 2, 2, 3, 1>>("e4m3_row", 140),
      MakeCodeDirect<Config<Bf16, 4, 2, 2, 1>>("e4m3_row", 181),
      MakeCodeDirect<Config<__half, 2, 1, 3, 2>>("e4m3_row", 115),
      MakeCodeDirect<Config<__half, 2, 2, 3, 1>>("e4m3_row", 140),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
