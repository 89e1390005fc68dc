// Attention: for each query and each key-value head the keys pass by in blocks, with a running
// maximum, so that no row of scores is ever stored.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"
#include "kernels/ops/row_float.h"

namespace culet::ops {
namespace {

constexpr std::int64_t kKeyBlock = 32;

std::size_t Group(const AttentionParams& p) noexcept {
  return static_cast<std::size_t>(p.heads / p.kv_heads);
}

// Floats of one thread: a key or value row, and for each query head of the group its scores of a
// block and its sum.
std::size_t ThreadFloats(const AttentionParams& p) noexcept {
  const auto d = static_cast<std::size_t>(p.head_dim);
  return d + Group(p) * (kKeyBlock + d + 2);
}

float Dot(const float* a, const float* b, std::int64_t n) noexcept {
  constexpr std::int64_t kLanes = 8;  // independent sums that the compiler can keep in vectors
  float sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) sums[l] += a[i + l] * b[i + l];
  }
  float sum = 0;
  for (; i < n; ++i) sum += a[i] * b[i];
  for (const float s : sums) sum += s;
  return sum;
}

void FillNaN(float* out, std::int64_t n) {
  std::fill_n(out, n, std::numeric_limits<float>::quiet_NaN());
}

// One query row and one key-value head, with all query heads that share it.
void AttendGroup(const AttentionArgs& args, const AttentionRows& keys, std::int64_t row,
                 std::int64_t kv_head, float* scratch) {
  const AttentionParams& p = args.params;
  const std::int64_t d = p.head_dim;
  const auto group = static_cast<std::int64_t>(Group(p));
  const std::int64_t kv_cols = std::int64_t{p.kv_heads} * d;
  const std::int64_t at = (row * p.heads + kv_head * group) * d;
  const float* const q = args.q + at;
  float* const out = args.out + at;
  const AttentionRows::Range range = keys.Of(row);
  if (range.sequence < 0 || range.first >= range.last) return FillNaN(out, group * d);

  float* const line = scratch;
  float* const scores = line + d;
  float* const sums = scores + group * kKeyBlock;
  float* const most = sums + group * d;
  float* const weights = most + group;
  std::fill_n(sums, group * d, 0.0f);
  std::fill_n(most, group, -std::numeric_limits<float>::infinity());
  std::fill_n(weights, group, 0.0f);
  for (std::int64_t first = range.first; first < range.last; first += kKeyBlock) {
    const std::int64_t count = std::min(kKeyBlock, range.last - first);
    std::int64_t places[kKeyBlock];
    for (std::int64_t j = 0; j < count; ++j) {
      places[j] = keys.KeyRow(range.sequence, first + j);
      if (places[j] < 0) return FillNaN(out, group * d);
      LoadFloats(args.k, args.kv_type, places[j] * kv_cols + kv_head * d, d, line);
      for (std::int64_t h = 0; h < group; ++h) {
        scores[h * kKeyBlock + j] = Dot(q + h * d, line, d) * p.scale;
      }
    }
    for (std::int64_t h = 0; h < group; ++h) {
      float* const s = scores + h * kKeyBlock;
      const float before = most[h];
      most[h] = std::max(before, *std::max_element(s, s + count));
      const float shrink = std::exp(before - most[h]);
      weights[h] *= shrink;
      for (std::int64_t i = 0; i < d; ++i) sums[h * d + i] *= shrink;
      for (std::int64_t j = 0; j < count; ++j) weights[h] += s[j] = std::exp(s[j] - most[h]);
    }
    for (std::int64_t j = 0; j < count; ++j) {
      LoadFloats(args.v, args.kv_type, places[j] * kv_cols + kv_head * d, d, line);
      for (std::int64_t h = 0; h < group; ++h) {
        const float weight = scores[h * kKeyBlock + j];
        float* const sum = sums + h * d;
        for (std::int64_t i = 0; i < d; ++i) sum[i] += weight * line[i];
      }
    }
  }
  for (std::int64_t h = 0; h < group; ++h) {
    for (std::int64_t i = 0; i < d; ++i) out[h * d + i] = sums[h * d + i] / weights[h];
  }
}

}  // namespace

std::size_t AttentionWorkspace(const AttentionParams& params) {
  return static_cast<std::size_t>(HostPool().threads()) * ThreadFloats(params);
}

void Attention(const AttentionArgs& args, const AttentionRows& keys) {
  const std::int64_t kv_heads = args.params.kv_heads;
  const std::size_t own = ThreadFloats(args.params);
  const auto threads =
      static_cast<int>(std::min<std::size_t>(args.workspace_floats / own, 1 << 16));
  const auto attend = [&](int task, int thread) {
    AttendGroup(args, keys, task / kv_heads, task % kv_heads,
                args.workspace + static_cast<std::size_t>(thread) * own);
  };
  HostPool().Run(static_cast<int>(args.rows * kv_heads), attend, threads);
}

}  // namespace culet::ops
