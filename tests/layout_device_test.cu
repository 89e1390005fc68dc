// Compiled, never run: the layouts and their proofs hold in device code, and the seed's usage
// example builds in a kernel as written.
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "culet/layout/stride.h"
#include "culet/layout/tma_swizzle.h"

namespace turbomind = culet;

__global__ void SeedExample(half* out) {
  using namespace turbomind;

  // Define a 64x64 shared memory layout with 3-bit swizzle
  using Layout = SmemLayoutV2<64, 64, 8, 64, Swizzle<3, 3, 3>>;
  __shared__ half smem[Layout::kSize];
  SmemAccessor<half, Layout> acc(smem);

  // Access element at row 5, column 10
  half val = acc(5, 10);

  *out = val;
}

// A row-major matrix goes through a swizzled tile: every header is used on the device with run-time
// indices.
__global__ void ThroughTile(const std::uint8_t* in, std::int64_t ld, std::uint8_t* out) {
  using Layout = culet::TmaTile128<8>;
  __shared__ std::uint8_t smem[Layout::kSize];
  const culet::SmemAccessor<std::uint8_t, Layout> tile(smem);
  const culet::Stride from{ld, std::integral_constant<int, 1>{}};
  const int row = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  tile(row, column) = in[from(row, column)];
  __syncthreads();
  out[from(row, column)] = smem[culet::TmaSwizzle128::apply(row * Layout::C + column)];
}
