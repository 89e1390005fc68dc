// Keys of a query that several blocks share: how they are shared, where each block leaves what it
// found, and the last one's sum of it, always in the same order.
#pragma once

#include "kernels/cuda_ops/attention_keys.cuh"

namespace culet::cuda_ops {

/// The keys of a split, the block's unless told, of those from `first` up to `last`. The number of
/// splits that have keys comes from the number of keys alone.
struct SplitKeys {
  int begin, end;
  int splits;  ///< that have keys; blocks of the others have nothing to do, but for the first

  __device__ SplitKeys(const AttentionSplits& how, int first, int last)
      : SplitKeys(how, first, last, static_cast<int>(blockIdx.y)) {}
  __device__ SplitKeys(const AttentionSplits& how, int first, int last, int split) : split_(split) {
    const int count = last - first;
    int keys = 0;
    if (how.cluster > 1 && count <= how.cluster * kKeysNear) {
      // One cluster, without divisions, each of which takes as long as a load.
      keys = count <= how.cluster * kSplitStep ? kSplitStep : kKeysNear;
      splits = count > 0 ? (count + keys - 1) / kSplitStep >> (keys == kKeysNear ? 1 : 0) : 1;
    } else {
      const auto share = [&](int among, int least) {
        const int even = (count + among - 1) / among;
        return ((even > least ? even : least) + kSplitStep - 1) / kSplitStep * kSplitStep;
      };
      keys = share(how.even, how.least);
      if (keys > how.fine) keys = share(how.most, how.fine);
      splits = count > 0 ? (count + keys - 1) / keys : 1;
    }
    begin = split < splits ? first + split * keys : last;
    end = last - begin > keys ? begin + keys : last;
  }
  /// Of a block whose whole cluster of `cluster` blocks, a power of two, has nothing to do.
  __device__ bool idle(int cluster = 1) const { return (split_ & -cluster) >= splits; }

 private:
  int split_;
};

/// What a split found of one query and head, in the launch's workspace: its maximum, its sum, and
/// args.width sums of values, all to be divided by nothing yet.
struct AttentionPart {
  std::int64_t index;
  float* values;
  float* maxima;
  float* sums;

  /// Requires: 0 <= unit < units, splits as the workspace has room for.
  __device__ AttentionPart(const AttentionArgs& args, std::int64_t units, std::int64_t unit,
                           int head, int splits, int split)
      : index((unit * args.params.heads + head) * splits + split),
        values(static_cast<float*>(args.workspace) + index * args.width),
        maxima(static_cast<float*>(args.workspace) +
               units * args.params.heads * splits * args.width),
        sums(maxima + units * args.params.heads * splits) {}
};

/// Four dimensions of each of kItems queries' outputs from their parts, `count` of them that are
/// every `step`th, in their order. Only the first `items` are stored; the others may be anything
/// that can be read.
template <int kItems>
__device__ __forceinline__ void MergeParts(const AttentionArgs& args,
                                           const std::int64_t (&index)[kItems],
                                           const int (&dim)[kItems],
                                           const std::int64_t (&element)[kItems], int items,
                                           const AttentionPart& any, int count, int step) {
  const float* const values = any.values - any.index * args.params.head_dim;
  float highest[kItems], total[kItems] = {}, value[kItems][4] = {};
#pragma unroll
  for (int item = 0; item < kItems; ++item) highest[item] = kNoKey;
#pragma unroll(8 / kItems)
  for (int split = 0; split < count; ++split) {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      highest[item] = fmaxf(highest[item], any.maxima[index[item] + split * step]);
    }
  }
#pragma unroll(kItems == 1 ? 4 : 1)
  for (int split = 0; split < count; ++split) {
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
      const std::int64_t at = index[item] + split * step;
      const float weight = Rescale(any.maxima[at], highest[item]);
      total[item] = fmaf(any.sums[at], weight, total[item]);
      float part[4];
      Load(values + at * args.params.head_dim + dim[item], part);
#pragma unroll
      for (int i = 0; i < 4; ++i) value[item][i] = fmaf(part[i], weight, value[item][i]);
    }
  }
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (item >= items) break;
    if (args.sinks != nullptr) {
      const auto head = static_cast<int>(element[item] / args.params.head_dim % args.params.heads);
      total[item] = WithSink(args, head, highest[item], total[item]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      StoreValue(value[item][i] / total[item], args.out, args.out_type,
                 element[item] + dim[item] + i);
    }
  }
}

/// What the parts of some queries count, in shared memory, so that their values can be read without
/// waiting for that: of each head `count` weights, which are divided by their sum already.
class SplitWeights {
 public:
  static constexpr int kBytesOfHead = kMostSplits * 4;  ///< of shared memory

  __device__ SplitWeights(float* shared, int count) : shared_(shared), count_(count) {}

  /// Of heads from `begin` up to `end` behind `first_head`, whose parts are every `step`th of
  /// first(head). A warp takes a head; all threads of the block take part, and a barrier follows.
  template <int kThreads, class First>
  __device__ __forceinline__ void Make(const AttentionArgs& args, int first_head, First&& first,
                                       int begin, int end, int step) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int head = begin + static_cast<int>(threadIdx.x) / 32; head < end; head += kThreads / 32) {
      const AttentionPart part = first(head);
      float most[kOfLane], sum[kOfLane], highest = kNoKey, total = 0;
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        const int split = 32 * i + lane;
        most[i] = split < count_ ? part.maxima[part.index + split * step] : kNoKey;
        sum[i] = split < count_ ? part.sums[part.index + split * step] : 0;
      }
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) highest = fmaxf(highest, most[i]);
      highest = MaxLanes<32>(highest);
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        most[i] = 32 * i + lane < count_ ? Rescale(most[i], highest) : 0;
        total = fmaf(sum[i], most[i], total);
      }
      total = WithSink(args, first_head + head, highest, SumLanes<32>(total));
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
        if (32 * i + lane < count_) shared_[head * kMost + 32 * i + lane] = most[i] / total;
      }
    }
  }

  __device__ __forceinline__ float of(int head, int split) const {
    return shared_[head * kMost + split];
  }

 private:
  static constexpr int kMost = kMostSplits, kOfLane = kMost / 32;
  float* shared_;
  int count_;
};

/// Whether these threads are the last of `splits` to come here with their parts written; then all
/// of them can be read. The counter goes back to zero. All threads that wrote, or will read, call
/// it; `thread` counts them, `any(mine)` is a barrier of them and tells whether one's is true. One
/// thread's fence is enough for what others wrote before a barrier that it has passed, and for what
/// they read behind the next.
template <class Any>
__device__ __forceinline__ bool IsLastSplit(unsigned* counter, int splits, int thread,
                                            const Any& any) {
  any(false);
  bool last = false;
  if (thread == 0) {
    __threadfence();
    last = atomicAdd(counter, 1u) + 1 == static_cast<unsigned>(splits);
    if (last) {
      *counter = 0;
      __threadfence();
    }
  }
  return any(last);
}

/// The same of all threads of the block.
__device__ __forceinline__ bool IsLastSplit(unsigned* counter, int splits) {
  return IsLastSplit(counter, splits, static_cast<int>(threadIdx.x),
                     [](bool mine) { return __syncthreads_or(mine) != 0; });
}

}  // namespace culet::cuda_ops
