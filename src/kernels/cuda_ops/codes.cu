// Rows of a weight of codes as numbers.
#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr int kEach = 8;  // elements a thread

// A block takes kThreads pieces of a row. `kWhole`: a piece has one scale and is stored at once.
template <class To, bool kWhole>
__global__ void __launch_bounds__(kThreads) RowsOfCodesKernel(const RowsOfCodesArgs args) {
  WaitForPrevious();
  const CodesWeight& weight = args.weight;
  const auto cols = static_cast<int>(weight.cols), group = static_cast<int>(weight.group);
  const int at = static_cast<int>(blockIdx.y * kThreads + threadIdx.x) * kEach;
  if (at >= cols) return;
  const std::int64_t to = blockIdx.x;
  const std::int64_t row = args.from != nullptr ? args.from[to] : args.first + to;
  const bool exists = row >= 0 && row < weight.rows;
  const std::int64_t scales_at = row / weight.group_rows * weight.scale_row;
  float values[kEach] = {};
  if (exists) {
    LoadCodes(static_cast<const char*>(weight.data) + row * weight.row_bytes, weight.type, at, cols,
              values);
  }
  const auto scaled = [&](float code, int group_of_row) {
    if (!exists) return NotANumber();
    const std::int64_t place = scales_at + group_of_row * weight.scale_column;
    const float zero =
        weight.zeros != nullptr ? ScaleOf(weight.zeros, weight.zeros_type, place) : 0.0f;
    return (code - zero) * ScaleOf(weight.scales, weight.scales_type, place);
  };
  To* const target = static_cast<To*>(args.target) + to * cols + at;
  if constexpr (kWhole) {
    const int own = at / group;
#pragma unroll
    for (float& value : values) value = scaled(value, own);
    Store(values, target);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (at + i < cols) Round(scaled(values[i], (at + i) / group), target + i);
    }
  }
}

}  // namespace

cudaError_t RowsOfCodes(const RowsOfCodesArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  const CodesWeight& weight = args.weight;
  const dim3 grid = Blocks(args.rows, CeilDiv(weight.cols, kThreads * kEach));
  const bool whole = IsWide(weight.cols, static_cast<std::byte*>(args.target)) &&
                     (weight.group % kEach == 0 || weight.group >= weight.cols);
  return WithStored(args.target_type, [&]<class To>(To) {
    return Launch(whole ? &RowsOfCodesKernel<To, true> : &RowsOfCodesKernel<To, false>, grid,
                  kThreads, stream, args);
  });
}

}  // namespace culet::cuda_ops
