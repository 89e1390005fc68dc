// AllReduceTwoShot: a block a group of tiles, of which each rank sums one for all.
//
// A rank sends each tile to the rank that sums it, and that one the sum to all: whole values, and
// then a word with the epoch, which tells the reader that all before it has come. A block works at
// three groups at a time, so that it sends one while it waits for the others.
//
// Who has all sums has heard, if through others, of all ranks: each sum was sent when its rank had
// the tiles of all. So generations protect what is read here as they protect packets.
#include "kernels/cuda_ops/exchange.cuh"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr int kTileVectors = kTwoShotTile / kVector, kOfThread = kTileVectors / kThreads;
constexpr int kBlocksOfUnit = 4;  // that run at once for certain: all of them wait for others

template <class Wire>
class TwoShot {
 public:
  __device__ __forceinline__ TwoShot(const AllReduceArgs& args, Exchange& exchange, int* lost)
      : args_(args), exchange_(exchange), lost_(lost) {}

  /// Sends each rank its tile.
  __device__ __forceinline__ void Scatter(std::int64_t group) const {
    const ExchangePeers& peers = args_.peers;
    for (int i = 1; i < peers.ranks; ++i) {
      const int to = (peers.rank + i) % peers.ranks;
      Wire* const at = Tile(to, kScatter, group, peers.rank);
#pragma unroll
      for (int v = 0; v < kOfThread; ++v) {
        float vector[kVector];
        if (!IsThere(group, to, v)) continue;
        Load(args_.x + At(group, to, v), vector);
        Store(vector, at + InTile(v));
      }
    }
    Announce(kScatter, group);
  }

