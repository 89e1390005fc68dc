// Products by codes for few tokens on Hopper. A CTA computes kRows rows of the weight by up to
// kTokens tokens. One warp brings both by bulk copies, a stage of kBlockK elements of each row at a
// time, as many stages ahead as shared memory holds: a row's piece is contiguous, and so is a
// token's. Other warps bring the scales of a stage and make FP32 of them. The warps that multiply
// share a stage along K, and so nothing that they need comes from further than shared memory.
//
// Parts of K are the blocks of a cluster, which add their sums from each other's shared memory.
#pragma once

#include <string>

#include "kernels/cuda_ops/cluster.cuh"
#include "kernels/cuda_ops/code_bulk_loads.cuh"
#include "kernels/cuda_ops/code_finish.cuh"
#include "kernels/cuda_ops/code_nans.cuh"
#include "kernels/cuda_ops/mma.cuh"

namespace culet::cuda_ops {

/// A warp that multiplies: rows [row, row + kWarpRows) of the CTA by slice `slice` of each stage.
template <class C>
struct BulkSums {
  const BulkMemory<C> memory;
  const int slice, row, last_token;
  float sums[C::kSubTiles][C::kOctets][4] = {};
  NanRows<typename C::Codes, C::kSubTiles> nans = {};

  // A lane's scales and zero points of rows r and r + 8 of a sub-tile.
  struct Scale {
    float scale[2];
    std::uint32_t zero[2];
  };

  __device__ __forceinline__ void Multiply(int stage) {
    bool broken = false;
    if constexpr (C::Codes::kZeros) {
#pragma unroll
      for (int i = 0; i < C::kSliceGroups; ++i) {
        broken |= memory.Broken(stage, slice * C::kGroups / C::kSlices + i) != 0;
      }
    }
    if (broken) {
      MultiplyColumns<false>(stage);
    } else {
      MultiplyColumns<true>(stage);
    }
  }

 private:
  __device__ __forceinline__ Scale LoadScale(int stage, int column, int s) const {
    const int r = static_cast<int>(threadIdx.x) % 32 / 4;
    const std::uint32_t* const from =
        memory.Scales(stage) +
        ((slice * C::kSliceK / C::kColumnK + column) * C::kRows + row + 16 * s + 2 * r) *
            C::kScaleWords;
    if constexpr (C::Codes::kZeros) {
      const uint4 both = *reinterpret_cast<const uint4*>(from);
      return {{__uint_as_float(both.x), __uint_as_float(both.z)}, {both.y, both.w}};
    } else {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      return {{__uint_as_float(both.x), __uint_as_float(both.y)}, {0, 0}};
    }
  }

