// AllGather: a block a tile of each rank's part, read row by row.
#include "kernels/cuda_ops/exchange.cuh"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kTile = std::int64_t{kThreads} * kVectors;  // vectors
constexpr int kBlocksOfUnit = 4;  // that run at once for certain: all of them wait for others

__host__ __device__ __forceinline__ std::int64_t VectorsOfRow(const AllGatherArgs& args, int rank) {
  return (args.bounds[rank + 1] - args.bounds[rank]) / kVector;
}
// At least one: every rank sends to every other one.
__host__ __device__ __forceinline__ std::int64_t TilesOf(const AllGatherArgs& args, int rank) {
  const std::int64_t tiles = (args.rows * VectorsOfRow(args, rank) + kTile - 1) / kTile;
  return tiles > 1 ? tiles : 1;
}

__device__ __forceinline__ void StorePart(const AllGatherArgs& args, int rank, std::int64_t first,
                                          const float (&x)[kEach]) {
  const std::int64_t of_row = VectorsOfRow(args, rank), end = args.rows * of_row;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::int64_t at = first + i * kThreads;
    if (at >= end) continue;
    const std::int64_t row = at / of_row, col = at % of_row * kVector;
    float vector[kVector];
    TakeVector(x, i, vector);
    Store(vector, args.all + row * args.bounds[args.peers.ranks] + args.bounds[rank] + col);
  }
}

__global__ void __launch_bounds__(kThreads, kBlocksOfUnit)
    AllGatherKernel(const AllGatherArgs args, const std::int64_t tiles) {
  __shared__ Turn turn;
  const int thread = static_cast<int>(threadIdx.x), own = args.peers.rank;
  AwaitPrevious();
  Exchange exchange(args.peers, &turn);
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first = tile * kTile + thread;
    const std::int64_t slot = tile * kPackets<float> * kThreads + thread;
    float x[kEach];
    if (tile < TilesOf(args, own)) {
      LoadVectors(args.x, first, kThreads, args.rows * VectorsOfRow(args, own), x);
      exchange.Push<float>(x, slot, kThreads);
      StorePart(args, own, first, x);
    }
    if (tile + gridDim.x >= tiles) LetNextBegin();
    for (int i = 1; i < args.peers.ranks; ++i) {
      const int from = (own + i) % args.peers.ranks;
      if (tile >= TilesOf(args, from)) continue;
      exchange.Receive<float>(from, slot, kThreads, x);
      StorePart(args, from, first, x);
    }
  }
  exchange.End();
}

std::int64_t MostTiles(const AllGatherArgs& args) {
  std::int64_t most = 1;
  for (int rank = 0; rank < args.peers.ranks; ++rank) {
    const std::int64_t tiles = TilesOf(args, rank);
    most = tiles > most ? tiles : most;
  }
  return most;
}

}  // namespace

std::int64_t AllGatherSlots(const AllGatherArgs& args) {
  if (args.peers.ranks > AllGatherArgs::kMostRanks || args.rows < 1) return 0;
  std::uintptr_t bits =
      reinterpret_cast<std::uintptr_t>(args.x) | reinterpret_cast<std::uintptr_t>(args.all);
  for (int rank = 0; rank <= args.peers.ranks; ++rank) {
    bits |= static_cast<std::uintptr_t>(args.bounds[rank]) * sizeof(float);
  }
  return bits % 16 == 0 ? MostTiles(args) * kPackets<float> * kThreads : 0;
}

cudaError_t AllGather(const AllGatherArgs& args, LaunchStream stream) {
  const std::int64_t tiles = MostTiles(args), most = std::int64_t{args.units} * kBlocksOfUnit;
  return Launch(&AllGatherKernel, Blocks(tiles < most ? tiles : most), kThreads, stream, args,
                tiles);
}

}  // namespace culet::cuda_ops
