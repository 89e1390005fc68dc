// Which experts tokens go to, and the routes in the order of experts.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>

#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/order.cuh"
#include "kernels/cuda_ops/router.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// An element of a vector: float32, float16 or bfloat16.
__device__ __forceinline__ float StoredAt(const void* from, DataType type, std::int64_t at) {
  if (type == DataType::kFloat32) return static_cast<const float*>(from)[at];
  if (type == DataType::kFloat16) return ToFloat(static_cast<const __half*>(from)[at]);
  return ToFloat(static_cast<const __nv_bfloat16*>(from)[at]);
}

/// How a warp routes a token. A lane has every 32nd expert; kEach of them at most, which stay in
/// registers, or with 0 any number, which it reads again for each choice.
template <class T, int kEach>
class TokenRouter {
 public:
  /// `logits`: of all rows.
  __device__ __forceinline__ TokenRouter(const RouteArgs& args, const T* logits, std::int64_t row)
      : args_(args),
        logits_(logits + row * args.experts),
        shares_(args.shares + row * args.routing.active),
        lane_(static_cast<int>(threadIdx.x) % kWarp) {}

  /// The token's experts, the first choice first, to `ids`, and their shares.
  __device__ __forceinline__ void Route(std::int32_t* ids) {
    const RoutingParams& routing = args_.routing;
    const int active = routing.active;
    if (Score()) {
      for (int i = lane_; i < active; i += kWarp) ids[i] = i, shares_[i] = NotANumber();
      return;
    }
    if (routing.groups > 1) DropGroups(KeptGroups());
    std::uint64_t last = ~std::uint64_t{0};
    int first = 0;
    for (int i = 0; i < active; ++i) {
      std::uint64_t best = 0;
      ForOwn([&](int at, int expert) {
        const std::uint64_t key = kEach > 0 ? keys_[at] : KeyOfExpert(expert);
        if (key < last && key > best) best = key;
      });
      last = LargestOfWarp(best);
      const int id = IndexOf(last);
      if (i == 0) first = id;
      if (lane_ == i % kWarp) ids[i] = id;
    }
    // Each lane goes on with what it stored itself.
    const bool of_chosen = routing.scoring == RouterScoring::kSoftmaxOfChosen;
    const float most = of_chosen ? ToFloat(logits_[first]) : 0.0f;
    const auto share_of = [&](int i) {
      const float score = ScoreOf(ids[i]);
      return of_chosen ? expf(score - most) : score;
    };
    float sum = 1;
    if (routing.renormalize || of_chosen) {
      sum = 0;
      for (int i = lane_; i < active; i += kWarp) sum += share_of(i);
      sum = SumLanes<kWarp>(sum);
      if (routing.renormalize) sum = fmaxf(sum, routing.least_sum);
    }
    for (int i = lane_; i < active; i += kWarp) shares_[i] = share_of(i) / sum * routing.scale;
  }

 private:
  static constexpr int kWarp = 32;
  static constexpr float kLast = -std::numeric_limits<float>::infinity();  // of dropped groups

