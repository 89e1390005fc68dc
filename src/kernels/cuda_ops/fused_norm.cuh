// What a block makes of a row in FusedNorm, and in kernels that have it in front.
#pragma once

#include <cstdint>

#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/quantize.cuh"
#include "kernels/cuda_ops/rms_norm.cuh"

namespace culet::cuda_ops {

/// One row at a time, in the order of RmsNorm's sums. Values are of type Out, with their codes if
/// kCodes. kOne: a thread has one vector of a row at most.
template <class X, class Out, bool kCodes, bool kOne>
class NormOfRows {
 public:
  /// Loads gammas, which no kernel writes.
  __device__ __forceinline__ explicit NormOfRows(const FusedNormArgs& args)
      : first_(static_cast<int>(threadIdx.x) * kWide), step_(static_cast<int>(blockDim.x) * kWide) {
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int at = first_ + i * step_;
      if (at < args.width) LoadStored(args.gamma, args.gamma_type, at, gammas_[i]);
    }
  }

  /// By all threads of the block. `warps`: shared memory, a float for each warp. `stores`: whether
  /// the row's results go where `args` says. `copy`: a row that gets the values besides, or null.
  __device__ __forceinline__ void Make(const FusedNormArgs& args, std::int64_t row, float* warps,
                                       bool stores, Out* copy) const {
    const int width = args.width;
    std::int64_t source = row;
    bool missing = false;
    if (args.from != nullptr) {
      source = args.from[row];
      missing = source < 0 || source >= args.source_rows;
      if (missing) source = 0;  // of which nothing is left but NaN
    }
    const X* const x = static_cast<const X*>(args.x) + source * width;
    const X* const y = args.y == nullptr ? nullptr : static_cast<const X*>(args.y) + source * width;
    float kept[kKept][kWide] = {};
    float sum = 0;
    X* const sums =
        args.sum == nullptr || !stores ? nullptr : static_cast<X*>(args.sum) + row * width;
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (const int at = first_ + i * step_; at < width) LoadSum(x, y, at, kept[i]);
    }
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      if (const int at = first_ + i * step_; at < width) {
        if (sums != nullptr) Store(kept[i], sums + at);
        sum += SumOfSquares(kept[i]);
      }
    }
    for (int at = first_ + kKept * step_; !kOne && at < width; at += step_) {
      float more[kWide];
      LoadSum(x, y, at, more);
      if (sums != nullptr) Store(more, sums + at);
      sum += SumOfSquares(more);
    }
    float scale = NormScale(SumOfBlock(sum, warps), width, args.epsilon);
    if (missing) scale = NotANumber();
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const int at = first_ + i * step_;
      if (at - first_ < width) Finish(args, kept[i], scale, gammas_[i], row, at, stores, copy);
    }
    for (int base = kKept * step_; !kOne && base < width; base += step_) {
      const int at = base + first_;
      float more[kWide] = {}, gamma[kWide] = {};
      if (at < width) {
        // The sum may lie over what it was made of.
        if (sums != nullptr) {
          Load(sums + at, more);
        } else {
          LoadSum(x, y, at, more);
        }
        LoadStored(args.gamma, args.gamma_type, at, gamma);
      }
      Finish(args, more, scale, gamma, row, at, stores, copy);
    }
  }

 private:
  static constexpr int kWide = 8;
  static constexpr int kKept = kOne ? 1 : 2;  // vectors that stay in registers between the passes

  // Elements of x + y, rounded as if stored; of x if `y` is null.
  __device__ __forceinline__ static void LoadSum(const X* x, const X* y, int at,
                                                 float (&to)[kWide]) {
    Load(x + at, to);
    if (y == nullptr) return;
    float more[kWide];
    Load(y + at, more);
#pragma unroll
    for (int i = 0; i < kWide; ++i) to[i] = Rounded<X>(to[i] + more[i]);
  }

  // All lanes of a warp come, those beyond the row's end with zeros.
  __device__ __forceinline__ static void Finish(const FusedNormArgs& args, float (&x)[kWide],
                                                float scale, const float (&gamma)[kWide],
                                                std::int64_t row, int at, bool stores, Out* copy) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) x[i] = Rounded<Out>(x[i] * scale * gamma[i]);
    const bool there = at < args.width;
    if (there && stores && args.out != nullptr) {
      Store(x, static_cast<Out*>(args.out) + row * args.width + at);
    }
    if (there && copy != nullptr) Store(x, copy + at);
    if constexpr (kCodes) {
      unsigned packed[2];
      const float group_scale = QuantizeGroup(x, packed);
      if (there && stores) {
        StoreCodes(packed, group_scale, row, at, args.width, args.to.codes, args.to.scales);
      }
    }
  }

  const int first_, step_;
  float gammas_[kKept][kWide] = {};
};

}  // namespace culet::cuda_ops
