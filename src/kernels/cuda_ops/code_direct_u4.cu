// Products of uint4 weights by few tokens, codes straight to registers.
#include "kernels/cuda_ops/code_direct.cuh"
#include "kernels/cuda_ops/code_instances.h"

namespace culet::cuda_ops {
namespace {

template <class T, int kSubTiles, int kOctets, int kAhead, int kCtas>
using Config = DirectConfig<T, Uint4Codes, CodeScales::kBlocks, kSubTiles, kOctets, kAhead, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Directs() {
  static const CodeProductKernel kernels[] = {
      MakeCodeDirect<Config<Bf16, 1, 1, 4, 2>>("u4_g128", 115),
      MakeCodeDirect<Config<Bf16, 2, 1, 2, 2>>("u4_g128", 126),
      MakeCodeDirect<Config<Bf16, 4, 1, 2, 1>>("u4_g128", 199),
      MakeCodeDirect<Config<Bf16, 2, 2, 2, 1>>("u4_g128", 192),
      MakeCodeDirect<Config<Bf16, 4, 2, 2, 1>>("u4_g128", 254),
      MakeCodeDirect<Config<__half, 2, 1, 2, 2>>("u4_g128", 127),
      MakeCodeDirect<Config<__half, 2, 2, 2, 1>>("u4_g128", 196),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
