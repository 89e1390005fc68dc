// Router: one cluster, whose blocks have 16 experts each at a time. The weights of the first ones
// wait in registers for the tokens. A single token is normalised by every block, more of them by
// one block each. The first block of the cluster routes.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda_ops/router.h"

#include "kernels/cuda_ops/cluster.cuh"
#include "kernels/cuda_ops/fused_norm.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/route.cuh"

namespace culet::cuda_ops {
namespace {

// With twice as many no block fits beside one of the kernel before, for want of registers.
constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kExperts = 16;   // of a block at a time: rows of a product of the tensor core
constexpr int kGroup = 32;     // of a row, that a warp takes at a time: 8 elements a lane
constexpr int kRowFloats = 8;  // tokens of a product
constexpr int kPrefetch = 4096;

// A lane's weights of a group: of experts `lane / 4` and 8 more the elements from 8 (lane % 4) on.
// In this order of K, which is the tokens', too, they are two products' operands.
struct GroupWeights {
  uint4 low, high;
};

struct RouterShape {
  int width, groups, turns;  // groups of a row; that a warp takes of it
  std::int64_t experts;
};

__device__ __forceinline__ GroupWeights LoadWeights(const __nv_bfloat16* weight,
                                                    const RouterShape& shape, int first_expert,
                                                    int group, int lane) {
  const int at = group * kGroup + lane % 4 * 8;
  const auto load = [&](int expert) {
    if (expert >= shape.experts || at >= shape.width) return make_uint4(0, 0, 0, 0);
    return *reinterpret_cast<const uint4*>(weight + std::int64_t{expert} * shape.width + at);
  };
  return {load(first_expert + lane / 4), load(first_expert + lane / 4 + 8)};
}

// Eight elements of a token in parts of bfloat16, of which the sum is exact.
template <class T>
struct TokenParts;
template <>
struct TokenParts<__nv_bfloat16> {
  static constexpr int kParts = 1;
  uint4 part[1];
  __device__ __forceinline__ void Load(const __nv_bfloat16* from) {
    part[0] = *reinterpret_cast<const uint4*>(from);
  }
};
template <>
struct TokenParts<float> {
  static constexpr int kParts = 3;
  uint4 part[3];
  __device__ __forceinline__ void Load(const float* from) {
    float x[8];
    cuda_ops::Load(from, x);
#pragma unroll
    for (int p = 0; p < kParts; ++p) {
      part[p] =
          make_uint4(Upper(x[0], x[1]), Upper(x[2], x[3]), Upper(x[4], x[5]), Upper(x[6], x[7]));
    }
  }

