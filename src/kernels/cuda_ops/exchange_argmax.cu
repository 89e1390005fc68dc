// AllArgMax: a key a row crosses instead of the row; a thread a row.
#include "kernels/cuda_ops/exchange.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/order.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ std::uint64_t KeyOfRow(const AllArgMaxArgs& args, std::int64_t row) {
  const std::int32_t at = args.local[row];
  return KeyOf(args.x[row * args.cols + at], static_cast<std::uint32_t>(args.first + at));
}

__device__ __forceinline__ std::int32_t TokenOf(std::uint64_t key) {
  const std::uint64_t nan = KeyOf(NotANumber(), 0) >> 32;
  return key >> 32 == nan ? -1 : IndexOf(key);
}

__global__ void __launch_bounds__(kThreads) AllArgMaxKernel(const AllArgMaxArgs args) {
  __shared__ Turn turn;
  AwaitPrevious();
  Exchange exchange(args.peers, &turn);
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const bool there = row < args.rows;
  std::uint64_t best = 0;
  if (there) {
    best = KeyOfRow(args, row);
    exchange.PushKey(best, row);
  }
  LetNextBegin();
  if (there) {
    for (int from = 0; from < args.peers.ranks; ++from) {
      if (from == args.peers.rank) continue;
      const std::uint64_t key = exchange.ReceiveKey(from, row);
      best = key > best ? key : best;
    }
    args.all[row] = exchange.lost() ? -1 : TokenOf(best);
  }
  exchange.End();
}

__global__ void __launch_bounds__(kThreads)
    KeysOfArgMaxKernel(const AllArgMaxArgs args, std::uint64_t* keys) {
  WaitForPrevious();
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < args.rows) keys[row] = KeyOfRow(args, row);
}

__global__ void __launch_bounds__(kThreads)
    ArgMaxOfKeysKernel(const std::uint64_t* keys, std::int32_t* all, std::int64_t rows) {
  WaitForPrevious();
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < rows) all[row] = TokenOf(keys[row]);
}

}  // namespace

cudaError_t AllArgMax(const AllArgMaxArgs& args, LaunchStream stream) {
  return Launch(&AllArgMaxKernel, Blocks(CeilDiv(args.rows, kThreads)), kThreads, stream, args);
}

cudaError_t KeysOfArgMax(const AllArgMaxArgs& args, std::uint64_t* keys, LaunchStream stream) {
  return Launch(&KeysOfArgMaxKernel, Blocks(CeilDiv(args.rows, kThreads)), kThreads, stream, args,
                keys);
}

cudaError_t ArgMaxOfKeys(const std::uint64_t* keys, std::int32_t* all, std::int64_t rows,
                         LaunchStream stream) {
  return Launch(&ArgMaxOfKeysKernel, Blocks(CeilDiv(rows, kThreads)), kThreads, stream, keys, all,
                rows);
}

}  // namespace culet::cuda_ops
