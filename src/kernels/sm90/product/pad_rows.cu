#include "kernels/sm90/product/pad_rows.h"

#include <algorithm>
#include <cstdint>

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/start.h"
#include "sm90/sync.cuh"

namespace culet::sm90 {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kLoads = 8;  // of a lane, before its first store

// The largest of 1, 2, 4 and 8 bytes that addresses, pitches and rows are multiples of.
__host__ __device__ int UnitOf(const RowsToPad& m) {
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(m.from) |
                             static_cast<std::uint64_t>(m.from_pitch) |
                             static_cast<std::uint64_t>(m.row_bytes) | 8;
  return static_cast<int>(bits & (~bits + 1));
}

// A warp copies kLoads units a lane: neighbouring lanes take neighbouring units.
constexpr int SegmentBytes(int unit) { return 32 * kLoads * unit; }

template <class Unit>
__device__ __forceinline__ void CopySegment(const RowsToPad& m, std::int64_t row, int segment,
                                            int lane) {
  const int units = m.row_bytes / static_cast<int>(sizeof(Unit));
  const int first = segment * (32 * kLoads) + lane;
  const auto* const from =
      reinterpret_cast<const Unit*>(static_cast<const char*>(m.from) + row * m.from_pitch);
  auto* const to = reinterpret_cast<Unit*>(static_cast<char*>(m.to) + row * m.to_pitch);
  Unit held[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i)
    if (first + i * 32 < units) held[i] = from[first + i * 32];
#pragma unroll
  for (int i = 0; i < kLoads; ++i)
    if (first + i * 32 < units) to[first + i * 32] = held[i];
}

__global__ void __launch_bounds__(kThreads) PadRows(const __grid_constant__ PadRowsParams p) {
  const RowsToPad& m = p.matrix[blockIdx.y];
  const int segments = p.segments[blockIdx.y], unit = UnitOf(m), lane = threadIdx.x % 32;
  const std::int64_t all = std::int64_t{m.rows} * segments, step = std::int64_t{gridDim.x} * kWarps;
  GridDependencyWait();
  // What comes next may begin: it waits for the copies, but not before it has loaded what is no
  // copy.
  GridDependencyLaunch();
  for (std::int64_t at = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; at < all;
       at += step) {
    const std::int64_t row = at / segments;
    const int segment = static_cast<int>(at - row * segments);
    switch (unit) {
      case 8:
        CopySegment<std::uint64_t>(m, row, segment, lane);
        break;
      case 4:
        CopySegment<std::uint32_t>(m, row, segment, lane);
        break;
      case 2:
        CopySegment<std::uint16_t>(m, row, segment, lane);
        break;
      default:
        CopySegment<std::uint8_t>(m, row, segment, lane);
    }
  }
}

constexpr int kBlocks = 2048 / kThreads;  // on a multiprocessor

}  // namespace

cudaError_t LoadPadRows() { return LoadKernel(reinterpret_cast<const void*>(&PadRows), 0); }

cudaError_t LaunchPadRows(PadRowsParams params, int sms, bool pdl, cudaStream_t stream) {
  std::int64_t most = 1;  // warps that find work
  for (int i = 0; i < kMostPadded; ++i) {
    const RowsToPad& m = params.matrix[i];
    if (m.rows == 0) continue;
    params.segments[i] = CeilDiv(m.row_bytes, SegmentBytes(UnitOf(m)));
    most = std::max(most, std::int64_t{m.rows} * params.segments[i]);
  }
  const bool both = params.matrix[1].rows > 0;
  const std::int64_t blocks = std::min((most + kWarps - 1) / kWarps,
                                       std::int64_t{std::max(1, sms)} * kBlocks / (both ? 2 : 1));
  return StartKernel(
      reinterpret_cast<const void*>(&PadRows),
      {.grid = dim3(static_cast<unsigned>(std::max<std::int64_t>(blocks, 1)), both ? 2 : 1),
       .block = dim3(kThreads),
       .pdl = pdl},
      params, stream);
}

}  // namespace culet::sm90