 private:
  // The upper halves of two numbers, which keep the rest.
  __device__ __forceinline__ static std::uint32_t Upper(float& x, float& y) {
    const std::uint32_t pair = __byte_perm(__float_as_uint(x), __float_as_uint(y), 0x7632);
    x = Rest(x), y = Rest(y);
    return pair;
  }
  __device__ __forceinline__ static float Rest(float x) {
    const std::uint32_t bits = __float_as_uint(x);
    const bool finite = (bits & 0x7F800000u) != 0x7F800000u;
    return finite ? x - __uint_as_float(bits & 0xFFFF0000u) : 0.0f;
  }
};

// Adds a group's products to the sums of all tokens: experts by tokens, as the tensor core has
// them.
template <class T, int kTiles>
__device__ __forceinline__ void AddGroup(float (&sum)[kTiles][4], const GroupWeights& weights,
                                         const T* x, int rows, const RouterShape& shape, int group,
                                         int lane) {
  const int at = group * kGroup + lane % 4 * 8;
  const std::uint32_t first[4] = {weights.low.x, weights.high.x, weights.low.y, weights.high.y};
  const std::uint32_t second[4] = {weights.low.z, weights.high.z, weights.low.w, weights.high.w};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    TokenParts<T> token = {};
    const int row = tile * kRowFloats + lane / 4;
    if (row < rows && at < shape.width) token.Load(x + std::int64_t{row} * shape.width + at);
#pragma unroll
    for (int p = 0; p < TokenParts<T>::kParts; ++p) {
      MultiplyAdd<__nv_bfloat16>(sum[tile], first, token.part[p].x, token.part[p].y);
      MultiplyAdd<__nv_bfloat16>(sum[tile], second, token.part[p].z, token.part[p].w);
    }
  }
}

// Where things lie in shared memory.
template <class T, int kTiles>
struct RouterLayout {
  static constexpr int kTokens = kTiles * kRowFloats;
  static constexpr int kIdsAt = 0, kWarpsAt = kFewRoutes * 4, kSumsAt = kWarpsAt + kWarps * 4;
  static constexpr int kRowAt = kSumsAt + kWarps * kExperts * kTokens * 4;  // of a single token
};

// `T`: of the product's input. kHeld groups of a warp are loaded before the wait.
template <class T, int kTiles, bool kCodes, bool kOne>
__global__ void __launch_bounds__(kThreads, 1) RouterKernel(const RouterArgs args) {
  using Layout = RouterLayout<T, kTiles>;
  constexpr int kHeld = kTiles == 1 && !kCodes ? 8 : 4;
  char* const shared = DynamicShared();
  auto* const sums = reinterpret_cast<float*>(shared + Layout::kSumsAt);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int rank = static_cast<int>(blockIdx.y), rows = static_cast<int>(args.route.rows);
  RouterShape shape;
  shape.width = args.width;
  shape.groups = (args.width + kGroup - 1) / kGroup;
  shape.turns = (shape.groups + kWarps - 1) / kWarps;
  shape.experts = args.route.experts;
  const auto* const weight = static_cast<const __nv_bfloat16*>(args.weight);
  GroupWeights held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    held[i] = LoadWeights(weight, shape, rank * kExperts, warp + i * kWarps, lane);
  // What registers do not hold comes to L2.
  const int step = kRouterBlocks * kExperts;
  if (shape.turns > kHeld || shape.experts > step) {
    for (int e = rank * kExperts; e < shape.experts; e += step) {
      const std::int64_t count = min(kExperts, static_cast<int>(shape.experts) - e);
      const std::int64_t bytes = count * shape.width * 2;
      for (std::int64_t at = std::int64_t{thread} * kPrefetch; at < bytes;
           at += kThreads * kPrefetch) {
        PrefetchBytes(reinterpret_cast<const char*>(weight + std::int64_t{e} * shape.width) + at,
                      static_cast<int>(bytes - at < kPrefetch ? bytes - at : kPrefetch));
      }
    }
  }
  const T* x = static_cast<const T*>(args.x);
  if (args.normalises) {
    const NormOfRows<float, T, kCodes, kOne> norm(args.norm);
    WaitForPrevious();
    auto* const warps = reinterpret_cast<float*>(shared + Layout::kWarpsAt);
    if (rows == 1) {
      T* const row = reinterpret_cast<T*>(shared + Layout::kRowAt);
      norm.Make(args.norm, 0, warps, rank == 0, row);
      x = row;
      __syncthreads();
    } else {
      for (int row = rank; row < rows; row += kRouterBlocks) {
        norm.Make(args.norm, row, warps, true, nullptr);
        __syncthreads();
      }
      x = static_cast<const T*>(args.norm.out);
      MeetCluster(kRouterBlocks);
    }
  } else {
    WaitForPrevious();
  }
  for (int e = rank * kExperts; e < shape.experts; e += step) {
    float sum[kTiles][4] = {};
    const bool is_first = e == rank * kExperts;
    if (is_first) {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (i >= shape.turns) break;
        AddGroup<T, kTiles>(sum, held[i], x, rows, shape, warp + i * kWarps, lane);
      }
    }
    for (int i = is_first ? kHeld : 0; i < shape.turns; ++i) {
      const int group = warp + i * kWarps;
      AddGroup<T, kTiles>(sum, LoadWeights(weight, shape, e, group, lane), x, rows, shape, group,
                          lane);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int expert = lane / 4 + i / 2 * 8, token = tile * kRowFloats + lane % 4 * 2 + i % 2;
        sums[(warp * kExperts + expert) * Layout::kTokens + token] = sum[tile][i];
      }
    }
    __syncthreads();
    for (int i = thread; i < rows * kExperts; i += kThreads) {
      const int token = i / kExperts, expert = i % kExperts;
      if (e + expert >= shape.experts) continue;
      float logit = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        logit += sums[(w * kExperts + expert) * Layout::kTokens + token];
      if (args.bias != nullptr) logit += StoredAt(args.bias, args.bias_type, e + expert);
      args.logits[token * shape.experts + e + expert] = logit;
    }
    __syncthreads();
  }
  MeetCluster(kRouterBlocks);
  if (rank == 0) {
    RouteFew<float, kThreads>(args.route, reinterpret_cast<std::int32_t*>(shared + Layout::kIdsAt));
  }
}

template <class T, int kTiles>
constexpr std::size_t SharedOf(std::int64_t rows, int width) {
  const std::size_t row = rows == 1 ? static_cast<std::size_t>(width) * sizeof(T) : 0;
  return RouterLayout<T, kTiles>::kRowAt + row;
}

}  // namespace

std::size_t RouterShared(std::int64_t rows, int width, DataType values) {
  const bool few = rows <= kRowFloats;
  if (values == DataType::kFloat32) {
    return few ? SharedOf<float, 1>(rows, width) : SharedOf<float, 4>(rows, width);
  }
  return few ? SharedOf<__nv_bfloat16, 1>(rows, width) : SharedOf<__nv_bfloat16, 4>(rows, width);
}

cudaError_t Router(const RouterArgs& args, LaunchStream stream) {
  const std::int64_t rows = args.route.rows;
  if (rows == 0) return cudaSuccess;
  const bool few = rows <= kRowFloats, one = args.width <= 8 * kThreads;
  const bool codes = args.normalises && args.norm.to.codes != nullptr;
  const std::size_t shared = RouterShared(rows, args.width, args.x_type);
  return WithValue(args.x_type, [&]<class T>(T) {
    const auto launch = [&]<bool kCodes, bool kOne>(std::bool_constant<kCodes>,
                                                    std::bool_constant<kOne>) {
      return LaunchClusters(
          few ? &RouterKernel<T, 1, kCodes, kOne> : &RouterKernel<T, 4, kCodes, kOne>,
          dim3(1, kRouterBlocks), kThreads, static_cast<int>(shared), kRouterBlocks, stream, args);
    };
    const auto with = [&](auto has_codes) {
      return one ? launch(has_codes, std::true_type{}) : launch(has_codes, std::false_type{});
    };
    if constexpr (std::is_same_v<T, float>) {
      if (codes) return with(std::true_type{});
    }
    return with(std::false_type{});
  });
}

}  // namespace culet::cuda_ops