  /// Sums this rank's tile and sends it to all.
  __device__ __forceinline__ void Reduce(std::int64_t group) {
    const ExchangePeers& peers = args_.peers;
    Await(kScatter, group);
    float sum[kOfThread][kVector];
    for (int from = 0; from < peers.ranks; ++from) {
      const Wire* const at = Tile(peers.rank, kScatter, group, from);
#pragma unroll
      for (int v = 0; v < kOfThread; ++v) {
        float part[kVector] = {};
        if (IsThere(group, peers.rank, v)) {
          if (from == peers.rank) {
            Load(args_.x + At(group, from, v), part);
          } else {
            Read(at + InTile(v), part);
          }
        }
#pragma unroll
        for (int j = 0; j < kVector; ++j) sum[v][j] = from == 0 ? part[j] : sum[v][j] + part[j];
      }
    }
#pragma unroll
    for (int v = 0; v < kOfThread; ++v) {
      if (!IsThere(group, peers.rank, v)) continue;
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        sum[v][j] = exchange_.lost() ? NotANumber() : Rounded<Wire>(sum[v][j]);
      }
      for (int i = 1; i < peers.ranks; ++i) {
        const int to = (peers.rank + i) % peers.ranks;
        Store(sum[v], Tile(to, kGather, group, peers.rank) + InTile(v));
      }
      Store(sum[v], args_.sum + At(group, peers.rank, v));
    }
    Announce(kGather, group);
  }

  /// Stores the sums of the others.
  __device__ __forceinline__ void Gather(std::int64_t group) {
    const ExchangePeers& peers = args_.peers;
    Await(kGather, group);
    for (int i = 1; i < peers.ranks; ++i) {
      const int from = (peers.rank + i) % peers.ranks;
      const Wire* const at = Tile(peers.rank, kGather, group, from);
#pragma unroll
      for (int v = 0; v < kOfThread; ++v) {
        float vector[kVector];
        if (!IsThere(group, from, v)) continue;
        Read(at + InTile(v), vector);
        if (exchange_.lost()) {
#pragma unroll
          for (float& value : vector) value = NotANumber();
        }
        Store(vector, args_.sum + At(group, from, v));
      }
    }
  }

 private:
  static constexpr int kScatter = 0, kGather = 1;

  // Groups are of neighbouring tiles; of the last some may end early or be empty.
  __device__ __forceinline__ std::int64_t At(std::int64_t group, int tile, int vector) const {
    return (group * args_.peers.ranks + tile) * kTwoShotTile + InTile(vector);
  }
  __device__ __forceinline__ static int InTile(int vector) {
    return (static_cast<int>(threadIdx.x) + vector * kThreads) * kVector;
  }
  __device__ __forceinline__ bool IsThere(std::int64_t group, int tile, int vector) const {
    return At(group, tile, vector) < args_.count;
  }

  // Of a generation and a shot: in an area behind all packets, then behind all words.
  __device__ __forceinline__ std::int64_t Index(int shot, std::int64_t group, int tile) const {
    const std::int64_t part = (exchange_.epoch() & 1) * 2 + shot;
    return (part * args_.peers.groups + group) * args_.peers.ranks + tile;
  }
  __device__ __forceinline__ std::uint32_t* Words(int of) const {
    const ExchangePeers& peers = args_.peers;
    return reinterpret_cast<std::uint32_t*>(static_cast<uint4*>(peers.areas[of]) +
                                            2 * peers.ranks * peers.slots);
  }
  __device__ __forceinline__ Wire* Tile(int of, int shot, std::int64_t group, int tile) const {
    const ExchangePeers& peers = args_.peers;
    auto* const tiles = reinterpret_cast<float*>(Words(of) + 4 * peers.groups * peers.ranks);
    return reinterpret_cast<Wire*>(tiles + Index(shot, group, tile) * kTwoShotTile);
  }

  // Past the first level of caches, which may hold what was there before.
  __device__ __forceinline__ void Read(const Wire* from, float (&to)[kVector]) const {
    using Bits = std::conditional_t<sizeof(Wire) == 4, uint4, uint2>;
    const Bits bits = __ldcg(reinterpret_cast<const Bits*>(from));
    Load(reinterpret_cast<const Wire*>(&bits), to);
  }

  // A thread a rank: all that the block has sent it before is there.
  __device__ __forceinline__ void Announce(int shot, std::int64_t group) const {
    const ExchangePeers& peers = args_.peers;
    __syncthreads();
    for (int i = 1 + static_cast<int>(threadIdx.x); i < peers.ranks; i += kThreads) {
      FenceSystem();
      const int to = (peers.rank + i) % peers.ranks;
      WriteShared(Words(to) + Index(shot, group, peers.rank), exchange_.epoch());
    }
  }
  __device__ __forceinline__ void Await(int shot, std::int64_t group) {
    const ExchangePeers& peers = args_.peers;
    for (int i = 1 + static_cast<int>(threadIdx.x); i < peers.ranks; i += kThreads) {
      const int from = (peers.rank + i) % peers.ranks;
      if (!exchange_.Await(Words(peers.rank) + Index(shot, group, from), from)) *lost_ = 1;
      FenceSystem();
    }
    __syncthreads();
    if (*lost_ != 0) exchange_.Lose();  // it stays so
  }

  const AllReduceArgs& args_;  // the kernel's parameter
  Exchange& exchange_;
  int* lost_;  // of the block
};

template <class Wire>
__global__ void __launch_bounds__(kThreads, kBlocksOfUnit)
    AllReduceTwoShotKernel(const AllReduceArgs args, const std::int64_t groups) {
  __shared__ Turn turn;
  __shared__ int lost;
  if (threadIdx.x == 0) lost = 0;
  AwaitPrevious();
  Exchange exchange(args.peers, &turn);
  TwoShot<Wire> shots(args, exchange, &lost);
  const std::int64_t step = gridDim.x, end = groups + 2 * step;
  for (std::int64_t group = blockIdx.x; group < end; group += step) {
    if (group < groups) shots.Scatter(group);
    if (group < groups && group + step >= groups) LetNextBegin();
    if (group >= step && group < groups + step) shots.Reduce(group - step);
    if (group >= 2 * step) shots.Gather(group - 2 * step);
  }
  exchange.End();
}

}  // namespace

std::int64_t TwoShotGroups(std::int64_t count, int ranks) {
  return CeilDiv(count, std::int64_t{kTwoShotTile} * ranks);
}

cudaError_t AllReduceTwoShot(const AllReduceArgs& args, LaunchStream stream) {
  const std::int64_t groups = TwoShotGroups(args.count, args.peers.ranks);
  const std::int64_t most = std::int64_t{args.units} * kBlocksOfUnit;
  return WithValue(args.wire, [&]<class Wire>(Wire) {
    return Launch(&AllReduceTwoShotKernel<Wire>, Blocks(groups < most ? groups : most), kThreads,
                  stream, args, groups);
  });
}

}  // namespace culet::cuda_ops