  /// use(i, expert) for each expert of this lane.
  template <class Use>
  __device__ __forceinline__ void ForOwn(Use use) const {
    if constexpr (kEach > 0) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int expert = lane_ + i * kWarp;
        if (expert < args_.experts) use(i, expert);
      }
    } else {
      for (int expert = lane_; expert < args_.experts; expert += kWarp) use(0, expert);
    }
  }

  // While keys are those of logits.
  __device__ __forceinline__ float Logit(int i, int expert) const {
    return kEach > 0 ? ValueOf(keys_[i]) : ToFloat(logits_[expert]);
  }
  __device__ __forceinline__ float ScoreOfLogit(float logit) const {
    if (args_.routing.scoring == RouterScoring::kSoftmax) return expf(logit - most_) / sum_;
    if (args_.routing.scoring == RouterScoring::kSigmoid) return 1.0f / (1.0f + expf(-logit));
    return logit;
  }
  __device__ __forceinline__ float ScoreOf(int expert) const {
    return ScoreOfLogit(ToFloat(logits_[expert]));
  }
  // What an expert is chosen by. Logits order as their scores do, and where those are rounded to
  // one number, too.
  __device__ __forceinline__ float ChosenBy(float logit, int expert) const {
    if (args_.by_logits) return logit;
    const float score = ScoreOfLogit(logit);
    return args_.bias == nullptr ? score : score + StoredAt(args_.bias, args_.bias_type, expert);
  }
  __device__ __forceinline__ float ChosenBy(int expert) const {
    return ChosenBy(ToFloat(logits_[expert]), expert);
  }
  __device__ __forceinline__ bool IsKept(int expert) const {
    return (kept_ >> (expert / (args_.experts / args_.routing.groups)) & 1u) != 0;
  }
  __device__ __forceinline__ std::uint64_t KeyOfExpert(int expert) const {
    const float by = args_.routing.groups == 1 || IsKept(expert) ? ChosenBy(expert) : kLast;
    return KeyOf(by, static_cast<std::uint32_t>(expert));
  }

  // Reads the logits, and makes keys of what experts are chosen by. Returns whether one is NaN.
  // What most routers do comes first and without jumps: the code runs once, from memory.
  __device__ __forceinline__ bool Score() {
    bool nan = false;
    std::uint64_t best = 0;
    ForOwn([&](int i, int expert) {
      const float logit = ToFloat(logits_[expert]);
      const std::uint64_t key = KeyOf(logit, static_cast<std::uint32_t>(expert));
      best = key > best ? key : best;
      nan |= logit != logit;
      if constexpr (kEach > 0) keys_[i] = key;
    });
    if (args_.routing.scoring == RouterScoring::kSoftmax) {
      most_ = ValueOf(LargestOfWarp(best));
      float sum = 0;
      ForOwn([&](int i, int expert) { sum += expf(Logit(i, expert) - most_); });
      sum_ = SumLanes<kWarp>(sum);
      nan |= sum_ != sum_;
    }
    if (!args_.by_logits) {
      ForOwn([&](int i, int expert) {
        const float by = ChosenBy(Logit(i, expert), expert);
        nan |= by != by;
        if constexpr (kEach > 0) keys_[i] = KeyOf(by, static_cast<std::uint32_t>(expert));
      });
    }
    return __any_sync(kAllLanes, nan ? 1 : 0) != 0;
  }

  // The groups of experts that are kept, a bit each. Requires: at most 32.
  __device__ __forceinline__ std::uint32_t KeptGroups() const {
    const RoutingParams& routing = args_.routing;
    const int size = args_.experts / routing.groups;
    std::uint64_t own = 0;  // the key of group `lane`
    for (int g = 0; g < routing.groups; ++g) {
      std::uint64_t best = 0, second = 0;
      for (int i = lane_; i < size; i += kWarp) {
        const std::uint64_t key = KeyOf(ChosenBy(g * size + i), static_cast<std::uint32_t>(i));
        second = key > best ? best : key > second ? key : second;
        best = key > best ? key : best;
      }
      const std::uint64_t first = LargestOfWarp(best);
      float score = ChosenBy(g * size + IndexOf(first));
      if (routing.group_score == GroupScore::kBestTwo) {
        const std::uint64_t next = LargestOfWarp(best == first ? second : best);
        score += ChosenBy(g * size + IndexOf(next));
      }
      if (lane_ == g) own = KeyOf(score, static_cast<std::uint32_t>(g));
    }
    std::uint32_t kept = 0;
    for (int i = 0; i < routing.kept_groups; ++i) {
      const std::uint64_t best = LargestOfWarp(own);
      kept |= 1u << IndexOf(best);
      if (own == best) own = 0;
    }
    return kept;
  }

  __device__ __forceinline__ void DropGroups(std::uint32_t kept) {
    kept_ = kept;
    if constexpr (kEach > 0) {
      ForOwn([&](int i, int expert) {
        if (!IsKept(expert)) keys_[i] = KeyOf(kLast, static_cast<std::uint32_t>(expert));
      });
    }
  }

  const RouteArgs& args_;
  const T* const logits_;
  float* const shares_;
  const int lane_;
  float most_ = 0, sum_ = 1;  // of a softmax over all
  std::uint32_t kept_ = ~0u;
  std::uint64_t keys_[kEach > 0 ? kEach : 1];
};

/// The experts of token `row` to `ids`, and their shares. By a warp. `logits`: of all rows, in any
/// memory.
template <class T>
__device__ __forceinline__ void RouteToken(const RouteArgs& args, const T* logits, std::int64_t row,
                                           std::int32_t* ids) {
  if (args.experts <= 128) {
    TokenRouter<T, 4>(args, logits, row).Route(ids);
  } else {
    TokenRouter<T, 0>(args, logits, row).Route(ids);
  }
}

/// The routes of few tokens, by the `kThreads` threads of one block: tokens first, then the order,
/// in which each route counts those before it. `ids`: shared memory for all choices.
template <class T, int kThreads>
__device__ __forceinline__ void RouteFew(const RouteArgs& args, const T* logits,
                                         std::int32_t* ids) {
  constexpr int kWarp = 32;
  const int thread = static_cast<int>(threadIdx.x), active = args.routing.active;
  const int count = static_cast<int>(args.rows) * active;
  for (std::int64_t row = thread / kWarp; row < args.rows; row += kThreads / kWarp) {
    RouteToken(args, logits, row, ids + row * active);
  }
  __syncthreads();
  for (int route = thread; route < count; route += kThreads) {
    const std::int32_t own = ids[route];
    int before = 0;
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      before += ids[i] < own || (ids[i] == own && i < route) ? 1 : 0;
    }
    args.routes[before] = route;
    args.places[route] = before;
  }
  for (int expert = thread; expert <= args.experts; expert += kThreads) {
    int before = 0;
#pragma unroll 4
    for (int i = 0; i < count; ++i) before += ids[i] < expert ? 1 : 0;
    args.starts[expert] = before;
  }
}

}  // namespace culet::cuda_ops
