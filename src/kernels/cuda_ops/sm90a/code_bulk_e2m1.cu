// Products of E2M1 weights by few tokens on Hopper.
#include "kernels/cuda_ops/code_bulk.cuh"
#include "kernels/cuda_ops/code_instances.h"

namespace culet::cuda_ops {
namespace {

template <class T, int kSlices, int kRowWarps, int kSubTiles, int kOctets, int kCtas>
using Config = BulkConfig<T, E2m1Codes, 32, kSlices, kRowWarps, kSubTiles, kOctets, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> E2m1Bulks() {
  static const CodeProductKernel kernels[] = {
      MakeCodeBulk<Config<Bf16, 8, 1, 2, 1, 2>>("e2m1_bulk", 92),
      MakeCodeBulk<Config<Bf16, 8, 1, 1, 1, 2>>("e2m1_bulk", 90),
      MakeCodeBulk<Config<Bf16, 4, 2, 2, 1, 2>>("e2m1_bulk", 89),
      MakeCodeBulk<Config<Bf16, 4, 4, 2, 2, 1>>("e2m1_bulk", 93),
      MakeCodeBulk<Config<Bf16, 2, 4, 2, 4, 1>>("e2m1_bulk", 157, kBulkMost),
      MakeCodeBulk<Config<__half, 8, 1, 2, 1, 2>>("e2m1_bulk", 92),
      MakeCodeBulk<Config<__half, 4, 4, 2, 2, 1>>("e2m1_bulk", 95),
      MakeCodeBulk<Config<__half, 2, 4, 2, 4, 1>>("e2m1_bulk", 157, kBulkMost),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
