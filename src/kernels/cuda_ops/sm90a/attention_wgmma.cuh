// Attention of prompts on Hopper's warpgroup products, after FlashAttention-3 (Shah et al., 2024):
// a block takes 128 queries of one sequence and key-value head, rows and the heads of their group
// together. A producer warpgroup loads keys and values through the block table into a ring of
// shared memory: by TMA, a box of keys of one cache block at a time, or E4M3 codes by 16-byte
// copies, which it converts to float16. Two warpgroups multiply, 64 queries each. A warpgroup
// starts the scores of the next keys before it uses the current ones, and the two alternate, so
// that one's products overlap the other's softmax.
#pragma once

#include <algorithm>

#include "kernels/cuda_ops/sm90a/attention_wgmma_consumer.cuh"
#include "kernels/cuda_ops/sm90a/attention_wgmma_producer.cuh"
#include "sm90/tensor_map.h"

namespace culet::cuda_ops {

/// Requires: K and V of Cache, and what LaunchWgmma sets.
template <class Cache, int kDim>
__global__ void __launch_bounds__(WgmmaKernel<Cache, kDim>::kThreads, 1)
    AttentionWgmma(const __grid_constant__ WgmmaArgs args) {
  using Kernel = WgmmaKernel<Cache, kDim>;
  const int thread = static_cast<int>(threadIdx.x);
  extern __shared__ __align__(1024) char swizzled_shared[];
  const WgmmaMemory<Cache, kDim> memory{swizzled_shared};
  if (thread == 0) {
    if constexpr (Kernel::kCodes) {
      memory.ring().InitFull(2);  // a warp for each half of the keys, or of the values
    } else {
      sm90::PrefetchTensorMap(&args.k);
      sm90::PrefetchTensorMap(&args.v);
      memory.ring().InitFull(sm90::FullArrivals());
    }
    memory.ring().InitEmpty(sm90::EmptyArrivals(4 * Kernel::kWarpgroups, 1));
    memory.works().InitFull(128);
    memory.works().InitEmpty(sm90::EmptyArrivals(4 * Kernel::kWarpgroups, 1));
    sm90::BarrierInitFence();
  }
  __syncthreads();
  WaitForPrevious();
  const int role = sm90::WarpUniform(thread / 128);
  if (role == 0) {
    sm90::RegistersDown<Kernel::kProducerRegisters>();
    WgmmaProducer<Cache, kDim> producer{.args = args, .memory = memory, .thread = thread};
    producer.Run();
  } else {
    sm90::RegistersUp<Kernel::kConsumerRegisters>();
    WgmmaConsumer<Cache, kDim> consumer{.args = args,
                                        .memory = memory,
                                        .warpgroup = role - 1,
                                        .thread = thread % 128,
                                        .lane = thread % 32};
    consumer.Run();
  }
}

template <class Cache, int kDim>
cudaError_t LaunchWgmmaOf(const AttentionArgs& given, LaunchStream stream) {
  const AttentionParams& p = given.params;
  WgmmaArgs args;
  args.attention = given;
  args.box = WgmmaBox(given.table == nullptr ? 0 : p.block_size);
  args.boxes = WgmmaKeys(kDim) / args.box;
  const std::int64_t units = TileBlocks(p, given.rows, given.sequences, kWgmmaQueries);
  const std::int64_t all = units * given.plan.tiles.most;
  if (all >= std::int64_t{1} << 31) return cudaErrorInvalidValue;
  args.units = static_cast<int>(units);
  args.group = sm90::Divisor(p.heads / p.kv_heads);
  args.kv_heads = sm90::Divisor(p.kv_heads);
  args.all_units = sm90::Divisor(args.units);
  sm90::TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(p.head_dim);
  plan.outer = static_cast<std::uint64_t>(p.kv_heads);
  plan.rank = 3;
  plan.depth = static_cast<std::uint64_t>(given.key_rows);
  plan.pitch_bytes = plan.inner * 2;
  plan.depth_bytes = plan.outer * plan.pitch_bytes;
  plan.box_inner = 64;
  plan.box_outer = 1;
  plan.box_depth = static_cast<std::uint32_t>(args.box);
  plan.element_bytes = 2;
  using Kernel = WgmmaKernel<Cache, kDim>;
  if (!Kernel::kCodes && (!sm90::EncodeTensorMap(plan, given.k, &args.k) ||
                          !sm90::EncodeTensorMap(plan, given.v, &args.v))) {
    return cudaErrorInvalidValue;
  }
  return LaunchShared(&AttentionWgmma<Cache, kDim>,
                      Blocks(std::min<std::int64_t>(all, given.plan.wgmma_blocks)),
                      Kernel::kThreads, Kernel::kShared, stream, args);
}

template <class Cache>
cudaError_t LaunchWgmma(const AttentionArgs& args, LaunchStream stream) {
  return WithHeadDim(args.params.head_dim, [&]<int kDim>(std::integral_constant<int, kDim>) {
    return LaunchWgmmaOf<Cache, kDim>(args, stream);
  });
}

template <class Cache>
cudaError_t AllowWgmma(int head_dim) {
  return WithHeadDim(head_dim, []<int kDim>(std::integral_constant<int, kDim>) {
    return AllowShared(&AttentionWgmma<Cache, kDim>, WgmmaKernel<Cache, kDim>::kShared);
  });
}

}  // namespace culet::cuda_ops
