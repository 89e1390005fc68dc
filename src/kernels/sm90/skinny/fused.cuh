// Products with few rows, fused with the norm before them, which makes A, and with SwiGLU behind
// them. Products and sums are those of skinny/kernel.cuh.
#pragma once

#include <cstdint>

#include "kernels/cuda_ops/values.cuh"
#include "kernels/sm90/skinny/kernel.cuh"
#include "kernels/sm90/skinny/norm.cuh"

namespace culet::sm90 {

/// SkinnyFinish where columns of D are SwiGLU of gate and up. Both are rounded to D's type first,
/// as if they had been stored.
template <class C>
__device__ __forceinline__ void SkinnyFinishGated(const SkinnyParams& p, const float* sums,
                                                  int splits, int row0, int thread,
                                                  SkinnyEnd<C> end) {
  const OutputType type = end.Type();
  const auto rounded = [&](float v) {
    return type == OutputType::kF32 ? v : UnpackOutput(type, PackOutput(type, v, 0.0f)).x;
  };
  const auto swiglu = [&](float gate, float up) {
    return cuda_ops::Silu(rounded(gate)) * rounded(up);
  };
#pragma unroll 1
  for (int i = thread; i < end.pairs;) {
    if (end.columns > 0) {
      const int token = i / end.kPairs, column = i % end.kPairs * 2;
      // Groups of eight gates and eight ups alternate.
      const float* from = sums + token * C::kSumStride + column / 8 * 16 + column % 8;
      float2 gate = make_float2(0.0f, 0.0f), up = gate;
#pragma unroll 1
      for (int s = 0; s < splits; s += 4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (s + i < splits) {
            const float2 g = *reinterpret_cast<const float2*>(from);
            const float2 u = *reinterpret_cast<const float2*>(from + 8);
            gate.x += g.x, gate.y += g.y, up.x += u.x, up.y += u.y;
          }
          from += end.warp_floats;
        }
      }
      SkinnyStore(end.to, type, make_float2(swiglu(gate.x, up.x), swiglu(gate.y, up.y)), true);
    }
    i += splits * 32;
    if (i < end.pairs) end.Find(p, row0, i);
  }
}

/// Threads are (32, warps along K, groups of rows), as in SkinnyGemm. Alpha is 1. A general
/// epilogue adds at most a bias.
template <class C>
__global__ void __launch_bounds__(kSkinnyMaxThreads, 1)
    SkinnyFusedGemm(const __grid_constant__ FusedSkinnyParams p) {
  uint8_t* const shared_base = SharedBase();
  const bool early = p.early_weights != 0;
  if (p.early_next != 0) GridDependencyLaunch();
  const uint32_t lane = threadIdx.x;
  const int splits = blockDim.y;
  const int part = WarpUniform(threadIdx.y), group = WarpUniform(threadIdx.z);
  const int row0 = (blockIdx.x * blockDim.z + group) * C::kRows;
  // A group behind the last row only takes part in the norm.
  const int count = row0 < p.n ? p.blocks_each + (part < p.blocks_rest ? 1 : 0) : 0;
  const int first = part * p.blocks_each + min(part, p.blocks_rest);
  const int warp_bytes = C::kDepth * p.slot_bytes;
  uint8_t* const rings = shared_base + group * splits * warp_bytes;
  uint8_t* const ring = rings + part * warp_bytes;
  SkinnyWarp<C> warp(p, SharedAddress(ring), row0, lane, first);
  const SkinnyNorm<typename C::Format> norm(p, shared_base, group * splits + part,
                                            splits * int(blockDim.z), int(lane));
  norm.FetchGamma(
      [](uint8_t* to, const uint8_t* from) { CopyShared(SharedAddress(to), from, true); });
  CopyAsyncCommit();
#pragma unroll 1
  for (int i = 0; i < C::kDepth; ++i) {
    if (i < count) warp.FetchWeights(warp.Slot(i));
    CopyAsyncCommit();
  }
  const int thread = part * 32 + int(lane);
  const SkinnyEnd<C> end(p, row0, thread);
  CopyAsyncWait<C::kDepth>();
  __syncthreads();  // gamma has arrived
  norm.Make([&] {
    if (!early) return;
    GridDependencyWait();
    if (p.early_next == 0) GridDependencyLaunch();
  });
  warp.SetTile(p, SharedAddress(shared_base), first);
  warp.Clear();
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    CopyAsyncWait<C::kDepth - 1>();
    __syncwarp();
    warp.Multiply(warp.Slot(i), [&] {
      __syncwarp();
      if (i + C::kDepth < count) warp.FetchWeights(warp.Slot(i));
      CopyAsyncCommit();
    });
  }
  __syncwarp();
  warp.PutSums(reinterpret_cast<float*>(ring));
  __syncthreads();
  const float* const sums = reinterpret_cast<const float*>(rings);
  if constexpr (C::kGated) {
    SkinnyFinishGated<C>(p, sums, splits, row0, thread, end);
  } else {
    const SkinnyFactors factors(p);
    SkinnyFinish<C>(p, sums, splits, row0, thread, end, &factors);
  }
}

}  // namespace culet::sm90
