// AllReduce: a block a tile, of which each thread has three vectors.
#include "kernels/cuda_ops/exchange.cuh"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kTile = std::int64_t{kThreads} * kVectors;  // vectors
constexpr int kBlocksOfUnit = 4;  // that run at once for certain: all of them wait for others

template <class Wire>
__global__ void __launch_bounds__(kThreads, kBlocksOfUnit)
    AllReduceKernel(const AllReduceArgs args) {
  __shared__ Turn turn;
  const std::int64_t vectors = args.count / kVector;
  const std::int64_t tiles = (vectors + kTile - 1) / kTile;
  const int thread = static_cast<int>(threadIdx.x);
  AwaitPrevious();
  float x[kEach];
  LoadVectors(args.x, blockIdx.x * kTile + thread, kThreads, vectors, x);
  Exchange exchange(args.peers, &turn);
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first = tile * kTile + thread;
    if (tile != blockIdx.x) LoadVectors(args.x, first, kThreads, vectors, x);
    const std::int64_t slot = tile * kPackets<Wire> * kThreads + thread;
    exchange.Push<Wire>(x, slot, kThreads);
    if (tile + gridDim.x >= tiles) LetNextBegin();
    exchange.Sum<Wire>(x, slot, kThreads);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const std::int64_t at = first + i * kThreads;
      float vector[kVector];
      TakeVector(x, i, vector);
      if (at < vectors) Store(vector, args.sum + at * kVector);
    }
  }
  exchange.End();
}

template <class Wire>
std::int64_t SlotsOf(std::int64_t count) {
  return CeilDiv(CeilDiv(count, kVector), kTile) * kPackets<Wire> * kThreads;
}

}  // namespace

std::int64_t AllReduceSlots(std::int64_t count, DataType wire) {
  return wire == DataType::kFloat32 ? SlotsOf<float>(count) : SlotsOf<__nv_bfloat16>(count);
}

bool CanAllReduce(const AllReduceArgs& args) {
  const std::uintptr_t bits =
      reinterpret_cast<std::uintptr_t>(args.x) | reinterpret_cast<std::uintptr_t>(args.sum);
  return args.count > 0 && args.count % kVector == 0 && bits % 16 == 0;
}

cudaError_t AllReduce(const AllReduceArgs& args, LaunchStream stream) {
  const std::int64_t tiles = CeilDiv(args.count / kVector, kTile);
  const std::int64_t most = std::int64_t{args.units} * kBlocksOfUnit;
  return WithValue(args.wire, [&]<class Wire>(Wire) {
    return Launch(&AllReduceKernel<Wire>, Blocks(tiles < most ? tiles : most), kThreads, stream,
                  args);
  });
}

}  // namespace culet::cuda_ops
