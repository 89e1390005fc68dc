// Products of uint4 weights by few tokens on Hopper.
#include "kernels/cuda_ops/code_bulk.cuh"
#include "kernels/cuda_ops/code_instances.h"

namespace culet::cuda_ops {
namespace {

template <class T, int kColumnK, int kSlices, int kRowWarps, int kSubTiles, int kOctets, int kCtas>
using Config = BulkConfig<T, Uint4Codes, kColumnK, kSlices, kRowWarps, kSubTiles, kOctets, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> Uint4Bulks() {
  static const CodeProductKernel kernels[] = {
      MakeCodeBulk<Config<Bf16, 128, 8, 1, 2, 1, 2>>("u4_bulk", 94),
      MakeCodeBulk<Config<Bf16, 128, 8, 1, 1, 1, 2>>("u4_bulk", 72),
      MakeCodeBulk<Config<Bf16, 128, 8, 2, 1, 1, 1>>("u4_bulk", 94),
      MakeCodeBulk<Config<Bf16, 128, 4, 2, 2, 1, 2>>("u4_bulk", 96),
      MakeCodeBulk<Config<Bf16, 128, 4, 2, 2, 2, 2>>("u4_bulk", 96),
      MakeCodeBulk<Config<Bf16, 128, 4, 4, 2, 2, 1>>("u4_bulk", 96),
      MakeCodeBulk<Config<Bf16, 128, 2, 4, 2, 4, 1>>("u4_bulk", 154, kBulkMost),
      MakeCodeBulk<Config<Bf16, 128, 4, 2, 2, 4, 1>>("u4_bulk", 154, kBulkMost),
      MakeCodeBulk<Config<Bf16, 32, 8, 2, 1, 1, 1>>("u4_g32_bulk", 94),
      MakeCodeBulk<Config<__half, 128, 8, 1, 2, 1, 2>>("u4_bulk", 94),
      MakeCodeBulk<Config<__half, 128, 4, 2, 2, 1, 2>>("u4_bulk", 96),
      MakeCodeBulk<Config<__half, 128, 4, 4, 2, 2, 1>>("u4_bulk", 96),
      MakeCodeBulk<Config<__half, 128, 2, 4, 2, 4, 1>>("u4_bulk", 154, kBulkMost),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
