// Sampling as it is defined: all tokens sorted.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "base/float_types.h"
#include "base/sampling_math.h"
#include "graph/reference.h"

namespace culet {
namespace {

std::size_t LargestOf(const std::vector<float>& logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size() && !std::isnan(logits[best]); ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[i])) best = i;
  }
  return best;
}

std::size_t Draw(const std::vector<float>& logits, const sampling::Row& row, std::uint64_t draw) {
  const std::size_t likeliest = LargestOf(logits);
  const float largest = logits[likeliest];
  if (!(row.scale > 0) || !std::isfinite(largest)) return likeliest;
  std::vector<std::uint64_t> weights;
  for (const float logit : logits) {
    weights.push_back(sampling::WeightOf(logit, largest, row.scale));
  }
  std::vector<std::size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), std::size_t{0});
  std::ranges::stable_sort(tokens,
                           [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const auto total = [&] {
    std::uint64_t sum = 0;
    for (const std::size_t token : tokens) sum += weights[token];
    return sum;
  };
  if (row.top_k > 0 && row.top_k < tokens.size()) tokens.resize(row.top_k);
  if (row.top_p < sampling::kOne) {
    const std::uint64_t bound = std::max<std::uint64_t>(sampling::ShareOf(total(), row.top_p), 1);
    std::uint64_t sum = 0;
    std::size_t kept = 0;
    while (kept < tokens.size() && sum < bound) sum += weights[tokens[kept++]];
    tokens.resize(kept);
  }
  std::erase_if(tokens, [&](std::size_t token) { return weights[token] < row.min_p; });
  std::ranges::sort(tokens);
  std::uint64_t left = sampling::MulHigh64(sampling::RandomBits(row.seed, draw), total());
  for (const std::size_t token : tokens) {
    if (left < weights[token]) return token;
    left -= weights[token];
  }
  return likeliest;
}

}  // namespace

void ReferenceSample(const NodeLaunch& launch) {
  const Shape shape = launch.input_node(0).shape;
  const auto* const options = FromDevicePtr<const std::int32_t>(launch.input(1));
  const auto* const draws = FromDevicePtr<const std::int32_t>(launch.input(2));
  std::vector<float> logits(static_cast<std::size_t>(shape.cols));
  for (std::int64_t r = 0; r < shape.rows; ++r) {
    for (std::int64_t c = 0; c < shape.cols; ++c) {
      logits[static_cast<std::size_t>(c)] =
          static_cast<float>(LoadAsDouble(FromDevicePtr<const void>(launch.input(0)),
                                          launch.input_node(0).type, r * shape.cols + c));
    }
    const std::uint32_t draw =
        static_cast<std::uint32_t>(draws[r]) + launch.node().params.int_param;
    FromDevicePtr<std::int32_t>(launch.output)[r] = static_cast<std::int32_t>(
        Draw(logits, sampling::ReadRow(options + r * sampling::kWords), draw));
  }
}

}  // namespace culet
