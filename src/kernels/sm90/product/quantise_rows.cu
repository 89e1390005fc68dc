#include "kernels/sm90/product/quantise_rows.h"

#include <algorithm>
#include <cstdint>

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/row_scale.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {
namespace {

constexpr int kThreads = 256, kLanes = 16;  // of a group, 8 columns each
constexpr int kGroups = kThreads / kLanes;  // of a block at a time

__global__ void __launch_bounds__(kThreads)
    QuantiseRows(const __grid_constant__ QuantiseRowsParams p) {
  const int groups = (p.n + 127) / 128, lane = threadIdx.x % kLanes;
  const bool aligned =
      (reinterpret_cast<std::uintptr_t>(p.d) | static_cast<std::uint64_t>(p.ldd)) % 8 == 0;
  // Divisions are slow, so they come before the wait.
  const std::int64_t all = std::int64_t{p.m} * groups, step = std::int64_t{gridDim.x} * kGroups;
  const std::int64_t step_row = step / groups;
  const int step_group = static_cast<int>(step - step_row * groups);
  std::int64_t first = std::int64_t{blockIdx.x} * kGroups,
               row = (first + threadIdx.x / kLanes) / groups;
  int group = static_cast<int>(first + threadIdx.x / kLanes - row * groups);
  const auto advance = [&] {
    first += step, row += step_row, group += step_group;
    if (group >= groups) group -= groups, ++row;
  };
  GridDependencyWait();
  for (; first < all; advance()) {
    const int column = group * 128 + lane * 8;
    const bool inside = row < p.m && column < p.n;
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
    if (!inside) continue;
    uint16_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float lift = lifts ? 0x1p100f : 1.0f;
      packed[i] = PackE4m3(v[i * 2] * lift * scale.inverse, v[i * 2 + 1] * lift * scale.inverse);
    }
    auto* const to = static_cast<uint8_t*>(p.d) + row * p.ldd + column;
    if (aligned) {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(packed[0] | uint32_t{packed[1]} << 16, packed[2] | uint32_t{packed[3]} << 16);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i] = static_cast<uint8_t>(packed[i / 2] >> i % 2 * 8);
    }
    if (lane == 0) p.scales[row * p.scale_row + std::int64_t{group} * p.scale_block] = scale.scale;
  }
}

// Blocks on a multiprocessor. In an early launch, blocks would fill the first multiprocessors that
// the product leaves, up to 2,048 threads each, and would then load at the pace of those few.
// Unused shared memory spreads them.
constexpr int kFewest = 2, kMost = 8;
constexpr int SmemOf(int blocks) { return kSmemPerSm / blocks - kSmemReserved; }

}  // namespace

cudaError_t LoadQuantiseRows() {
  return LoadKernel(reinterpret_cast<const void*>(&QuantiseRows), SmemOf(kFewest));
}

cudaError_t LaunchQuantiseRows(const QuantiseRowsParams& params, cudaStream_t stream) {
  const std::int64_t groups = std::int64_t{params.m} * CeilDiv(params.n, 128);
  const std::int64_t blocks = (groups + kGroups - 1) / kGroups;
  const int each = static_cast<int>(std::clamp((blocks + params.sms - 1) / params.sms,
                                               std::int64_t{kFewest}, std::int64_t{kMost}));
  const auto launched = static_cast<unsigned>(std::min(blocks, std::int64_t{each} * params.sms));
  return LaunchKernel(
      reinterpret_cast<const void*>(&QuantiseRows),
      {.grid = dim3(launched), .block = dim3(kThreads), .smem_bytes = SmemOf(each), .pdl = true},
      &params, stream);
}

}  // namespace culet::sm90
