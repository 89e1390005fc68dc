// Skinny launches whose weights are all loading, or loaded, before the wait for the previous kernel
// ends: small products of a model's step. Only latency is left then. Code that runs once comes from
// memory, too, and each jump waits for it. So these kernels contain only what such a launch needs,
// and run straight from the wait to the end.
#pragma once

#include "kernels/sm90/skinny/fused.cuh"
#include "kernels/sm90/skinny/kernel.cuh"

namespace culet::sm90 {

/// SkinnyGemm for warps with kDepth k-blocks each, with a plain epilogue, under programmatic
/// dependent launch.
template <class C>
__global__ void __launch_bounds__(kSkinnyMaxThreads, 1)
    SkinnyHeldGemm(const __grid_constant__ SkinnyParams p) {
  uint8_t* const shared_base = SharedBase();
  if (p.early_next != 0) GridDependencyLaunch();
  const uint32_t lane = threadIdx.x;
  const int splits = blockDim.y;
  const int part = WarpUniform(threadIdx.y), group = WarpUniform(threadIdx.z);
  // Groups behind the last row multiply that row again and store nothing.
  const int row0 = (blockIdx.x * blockDim.z + group) * C::kRows;
  const int warp_bytes = C::kDepth * p.slot_bytes, first = part * C::kDepth;
  uint8_t* const rings = shared_base + group * splits * warp_bytes;
  uint8_t* const ring = rings + part * warp_bytes;
  const int thread = part * 32 + int(lane);
  SkinnyWarp<C> warp(p, SharedAddress(ring), row0, lane, first);
#pragma unroll 1
  for (int i = 0; i < C::kDepth; ++i) warp.FetchWeights(warp.Slot(i));
  CopyAsyncCommit();
  const SkinnyFirst<C> activations(p, SharedAddress(ring), lane, first, C::kDepth);
  const SkinnyEnd<C> end(p, row0, thread);
  warp.Keep();
  // Always true: the branch keeps the compiler from moving the code above below it.
  if (p.early_weights != 0) GridDependencyWait();
  if (p.early_next == 0) GridDependencyLaunch();
  activations.Read();
  warp.MultiplyHeld();
  __syncwarp();
  warp.PutSums(reinterpret_cast<float*>(ring));
  __syncthreads();
  SkinnyFinish<C>(p, reinterpret_cast<const float*>(rings), splits, row0, thread, end, nullptr);
}

/// The same of SkinnyFusedGemm, where each lane normalises one vector.
template <class C>
__global__ void __launch_bounds__(kSkinnyMaxThreads, 1)
    SkinnyHeldFusedGemm(const __grid_constant__ FusedSkinnyParams p) {
  uint8_t* const shared_base = SharedBase();
  if (p.early_next != 0) GridDependencyLaunch();
  const uint32_t lane = threadIdx.x;
  const int splits = blockDim.y;
  const int part = WarpUniform(threadIdx.y), group = WarpUniform(threadIdx.z);
  const int row0 = (blockIdx.x * blockDim.z + group) * C::kRows;
  const int warp_bytes = C::kDepth * p.slot_bytes, first = part * C::kDepth;
  uint8_t* const rings = shared_base + group * splits * warp_bytes;
  uint8_t* const ring = rings + part * warp_bytes;
  const int thread = part * 32 + int(lane);
  SkinnyWarp<C> warp(p, SharedAddress(ring), row0, lane, first);
#pragma unroll 1
  for (int i = 0; i < C::kDepth; ++i) warp.FetchWeights(warp.Slot(i));
  CopyAsyncCommit();
  const SkinnyNorm<typename C::Format> norm(p, shared_base, group * splits + part,
                                            splits * int(blockDim.z), int(lane));
  const SkinnyEnd<C> end(p, row0, thread);
  warp.SetTile(p, SharedAddress(shared_base), first);
  warp.Keep();
  norm.MakeHeld([&] {
    if (p.early_weights != 0) GridDependencyWait();
    if (p.early_next == 0) GridDependencyLaunch();
  });
  warp.MultiplyHeld();
  __syncwarp();
  warp.PutSums(reinterpret_cast<float*>(ring));
  __syncthreads();
  const float* const sums = reinterpret_cast<const float*>(rings);
  if constexpr (C::kGated) {
    SkinnyFinishGated<C>(p, sums, splits, row0, thread, end);
  } else {
    SkinnyFinish<C>(p, sums, splits, row0, thread, end, nullptr);
  }
}

}  // namespace culet::sm90
