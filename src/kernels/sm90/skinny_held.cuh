// Skinny launches whose weights are all in shared memory, or on their way, before their turn comes:
// small products of a model's step, whose CTAs wait for the kernel before. Then nothing but latency
// is left. Code that runs once comes from memory too, and each jump in it waits, so these kernels
// hold nothing that such a launch does not need, and go straight on from the wait to the end.
#pragma once

#include "kernels/sm90/skinny_fused.cuh"
#include "kernels/sm90/skinny_kernel.cuh"

namespace culet::sm90 {

/// As SkinnyGemm, of warps that have kDepth k-blocks each, with a plain epilogue, under
/// programmatic dependent launch.
template <class C>
__global__ void __launch_bounds__(kSkinnyMaxThreads, 1)
    SkinnyHeldGemm(const __grid_constant__ SkinnyParams p) {
  uint8_t* const shared_base = SharedBase();
  if (p.early_next != 0) GridDependencyLaunch();
  const uint32_t lane = threadIdx.x;
  const int splits = blockDim.y;
  const int part = WarpUniform(threadIdx.y), group = WarpUniform(threadIdx.z);
  // Groups behind the last row multiply it once more, and store nothing.
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
  // Always; a branch keeps what stands before it there.
  if (p.early_weights != 0) GridDependencyWait();
  if (p.early_next == 0) GridDependencyLaunch();
  activations.Read();
  warp.MultiplyHeld();
  __syncwarp();
  warp.PutSums(reinterpret_cast<float*>(ring));
  __syncthreads();
  SkinnyFinish<C>(p, reinterpret_cast<const float*>(rings), splits, row0, thread, end, nullptr);
}

/// As SkinnyFusedGemm, likewise, where each lane norms one vector.
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