  // kWhole: zero points are subtracted from codes. Else they are multiplied by the sums of the
  // tokens, which ones find.
  template <bool kWhole>
  __device__ __forceinline__ void MultiplyColumns(int stage) {
    using T = typename C::T;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t weights =
        SharedAddress(memory.Weights(stage)) +
        static_cast<std::uint32_t>((row + lane % 16) * C::kRowPitch + slice * 64 + lane / 16 * 16);
    const char* tokens[C::kOctets];
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      // Those beyond the last are the last again: no one reads their sums.
      tokens[t] = memory.Tokens(stage) + min(8 * t + lane / 4, last_token) * C::kTokenPitch +
                  (slice * C::kSliceK + lane % 4 * (C::kChunkK / 4)) * 2;
    }
    std::uint32_t words[C::kSubTiles][4];  // of two chunks
    Scale own[C::kSubTiles];
    float parts[C::kSubTiles][C::kOctets][4], ones[C::kOctets][4];
#pragma unroll C::kUnrolled
    for (int chunk = 0; chunk < C::kChunks; ++chunk) {
      if (chunk % C::kColumnChunks == 0) {
        Clear(parts);
        if constexpr (!kWhole) {
#pragma unroll
          for (int t = 0; t < C::kOctets; ++t) Clear(ones[t]);
        }
#pragma unroll
        for (int s = 0; s < C::kSubTiles; ++s) {
          own[s] = LoadScale(stage, chunk / C::kColumnChunks, s);
        }
      }
      if (chunk % 2 == 0) {
#pragma unroll
        for (int s = 0; s < C::kSubTiles; ++s) {
          LoadMatrices(weights + static_cast<std::uint32_t>(s * 16 * C::kRowPitch + chunk * 16),
                       words[s]);
        }
      }
      std::uint32_t b[C::kOctets][C::kChunkK / 8];
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) LoadTokens(tokens[t] + chunk * C::kChunkK * 2, b[t]);
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s) {
        const std::uint32_t upper = words[s][chunk % 2 * 2], lower = words[s][chunk % 2 * 2 + 1];
        nans.Look(s, upper, lower);
        std::uint32_t zeros[2] = {HalfConstants<T>::kMagic, HalfConstants<T>::kMagic};
        if (C::Codes::kZeros && kWhole) zeros[0] = own[s].zero[0], zeros[1] = own[s].zero[1];
        MultiplyStep<0>(parts[s], upper, lower, zeros, b);
        if constexpr (C::Codes::kBits == 4) MultiplyStep<1>(parts[s], upper, lower, zeros, b);
      }
      if constexpr (!kWhole) AddTokens(ones, b);
      if ((chunk + 1) % C::kColumnChunks == 0) Promote<kWhole>(parts, ones, own);
    }
  }

  static __device__ __forceinline__ void Clear(float (&values)[4]) {
#pragma unroll
    for (float& value : values) value = 0;
  }
  static __device__ __forceinline__ void Clear(float (&parts)[C::kSubTiles][C::kOctets][4]) {
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) Clear(parts[s][t]);
    }
  }

  // Neighbouring elements of a token, in the order of the pairs of codes.
  static __device__ __forceinline__ void LoadTokens(const char* from, std::uint32_t (&b)[4]) {
    const uint4 x = *reinterpret_cast<const uint4*>(from);
    b[0] = __byte_perm(x.x, x.z, 0x5410), b[1] = __byte_perm(x.x, x.z, 0x7632);
    b[2] = __byte_perm(x.y, x.w, 0x5410), b[3] = __byte_perm(x.y, x.w, 0x7632);
  }
  static __device__ __forceinline__ void LoadTokens(const char* from, std::uint32_t (&b)[2]) {
    const uint2 x = *reinterpret_cast<const uint2*>(from);
    b[0] = __byte_perm(x.x, x.y, 0x5410), b[1] = __byte_perm(x.x, x.y, 0x7632);
  }

  template <int kStep>
  static __device__ __forceinline__ void MultiplyStep(
      float (&to)[C::kOctets][4], std::uint32_t upper, std::uint32_t lower,
      const std::uint32_t (&zeros)[2], const std::uint32_t (&b)[C::kOctets][C::kChunkK / 8]) {
    using T = typename C::T;
    using Codes = typename C::Codes;
    const std::uint32_t a[4] = {Codes::template Pair<T, 2 * kStep>(upper, zeros[0]),
                                Codes::template Pair<T, 2 * kStep>(lower, zeros[1]),
                                Codes::template Pair<T, 2 * kStep + 1>(upper, zeros[0]),
                                Codes::template Pair<T, 2 * kStep + 1>(lower, zeros[1])};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      MultiplyAdd<T>(to[t], a, b[t][2 * kStep], b[t][2 * kStep + 1]);
    }
  }

  static __device__ __forceinline__ void AddTokens(
      float (&ones)[C::kOctets][4], const std::uint32_t (&b)[C::kOctets][C::kChunkK / 8]) {
    constexpr std::uint32_t kOnes = HalfConstants<typename C::T>::kOnes;
    const std::uint32_t a[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (int i = 0; i < C::kChunkK / 8; i += 2) {
        MultiplyAdd<typename C::T>(ones[t], a, b[t][i], b[t][i + 1]);
      }
    }
  }

  template <bool kWhole>
  __device__ __forceinline__ void Promote(const float (&parts)[C::kSubTiles][C::kOctets][4],
                                          const float (&ones)[C::kOctets][4],
                                          const Scale (&own)[C::kSubTiles]) {
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float part = parts[s][t][j];
          if constexpr (!kWhole) {
            part = fmaf(-__uint_as_float(own[s].zero[j / 2]), ones[t][j], part);
          }
          sums[s][t][j] = fmaf(own[s].scale[j / 2], part, sums[s][t][j]);
        }
      }
    }
  }
};

