#include "kernels/sm90/quantise_rows.h"

#include "kernels/sm90/launch.h"
#include "kernels/sm90/row_scale.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {
namespace {

constexpr int kThreads = 256, kLanes = 16;  // of a group, 8 columns each

__global__ void __launch_bounds__(kThreads)
    QuantiseRows(const __grid_constant__ QuantiseRowsParams p) {
  const int groups = (p.n + 127) / 128;
  const auto index = std::int64_t{blockIdx.x} * (kThreads / kLanes) + threadIdx.x / kLanes;
  const auto row = index / groups;
  const int group = static_cast<int>(index - row * groups), lane = threadIdx.x % kLanes;
  const int column = group * 128 + lane * 8;
  const bool inside = row < p.m && column < p.n;
  GridDependencyWait();
  float v[8] = {};
  if (inside) {
    const auto* const from = reinterpret_cast<const float4*>(p.x + row * p.ldx + column);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float4 four = from[i];
      v[i * 4] = four.x, v[i * 4 + 1] = four.y, v[i * 4 + 2] = four.z, v[i * 4 + 3] = four.w;
    }
  }
  float largest = 0.0f;
#pragma unroll
  for (const float value : v) largest = LargerMagnitude(largest, value);
  largest = LargestOfLanes<1, kLanes / 2>(largest);
  bool lifts;
  const RowScale scale = ScaleOfLargest(largest, lifts);
  if (!inside) return;
  uint16_t packed[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float lift = lifts ? 0x1p100f : 1.0f;
    packed[i] = PackE4m3(v[i * 2] * lift * scale.inverse, v[i * 2 + 1] * lift * scale.inverse);
  }
  auto* const to = static_cast<uint8_t*>(p.d) + row * p.ldd + column;
  if ((reinterpret_cast<std::uintptr_t>(p.d) | static_cast<std::uint64_t>(p.ldd)) % 8 == 0) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(packed[0] | uint32_t{packed[1]} << 16, packed[2] | uint32_t{packed[3]} << 16);
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = static_cast<uint8_t>(packed[i / 2] >> i % 2 * 8);
  }
  if (lane == 0) p.scales[row * p.scale_row + std::int64_t{group} * p.scale_block] = scale.scale;
}

}  // namespace

cudaError_t LoadQuantiseRows() {
  return LoadKernel(reinterpret_cast<const void*>(&QuantiseRows), 0);
}

cudaError_t LaunchQuantiseRows(const QuantiseRowsParams& params, bool pdl, cudaStream_t stream) {
  const std::int64_t groups = std::int64_t{params.m} * CeilDiv(params.n, 128);
  const auto blocks = static_cast<unsigned>((groups + kThreads / kLanes - 1) / (kThreads / kLanes));
  return LaunchKernel(reinterpret_cast<const void*>(&QuantiseRows),
                      {.grid = dim3(blocks), .block = dim3(kThreads), .pdl = pdl}, &params, stream);
}

}  // namespace culet::sm90
