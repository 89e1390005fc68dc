// MoveRows: rows picked, stored and converted.
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256;

template <class From, class To, int kWide>
__global__ void __launch_bounds__(kThreads) MoveRowsKernel(const MoveRowsArgs args) {
  WaitForPrevious();
  const std::int64_t vectors = args.cols / kWide;
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= args.rows * vectors) return;
  const std::int64_t row = index / vectors, col = (index - row * vectors) * kWide;
  const std::int64_t to = args.to == nullptr ? row : args.to[row];
  if (to < 0 || to >= args.target_rows) return;
  const std::int64_t number = args.from == nullptr ? row : args.from[row];
  const std::int64_t from = number - args.first_row;
  float values[kWide];
#pragma unroll
  for (float& value : values) value = number >= 0 && number < args.all_rows ? 0 : NotANumber();
  if (from >= 0 && from < args.source_rows) {
    Load(static_cast<const From*>(args.source) + from * args.cols + col, values);
  }
  Store(values, static_cast<To*>(args.target) + to * args.cols + col);
}

template <class From, class To, int kWide>
cudaError_t LaunchWide(const MoveRowsArgs& args, LaunchStream stream) {
  const std::int64_t blocks = CeilDiv(args.rows * (args.cols / kWide), kThreads);
  return Launch(&MoveRowsKernel<From, To, kWide>, Blocks(blocks), kThreads, stream, args);
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    ReorderColumnsKernel(const MoveRowsArgs args, const std::int32_t* order) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = index < args.rows * args.cols;
  const std::int64_t row = index / args.cols;
  const std::int64_t from = there ? row * args.cols + order[index - row * args.cols] : 0;
  WaitForPrevious();
  if (!there) return;
  Round(ToFloat(static_cast<const From*>(args.source)[from]),
        static_cast<To*>(args.target) + index);
}

}  // namespace

cudaError_t MoveRows(const MoveRowsArgs& args, LaunchStream stream) {
  if (args.rows == 0 || args.cols == 0) return cudaSuccess;
  return WithStored(args.source_type, [&]<class From>(From) {
    return WithStored(args.target_type, [&]<class To>(To) {
      return IsWide(args.cols, static_cast<const std::byte*>(args.source),
                    static_cast<std::byte*>(args.target))
                 ? LaunchWide<From, To, 8>(args, stream)
                 : LaunchWide<From, To, 1>(args, stream);
    });
  });
}

cudaError_t ReorderColumns(const MoveRowsArgs& args, const std::int32_t* order,
                           LaunchStream stream) {
  if (args.rows == 0 || args.cols == 0) return cudaSuccess;
  return WithValue(args.source_type, [&]<class From>(From) {
    return WithValue(args.target_type, [&]<class To>(To) {
      return Launch(&ReorderColumnsKernel<From, To>,
                    Blocks(CeilDiv(args.rows * args.cols, kThreads)), kThreads, stream, args,
                    order);
    });
  });
}

}  // namespace culet::cuda_ops
