// Products of E2M1 weights by few tokens, codes straight to registers.
#include "kernels/cuda_ops/code_direct.cuh"
#include "kernels/cuda_ops/code_instances.h"

namespace culet::cuda_ops {
namespace {

template <int kSubTiles, int kOctets, int kAhead, int kCtas>
using Config =
    DirectConfig<__nv_bfloat16, E2m1Codes, CodeScales::kPowers, kSubTiles, kOctets, kAhead, kCtas>;

}  // namespace

std::span<const CodeProductKernel> E2m1Directs() {
  static const CodeProductKernel kernels[] = {
      MakeCodeDirect<Config<1, 1, 4, 2>>("e2m1", 107),
      MakeCodeDirect<Config<2, 1, 2, 2>>("e2m1", 122),
      MakeCodeDirect<Config<2, 2, 2, 1>>("e2m1", 164),
      MakeCodeDirect<Config<4, 2, 2, 1>>("e2m1", 212),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
