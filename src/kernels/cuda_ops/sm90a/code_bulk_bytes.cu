// Products of E4M3 and int8 weights by few tokens on Hopper.
#include "kernels/cuda_ops/code_bulk.cuh"
#include "kernels/cuda_ops/code_instances.h"

namespace culet::cuda_ops {
namespace {

template <class T, int kSlices, int kRowWarps, int kSubTiles, int kOctets, int kCtas>
using E4m3 = BulkConfig<T, E4m3Codes, 64, kSlices, kRowWarps, kSubTiles, kOctets, kCtas>;
template <class T, int kSlices, int kRowWarps, int kSubTiles, int kOctets, int kCtas>
using Int8 = BulkConfig<T, Int8Codes, 32, kSlices, kRowWarps, kSubTiles, kOctets, kCtas>;
using Bf16 = __nv_bfloat16;

}  // namespace

std::span<const CodeProductKernel> BytesBulks() {
  static const CodeProductKernel kernels[] = {
      MakeCodeBulk<E4m3<Bf16, 8, 1, 2, 1, 2>>("e4m3_bulk", 91),
      MakeCodeBulk<E4m3<Bf16, 8, 1, 1, 1, 2>>("e4m3_bulk", 76),
      MakeCodeBulk<E4m3<Bf16, 4, 2, 2, 2, 2>>("e4m3_bulk", 91),
      MakeCodeBulk<E4m3<Bf16, 4, 2, 2, 4, 1>>("e4m3_bulk", 151, kBulkMost),
      MakeCodeBulk<E4m3<__half, 8, 1, 2, 1, 2>>("e4m3_bulk", 91),
      MakeCodeBulk<E4m3<__half, 4, 2, 2, 2, 2>>("e4m3_bulk", 91),
      MakeCodeBulk<Int8<Bf16, 8, 1, 1, 1, 2>>("int8_bulk", 90),
      MakeCodeBulk<Int8<Bf16, 8, 2, 1, 2, 1>>("int8_bulk", 95),
  };
  return kernels;
}

}  // namespace culet::cuda_ops
