// FusedHeads: sixteen lanes a head, eight heads of a row a block.
#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/heads.cuh"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = kHeadLanes, kWide = kHeadWide;
constexpr int kHeads = kThreads / kLanes;
constexpr int kKept = kMostHeadDim / (kLanes * kWide);  // vectors of a lane

template <class T, class Cache>
__global__ void __launch_bounds__(kThreads)
    FusedHeadsKernel(const __grid_constant__ FusedHeadsArgs args) {
  __shared__ float sines[kMostHeadDim / 2], cosines[kMostHeadDim / 2];
  const std::int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int head = static_cast<int>(blockIdx.y) * kHeads + static_cast<int>(threadIdx.x) / kLanes;
  const int all = args.heads + 2 * args.kv_heads, size = args.head_dim, half = args.rope.half;
  const bool is_q = head < args.heads, is_value = head >= args.heads + args.kv_heads;
  const bool there = head < all;
  float gamma[kKept][kWide] = {};
  const bool norm = args.q_gamma != nullptr && !is_value && there;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int at = (i * kLanes + lane) * kWide; norm && at < size) {
      LoadStored(is_q ? args.q_gamma : args.k_gamma, is_q ? args.q_gamma_type : args.k_gamma_type,
                 at, gamma[i]);
    }
  }
  static_assert(kThreads >= kMostHeadDim / 2);
  const int frequency = static_cast<int>(threadIdx.x);  // whose sine and cosine it makes
  const double turn = frequency < half ? args.rope.turns[frequency] : 0;
  WaitForPrevious();
  // All loads are issued before the first wait for one.
  const double position = args.rope.positions[row];
  std::int64_t slot = 0;
  if (there && !is_q) slot = (is_value ? args.value_slots : args.key_slots)[row];
  float scale = 1;  // of the head in its cache
  if constexpr (std::is_same_v<Cache, __nv_fp8_e4m3>) {
    if (there && !is_q) {
      const int first = args.heads + (is_value ? args.kv_heads : 0);
      scale = (is_value ? args.value_scales : args.key_scales)[head - first];
    }
  }
  float x[kKept][kWide] = {};
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (const int at = (i * kLanes + lane) * kWide; there && at < size) {
      Load(static_cast<const T*>(args.qkv) + (row * all + head) * size + at, x[i]);
    }
  }
  if (frequency < half) {
    float s, c;
    SineCosine(position * turn, &s, &c);
    sines[frequency] = s * args.rope.attention_factor;
    cosines[frequency] = c * args.rope.attention_factor;
  }
  NormHead<T>(x, gamma, norm, size, is_q ? args.q_epsilon : args.k_epsilon);
  __syncthreads();
  TurnHead<T>(x, there && !is_value, args.rope.layout, half, sines, cosines);
  if (!there) return;
  if (!is_q && (slot < 0 || slot >= args.cache_rows)) return;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    const int at = (i * kLanes + lane) * kWide;
    if (at >= size) continue;
    if (is_q) {
      Store(x[i], static_cast<T*>(args.out) + (row * args.heads + head) * size + at);
    } else {
      const int kv_head = head - args.heads - (is_value ? args.kv_heads : 0);
      Cache* const to = static_cast<Cache*>(is_value ? args.values : args.keys);
      StoreCached(x[i], to + (slot * args.kv_heads + kv_head) * size + at, scale);
    }
  }
}

}  // namespace

cudaError_t FusedHeads(const FusedHeadsArgs& args, LaunchStream stream) {
  if (args.rows == 0) return cudaSuccess;
  return WithValue(args.type, [&]<class T>(T) {
    return WithCached(args.cache_type, [&]<class Cache>(Cache) {
      return Launch(&FusedHeadsKernel<T, Cache>,
                    Blocks(args.rows, CeilDiv(args.heads + 2 * args.kv_heads, kHeads)), kThreads,
                    stream, args);
    });
  });
}

}  // namespace culet::cuda_ops
