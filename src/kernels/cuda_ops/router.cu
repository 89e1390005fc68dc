// Router: one cluster, whose blocks have 16 experts each at a time. The weights of the first ones
// wait in shared memory for the tokens. A single token is normalised by every block, more of them
// by one block each. The first block of the cluster gets all logits and routes.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda_ops/router.h"

#include "culet/layout/host_device.h"
#include "kernels/cuda_ops/cluster.cuh"
#include "kernels/cuda_ops/fused_norm.cuh"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/route.cuh"

namespace culet::cuda_ops {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
// Few tokens' block fits beside one of the kernel before that has two thirds of a multiprocessor's
// registers: its weights come while that one runs.
template <int kTiles, bool kOne>
constexpr int kBlocks = kTiles == 1 && kOne ? 3 : 2;
constexpr int kExperts = 16;   // of a block at a time: rows of a product of the tensor core
constexpr int kGroup = 32;     // of a row, that a warp takes at a time: 8 elements a lane
constexpr int kRowFloats = 8;  // tokens of a product
constexpr int kPrefetch = 4096;
constexpr int kMostHeld = 8;               // groups of a warp in shared memory
constexpr int kHeldBytes = kThreads * 32;  // of one of all warps' groups
constexpr int kMostLogits = 16 << 10;      // bytes of logits in shared memory

// A lane's weights of a group: of experts `lane / 4` and 8 more the elements from 8 (lane % 4) on.
// In this order of K, which is the tokens', too, they are two products' operands.
struct GroupWeights {
  uint4 low, high;
};

struct RouterShape {
  int width, groups, turns;  // groups of a row; that a warp takes of it
  std::int64_t experts;
};

// Where a lane's part of a group lies in the row of an expert; null: nowhere.
__device__ __forceinline__ const __nv_bfloat16* PartOfGroup(const __nv_bfloat16* weight,
                                                            const RouterShape& shape, int expert,
                                                            int group, int lane) {
  const int at = group * kGroup + lane % 4 * 8;
  if (expert >= shape.experts || at >= shape.width) return nullptr;
  return weight + std::int64_t{expert} * shape.width + at;
}

__device__ __forceinline__ GroupWeights LoadWeights(const __nv_bfloat16* weight,
                                                    const RouterShape& shape, int first_expert,
                                                    int group, int lane) {
  const auto load = [&](int expert) {
    const auto* const from = PartOfGroup(weight, shape, expert, group, lane);
    return from == nullptr ? make_uint4(0, 0, 0, 0) : *reinterpret_cast<const uint4*>(from);
  };
  return {load(first_expert + lane / 4), load(first_expert + lane / 4 + 8)};
}

// The same in two steps, by way of shared memory: each thread reads what it copied.
__device__ __forceinline__ void HoldWeights(char* held, const __nv_bfloat16* weight,
                                            const RouterShape& shape, int first_expert, int group,
                                            int lane) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const auto* const from =
        PartOfGroup(weight, shape, first_expert + lane / 4 + 8 * i, group, lane);
    CopyAsync16(SharedAddress(held + i * (kHeldBytes / 2)), from == nullptr ? weight : from,
                from == nullptr ? 0 : 16);
  }
}
__device__ __forceinline__ GroupWeights HeldWeights(const char* held) {
  return {*reinterpret_cast<const uint4*>(held),
          *reinterpret_cast<const uint4*>(held + kHeldBytes / 2)};
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

// Where things lie in shared memory: ids, sums of warps, sums of products, then logits if there is
// room for them, a single token's row, and weights.
template <class T, int kTiles>
struct RouterLayout {
  static constexpr int kTokens = kTiles * kRowFloats;
  static constexpr int kIdsAt = 0, kWarpsAt = kFewRoutes * 4, kSumsAt = kWarpsAt + kWarps * 4;
  static constexpr int kLogitsAt = kSumsAt + kWarps * kExperts * kTokens * 4;
  int row_at, held_at, held, bytes;  // `held`: groups of each warp
  bool has_logits;

  CULET_HOST_DEVICE RouterLayout(int rows, int width, int experts) {
    const int logits = (rows * experts * 4 + 15) / 16 * 16;
    has_logits = logits <= kMostLogits;
    row_at = kLogitsAt + (has_logits ? logits : 0);
    held_at = row_at + (rows == 1 ? width * static_cast<int>(sizeof(T)) : 0);
    const int turns = (width + kGroup * kWarps - 1) / (kGroup * kWarps);
    const int room = (static_cast<int>(kMostRouterShared) - held_at) / kHeldBytes;
    held = turns < kMostHeld ? turns : kMostHeld;
    held = room < held ? (room > 0 ? room : 0) : held;
    bytes = held_at + held * kHeldBytes;
  }
};

// `T`: of the product's input.
template <class T, int kTiles, bool kCodes, bool kOne>
__global__ void __launch_bounds__(kThreads, (kBlocks<kTiles, kOne>))
    RouterKernel(const RouterArgs args) {
  using Layout = RouterLayout<T, kTiles>;
  char* const shared = DynamicShared();
  ArriveAtCluster();
  auto* const sums = reinterpret_cast<float*>(shared + Layout::kSumsAt);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int rank = static_cast<int>(blockIdx.y), rows = static_cast<int>(args.route.rows);
  const Layout layout(rows, args.width, args.route.experts);
  RouterShape shape;
  shape.width = args.width;
  shape.groups = (args.width + kGroup - 1) / kGroup;
  shape.turns = (shape.groups + kWarps - 1) / kWarps;
  shape.experts = args.route.experts;
  const auto* const weight = static_cast<const __nv_bfloat16*>(args.weight);
  char* const held = shared + layout.held_at + thread * 16;
#pragma unroll 2
  for (int i = 0; i < layout.held; ++i)
    HoldWeights(held + i * kHeldBytes, weight, shape, rank * kExperts, warp + i * kWarps, lane);
  CommitCopies();
  // What shared memory does not hold comes to L2.
  const int step = kRouterBlocks * kExperts;
  if (shape.turns > layout.held || shape.experts > step) {
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
      T* const row = reinterpret_cast<T*>(shared + layout.row_at);
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
  AwaitCopies<0>();
  AwaitCluster();  // the first block, which gets the logits, is there
  auto* const logits = reinterpret_cast<float*>(shared + Layout::kLogitsAt);
  for (int e = rank * kExperts; e < shape.experts; e += step) {
    float sum[kTiles][4] = {};
    const int there = e == rank * kExperts ? layout.held : 0;
#pragma unroll 2
    for (int i = 0; i < there; ++i) {
      AddGroup<T, kTiles>(sum, HeldWeights(held + i * kHeldBytes), x, rows, shape,
                          warp + i * kWarps, lane);
    }
    for (int i = there; i < shape.turns; ++i) {
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
      const int at = token * static_cast<int>(shape.experts) + e + expert;
      if (layout.has_logits) {
        StoreToBlock(SharedAddress(logits + at), 0, logit);
      } else {
        args.logits[at] = logit;
      }
    }
    __syncthreads();
  }
  MeetCluster(kRouterBlocks);
  if (rank == 0) {
    RouteFew<float, kThreads>(args.route, layout.has_logits ? logits : args.logits,
                              reinterpret_cast<std::int32_t*>(shared + Layout::kIdsAt));
  }
}

// use(layout) with the layout of so many rows.
template <class T, class Use>
auto WithLayout(std::int64_t rows, int width, int experts, Use use) {
  const int count = static_cast<int>(rows);
  return rows <= kRowFloats ? use(RouterLayout<T, 1>(count, width, experts))
                            : use(RouterLayout<T, 4>(count, width, experts));
}

}  // namespace

std::size_t RouterShared(std::int64_t rows, int width, int experts, DataType values) {
  const auto bytes = [](const auto& layout) { return static_cast<std::size_t>(layout.bytes); };
  return values == DataType::kFloat32 ? WithLayout<float>(rows, width, experts, bytes)
                                      : WithLayout<__nv_bfloat16>(rows, width, experts, bytes);
}

cudaError_t Router(const RouterArgs& args, LaunchStream stream) {
  const std::int64_t rows = args.route.rows;
  if (rows == 0) return cudaSuccess;
  const bool few = rows <= kRowFloats, one = args.width <= 8 * kThreads;
  const bool codes = args.normalises && args.norm.to.codes != nullptr;
  const int shared =
      static_cast<int>(RouterShared(rows, args.width, args.route.experts, args.x_type));
  return WithValue(args.x_type, [&]<class T>(T) {
    const auto launch = [&]<bool kCodes, bool kOne>(std::bool_constant<kCodes>,
                                                    std::bool_constant<kOne>) {
      const auto kernel =
          few ? &RouterKernel<T, 1, kCodes, kOne> : &RouterKernel<T, 4, kCodes, kOne>;
      const cudaError_t error = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostRouterShared));
      if (error != cudaSuccess) return error;
      return LaunchClusters(kernel, dim3(1, kRouterBlocks), kThreads, shared, kRouterBlocks, stream,
                            args);
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
