// Linear attention: the short convolution, and the gated delta rule. A task has a head of one
// sequence, so that bits depend neither on threads nor on other sequences: token by token in short
// steps, so that they do not depend on how these are cut either, else in chunks.
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

#include "kernels/ops/linear_attention.h"
#include "kernels/ops/linear_chunks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {
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

// One value head of a sequence; `scratch`: DeltaScratchFloats.
void DeltaHead(const ops::GatedDeltaArgs& args, std::int64_t sequence, std::int64_t head,
               float* scratch) {
  const F32 d;
  const GatedDeltaParams& p = args.params;
  const StateRows& states = args.states;
  const std::int64_t keys = p.key_dim, values = p.value_dim, size = keys * values;
  const std::int64_t begin = states.begin(sequence), end = states.end(sequence);
  const float* const before = states.from(sequence);
  float* const state = states.to(sequence) != nullptr
                           ? states.to(sequence) + head * size
                           : args.workspace + (sequence * p.value_heads + head) * size;
  if (before == nullptr) std::fill_n(state, size, 0.0f);
  if (end - begin >= ops::kLeastDeltaChunked) {
    const DeltaScratch memory(scratch, keys, values);
    for (std::int64_t row = begin; row < end; row += ops::kDeltaChunk) {
      DeltaChunk(args, head, row, std::min(end - row, ops::kDeltaChunk),
                 before == nullptr && row == begin, state, memory);
    }
    return;
  }
  for (std::int64_t row = begin; row < end; ++row) {
    const HeadToken t(args, row, head);
    for (std::int64_t j = 0; j < values; j += static_cast<std::int64_t>(kLanes)) {
      const auto left = static_cast<std::size_t>(values - j);
      VF32 known = hn::Zero(d), result = hn::Zero(d);
      for (std::int64_t i = 0; i < keys; ++i) {
        known = hn::MulAdd(hn::Set(d, t.k[i]), LoadFloats(d, state + i * values + j, left), known);
      }
      known = hn::Mul(known, hn::Set(d, t.kept * t.of_keys));
      const VF32 change =
          hn::Mul(hn::Sub(LoadFloats(d, t.v + j, left), known), hn::Set(d, t.by * t.of_keys));
      for (std::int64_t i = 0; i < keys; ++i) {
        float* const line = state + i * values + j;
        const VF32 next = hn::MulAdd(hn::Set(d, t.k[i]), change,
                                     hn::Mul(hn::Set(d, t.kept), LoadFloats(d, line, left)));
        StoreRow(d, next, DataType::kFloat32, line, left);
        result = hn::MulAdd(hn::Set(d, t.q[i]), next, result);
      }
      StoreRow(d, hn::Mul(result, hn::Set(d, t.of_queries)), DataType::kFloat32, t.out + j, left);
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

namespace {

std::int64_t DeltaScratchFloats(const GatedDeltaParams& p) {
  constexpr std::int64_t kMostPanel = 32;  // columns
  return kDeltaChunk * (3 * std::int64_t{p.key_dim} + 3 * kDeltaChunk + p.value_dim + 2) +
         kMostPanel * std::max<std::int64_t>(p.key_dim, kDeltaChunk);
}

}  // namespace

std::size_t GatedDeltaWorkspace(const GatedDeltaParams& params, std::int64_t sequences) {
  return static_cast<std::size_t>(sequences * params.state_cols() +
                                  HostPool().threads() * DeltaScratchFloats(params));
}

void GatedDelta(const GatedDeltaArgs& args) {
  const std::int64_t heads = args.params.value_heads;
  float* const scratch = args.workspace + args.states.sequences * args.params.state_cols();
  HostPool().Run(static_cast<int>(args.states.sequences * heads), [&](int task, int thread) {
    const std::int64_t sequence = task / heads;
    if (args.states.begin(sequence) == args.states.end(sequence)) return;
    HWY_DYNAMIC_DISPATCH(DeltaHead)
    (args, sequence, task % heads, scratch + thread * DeltaScratchFloats(args.params));
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
