// Linear attention: the short convolution, and the gated delta rule. A task has a head of one
// sequence, token by token, so that bits depend neither on threads nor on how a prompt is cut.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/linear_attention.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd_exp-inl.h"
#include "kernels/cpu/simd_memory-inl.h"
#include "kernels/ops/linear_attention.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VF32 LoadFloats(F32 d, const float* p, std::size_t count) {
  return LoadRow(d, DataType::kFloat32, p, count);
}

HWY_INLINE float SumOfSquares(const float* x, std::size_t count) {
  const F32 d;
  VF32 sum = hn::Zero(d);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const VF32 v = LoadFloats(d, x + i, count - i);
    sum = hn::MulAdd(v, v, sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace

// Columns [to, to + count) of the value, which are columns [from, from + count) of X.
void ConvolveColumns(const ops::CausalConvArgs& args, std::int64_t sequence, std::int64_t from,
                     std::int64_t to, std::int64_t count) {
  const F32 d;
  const StateRows& states = args.states;
  const std::int64_t begin = states.begin(sequence), end = states.end(sequence);
  const float* const before = states.from(sequence);
  // `offset` tokens behind the first of the step; below 0 what the state has.
  const auto input = [&](std::int64_t offset) -> const float* {
    if (offset >= 0) return args.x + (begin + offset) * args.in + from;
    return before != nullptr ? before + (args.taps - 1 + offset) * args.cols + to : nullptr;
  };
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t first = row - begin - (args.taps - 1);
    float* const out = args.out + row * args.cols + to;
    for (std::int64_t c = 0; c < count; c += static_cast<std::int64_t>(kLanes)) {
      const auto left = static_cast<std::size_t>(count - c);
      VF32 sum = hn::Zero(d);
      for (std::int64_t i = 0; i < args.taps; ++i) {
        const float* const x = input(first + i);
        if (x == nullptr) continue;
        sum = hn::MulAdd(LoadFloats(d, x + c, left),
                         LoadFloats(d, args.weight + i * args.cols + to + c, left), sum);
      }
      StoreRow(d, SiluOf(d, sum), DataType::kFloat32, out + c, left);
    }
  }
  float* const state = states.to(sequence);
  if (state == nullptr) return;
  // Ascending, since the state moves within itself.
  for (std::int64_t i = 0; i + 1 < args.taps; ++i) {
    const float* const x = input(end - begin - (args.taps - 1) + i);
    float* const line = state + i * args.cols + to;
    if (x == nullptr) {
      std::fill_n(line, count, 0.0f);
    } else {
      std::copy_n(x, count, line);
    }
  }
}

// One value head of a sequence.
void DeltaHead(const ops::GatedDeltaArgs& args, std::int64_t sequence, std::int64_t head) {
  const F32 d;
  const GatedDeltaParams& p = args.params;
  const StateRows& states = args.states;
  const std::int64_t share = p.value_heads / p.key_heads, of = head / share;
  const std::int64_t keys = p.key_dim, values = p.value_dim, cols = p.qkv_cols();
  const std::int64_t size = keys * values;
  const float* const before = states.from(sequence);
  float* const state = states.to(sequence) != nullptr
                           ? states.to(sequence) + head * size
                           : args.workspace + (sequence * p.value_heads + head) * size;
  if (before == nullptr) std::fill_n(state, size, 0.0f);
  for (std::int64_t row = states.begin(sequence); row < states.end(sequence); ++row) {
    const float* const q = args.x + row * cols + of * keys;
    const float* const k = q + p.key_heads * keys;
    const float* const v = args.x + row * cols + 2 * p.key_heads * keys + head * values;
    const float* const gate = args.gates + row * 2 * p.value_heads + of * 2 * share + head % share;
    float* const out = args.out + row * p.out_cols() + head * values;
    const auto count = static_cast<std::size_t>(keys);
    const double at = static_cast<double>(gate[share]) + static_cast<double>(args.bias[head]);
    const double step = at > 0 ? at + std::log1p(std::exp(-at)) : std::log1p(std::exp(at));
    const auto kept = static_cast<float>(std::exp(-static_cast<double>(args.decays[head]) * step));
    const auto by = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(gate[0]))));
    const float of_keys = 1 / std::sqrt(SumOfSquares(k, count) + args.epsilon);
    const float of_queries =
        1 / std::sqrt((SumOfSquares(q, count) + args.epsilon) * static_cast<float>(keys));
    for (std::int64_t j = 0; j < values; j += static_cast<std::int64_t>(kLanes)) {
      const auto left = static_cast<std::size_t>(values - j);
      VF32 known = hn::Zero(d), result = hn::Zero(d);
      for (std::int64_t i = 0; i < keys; ++i) {
        known = hn::MulAdd(hn::Set(d, k[i]), LoadFloats(d, state + i * values + j, left), known);
      }
      known = hn::Mul(known, hn::Set(d, kept * of_keys));
      const VF32 change =
          hn::Mul(hn::Sub(LoadFloats(d, v + j, left), known), hn::Set(d, by * of_keys));
      for (std::int64_t i = 0; i < keys; ++i) {
        float* const line = state + i * values + j;
        const VF32 next = hn::MulAdd(hn::Set(d, k[i]), change,
                                     hn::Mul(hn::Set(d, kept), LoadFloats(d, line, left)));
        StoreRow(d, next, DataType::kFloat32, line, left);
        result = hn::MulAdd(hn::Set(d, q[i]), next, result);
      }
      StoreRow(d, hn::Mul(result, hn::Set(d, of_queries)), DataType::kFloat32, out + j, left);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/thread_pool.h"

namespace culet {
HWY_EXPORT(ConvolveColumns);
HWY_EXPORT(DeltaHead);

namespace ops {

void CausalConv(const CausalConvArgs& args) {
  const GatedDeltaParams& p = args.params;
  const std::int64_t keys = std::int64_t{p.key_heads} * p.key_dim;
  const std::int64_t values = p.out_cols() / p.key_heads;
  const std::int64_t group = args.in / p.key_heads;
  constexpr int kParts = 3;  // of a key head: its query, its key, its values
  HostPool().Run(
      static_cast<int>(args.states.sequences * p.key_heads * kParts), [&](int task, int) {
        const std::int64_t part = task % kParts, of = task / kParts % p.key_heads;
        const std::int64_t sequence = task / kParts / p.key_heads;
        if (args.states.begin(sequence) == args.states.end(sequence)) return;
        const std::int64_t from = of * group + part * p.key_dim;
        const std::int64_t to = part < 2 ? part * keys + of * p.key_dim : 2 * keys + of * values;
        HWY_DYNAMIC_DISPATCH(ConvolveColumns)
        (args, sequence, from, to, part < 2 ? p.key_dim : values);
      });
}

std::size_t GatedDeltaWorkspace(const GatedDeltaParams& params, std::int64_t sequences) {
  return static_cast<std::size_t>(sequences * params.state_cols());
}

void GatedDelta(const GatedDeltaArgs& args) {
  const std::int64_t heads = args.params.value_heads;
  HostPool().Run(static_cast<int>(args.states.sequences * heads), [&](int task, int) {
    const std::int64_t sequence = task / heads;
    if (args.states.begin(sequence) == args.states.end(sequence)) return;
    HWY_DYNAMIC_DISPATCH(DeltaHead)(args, sequence, task % heads);
  });
}

void HeadSlice(const float* x, float* out, std::int64_t heads, std::int64_t size,
               std::int64_t first, std::int64_t count) {
  constexpr std::int64_t kHeads = 64;  // a task
  HostPool().Run(static_cast<int>((heads + kHeads - 1) / kHeads), [&](int task, int) {
    const std::int64_t end = std::min(heads, (task + 1) * kHeads);
    for (std::int64_t head = task * kHeads; head < end; ++head) {
      std::copy_n(x + head * size + first, count, out + head * count);
    }
  });
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
