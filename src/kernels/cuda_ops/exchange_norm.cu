// AllReduceNorm: a cluster of blocks a row, each with a part of it.
#include "kernels/cuda_ops/cluster.cuh"
#include "kernels/cuda_ops/exchange.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/quantize.cuh"
#include "kernels/cuda_ops/rms_norm.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kMostThreads = 512, kMostCluster = 8, kMostRows = 64;
constexpr int kWarps = kMostThreads / kWarp;
constexpr int kGroupVectors = kQuantGroup / kVector;  // a group of codes is a warp's vector

// How rows are shared: blocks of a row, vectors and threads of a block. No blocks: not at all.
struct Shares {
  int blocks = 0, vectors = 0, threads = 0;
};

// All blocks run at once, with one on a multiprocessor for certain. What a multiprocessor sends in
// a time is limited, hence as many for a row as there may be.
Shares SharesOf(std::int64_t rows, int width, int units) {
  const int vectors = width / kVector;
  if (rows < 1 || rows > kMostRows || width < 1 || width % 8 != 0) return {};
  int blocks = CanOverlap() ? kMostCluster : 1;
  while (blocks > 1 && (rows * blocks > units || (blocks - 1) * kGroupVectors >= vectors)) {
    blocks /= 2;
  }
  if (rows * blocks > units) return {};
  Shares shares;
  shares.blocks = blocks;
  shares.vectors =
      static_cast<int>(CeilDiv(CeilDiv(vectors, blocks), kGroupVectors) * kGroupVectors);
  shares.threads = static_cast<int>(CeilDiv(CeilDiv(shares.vectors, kVectors), kWarp) * kWarp);
  return shares.threads <= kMostThreads ? shares : Shares{};
}

// In dynamic shared memory, whose other blocks' a block reads: the sums of its warps, zero beyond
// the last.
struct alignas(16) Scratch {
  float squares[kWarps];
  Turn turn;
};

// The sum over the cluster in all of its threads, in an order that depends on nothing else.
__device__ __forceinline__ float SumOfCluster(Scratch* scratch, float sum, int blocks) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  sum = SumLanes<kWarp>(sum);
  if (lane == 0) scratch->squares[threadIdx.x / kWarp] = sum;
  MeetCluster(blocks);
  constexpr int kLanes = kWarps / 4;  // of a block's sums
  static_assert(kLanes * kMostCluster == kWarp);
  float four[4] = {};
  if (lane / kLanes < blocks) {
    LoadOfCluster(SharedAddress(scratch->squares + lane % kLanes * 4), lane / kLanes, four);
  }
  return SumLanes<kWarp>((four[0] + four[1]) + (four[2] + four[3]));
}

// Codes of a warp's vector, a group.
__device__ __forceinline__ void StoreGroup(const float (&v)[kVector], bool there, std::int64_t row,
                                           int at, int width, const CodesTo& to) {
  unsigned most = 0;
#pragma unroll
  for (const float value : v) most = max(most, __float_as_uint(value) & 0x7FFFFFFFu);
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    most = max(most, __shfl_xor_sync(kAllLanes, most, offset));
  }
  const float scale = ScaleOfLargest(most);
  if (!there) return;
  unsigned packed = 0;
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const float2 pair = make_float2(__fdiv_rn(v[i], scale), __fdiv_rn(v[i + 1], scale));
    packed |= static_cast<unsigned>(__nv_cvt_float2_to_fp8x2(pair, __NV_SATFINITE, __NV_E4M3))
              << (8 * i);
  }
  *reinterpret_cast<unsigned*>(to.codes + row * width + at) = packed;
  if (at % kQuantGroup == 0) {
    to.scales[row * ((width + kQuantGroup - 1) / kQuantGroup) + at / kQuantGroup] = scale;
  }
}

template <class Wire, class Out, bool kCodes>
__global__ void __launch_bounds__(kMostThreads)
    AllReduceNormKernel(const AllReduceNormArgs args, const int share) {
  const FusedNormArgs& norm = args.norm;
  auto* const scratch = reinterpret_cast<Scratch*>(DynamicShared());
  const int blocks = static_cast<int>(gridDim.y), threads = static_cast<int>(blockDim.x);
  const int thread = static_cast<int>(threadIdx.x), vectors = norm.width / kVector;
  const std::int64_t row = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * share;
  const int end = min(first + share, vectors);
  float gamma[kEach] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    float vector[kVector];
    const int at = first + thread + i * threads;
    if (at >= end) continue;
    LoadStored(norm.gamma, norm.gamma_type, at * kVector, vector);
#pragma unroll
    for (int j = 0; j < kVector; ++j) gamma[i * kVector + j] = vector[j];
  }
  if (thread < kWarps) scratch->squares[thread] = 0;
  AwaitPrevious();
  const std::int64_t start = row * norm.width;
  float x[kEach], y[kEach] = {};
  LoadVectors(static_cast<const float*>(norm.x) + start, first + thread, threads, end, x);
  if (norm.y != nullptr) {
    LoadVectors(static_cast<const float*>(norm.y) + start, first + thread, threads, end, y);
  }
  Exchange exchange(args.peers, &scratch->turn);
  const std::int64_t slot = (row * blocks + blockIdx.y) * kPackets<Wire> * threads + thread;
  exchange.Push<Wire>(x, slot, threads);
  LetNextBegin();
  exchange.Sum<Wire>(x, slot, threads);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (norm.y != nullptr) x[i] = y[i] + x[i];
    squares = fmaf(x[i], x[i], squares);
  }
  if (norm.sum != nullptr) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = first + thread + i * threads;
      float vector[kVector];
      TakeVector(x, i, vector);
      if (at < end) Store(vector, static_cast<float*>(norm.sum) + start + at * kVector);
    }
  }
  const float scale = NormScale(SumOfCluster(scratch, squares, blocks), norm.width, norm.epsilon);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int at = first + thread + i * threads;
    const bool there = at < end;
    float vector[kVector];
    TakeVector(x, i, vector);
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      vector[j] = Rounded<Out>(vector[j] * scale * gamma[i * kVector + j]);
    }
    if (there && norm.out != nullptr) {
      Store(vector, static_cast<Out*>(norm.out) + start + at * kVector);
    }
    if constexpr (kCodes) StoreGroup(vector, there, row, at * kVector, norm.width, norm.to);
  }
  exchange.End();
  LeaveCluster(blocks);
}

}  // namespace

std::int64_t AllReduceNormSlots(std::int64_t rows, int width, DataType wire, int units) {
  const Shares shares = SharesOf(rows, width, units);
  const int packets = wire == DataType::kFloat32 ? kPackets<float> : kPackets<__nv_bfloat16>;
  return rows * shares.blocks * packets * shares.threads;
}

cudaError_t AllReduceNorm(const AllReduceNormArgs& args, LaunchStream stream) {
  const Shares shares = SharesOf(args.norm.rows, args.norm.width, args.units);
  if (shares.blocks == 0) return cudaErrorInvalidValue;
  return WithValue(args.wire, [&]<class Wire>(Wire) {
    return WithValue(args.norm.out_type, [&]<class Out>(Out) {
      return LaunchClusters(args.norm.to.codes != nullptr ? &AllReduceNormKernel<Wire, Out, true>
                                                          : &AllReduceNormKernel<Wire, Out, false>,
                            Blocks(args.norm.rows, shares.blocks), shares.threads,
                            static_cast<int>(sizeof(Scratch)), shares.blocks, stream, args,
                            shares.vectors);
    });
  });
}

}  // namespace culet::cuda_ops