/// Adds the sums of the slices, then of the cluster's blocks, in their order, and writes D. A block
/// writes its share.
template <class C>
__device__ __forceinline__ void FinishBulk(const CodeProductParams& p, const BulkMemory<C>& memory,
                                           int row0, int token0, int tokens, int split) {
  const int thread = static_cast<int>(threadIdx.x);
  const auto sum_of = [&](int token, int row) {
    float sum = 0;
#pragma unroll
    for (int slice = 0; slice < C::kSlices; ++slice) {
      sum += memory.Sums(slice)[token * C::kSumPitch + row];
    }
    return sum;
  };
  if (p.splits == 1) {
    StoreSums<C>(p, row0, token0, tokens, thread, C::kThreads, sum_of);
    return;
  }
  float* const total = memory.Sums(C::kSlices);
  for (int i = thread; i < tokens * C::kRows; i += C::kThreads) {
    const int token = i / C::kRows, row = i % C::kRows;
    total[token * C::kSumPitch + row] = sum_of(token, row);
  }
  MeetCluster(p.splits);
  const std::uint32_t from = SharedAddress(total);
  StoreSums<C>(p, row0, token0, tokens, split * C::kThreads + thread, p.splits * C::kThreads,
               [&](int token, int row) {
                 const int at = token * C::kSumPitch + row;
                 float sum = 0;
                 for (int s = 0; s < p.splits; ++s) {
                   float part[1];
                   LoadOfCluster(from + static_cast<std::uint32_t>(at * 4), s, part);
                   sum += part[0];
                 }
                 return sum;
               });
  LeaveCluster(p.splits);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtas)
    CodeBulkKernelOf(const __grid_constant__ CodeProductParams p) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row0 = static_cast<int>(blockIdx.x) * C::kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int token0 = static_cast<int>(blockIdx.z) * C::kTokens;
  const int tokens = min(C::kTokens, p.m - token0);
  const BulkMemory<C> memory{
      DynamicShared(), C::kWeightBytes + C::kScaleBytes + min(C::kTokens, p.m) * C::kTokenPitch};
  // Blocks of K of a part differ by one at most.
  const int blocks = (p.k - 1) / C::kBlockK + 1;
  const int first = static_cast<int>(std::int64_t{blocks} * split / p.splits);
  const int count = static_cast<int>(std::int64_t{blocks} * (split + 1) / p.splits) - first;
  const StreamRows rows(p, row0);

  // What no kernel writes may come before the wait.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < p.stages; ++stage) {
      sm90::BarrierInit(memory.Full(stage), 1 + C::kScaleWarps);
      sm90::BarrierInit(memory.Empty(stage), C::kMultipliers);
    }
    sm90::BarrierInitFence();
  }
  __syncthreads();
  const int slice = warp % C::kSlices, row = warp / C::kSlices * C::kWarpRows;
  BulkSums<C> own{memory, slice, row, tokens - 1};
  if (warp < C::kMultipliers) {
    if (p.early) AwaitPrevious();
    if (!p.chain) LetNextBegin();
    BulkCursor at;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
      sm90::BarrierWait(memory.Full(at.stage), at.parity);
      // Slices beyond K are empty.
      if ((first + i) * C::kBlockK + slice * C::kSliceK < p.k) own.Multiply(at.stage);
      __syncwarp();
      if (lane == 0) sm90::BarrierArrive(memory.Empty(at.stage));
      at.Advance(p.stages);
    }
  } else if (warp == C::kMultipliers) {
    BulkCopies<C>{p, memory, rows, token0, tokens, first}.Run(count);
  } else {
    BulkScales<C>{p, memory, rows, warp - C::kMultipliers - 1, first}.Run(count);
  }
  __syncthreads();
  if (warp < C::kMultipliers) {
    own.nans.Spoil(own.sums);
    WriteSums<C>(own.sums, row, memory.Sums(slice));
  }
  __syncthreads();
  FinishBulk<C>(p, memory, row0, token0, tokens, split);
}

/// `name`: the codes and what is said of their groups. `most`: tokens that it is offered.
template <class C>
CodeProductKernel MakeCodeBulk(const char* name, int registers, int most = C::kTokens) {
  return {.id = std::string(name) + HalfConstants<typename C::T>::kName + std::to_string(C::kRows) +
                "x" + std::to_string(C::kTokens) + "k" + std::to_string(C::kBlockK) + "w" +
                std::to_string(C::kMultipliers),
          .function = &CodeBulkKernelOf<C>,
          .codes = C::Codes::kType,
          .x = HalfConstants<typename C::T>::kType,
          .group_step = C::kColumnK,
          .rows = C::kRows,
          .tokens = C::kTokens,
          .most = most,
          .block_k = C::kBlockK,
          .stages = C::kMaxStages,
          .ctas = C::kCtas,
          .streams = true,
          .registers = registers,
          .stage_bytes = C::kWeightBytes + C::kScaleBytes,
          .token_bytes = C::kTokenPitch,
          .scale_bytes = C::kFrontBytes,
          .sum_bytes = C::kSumBytes,
          .warps = C::kWarps,
          .rings = 1,
          .bulk = true};
}

}  // namespace culet::cuda_ops
