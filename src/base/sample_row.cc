#include "base/sample_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "base/sampling_math.h"

namespace culet {
namespace sampling {
namespace {

// Larger for likelier tokens, of equals for the first.
std::uint64_t KeyOf(float logit, std::size_t token) {
  return std::uint64_t{OrderOf(logit)} << 32 | (0xFFFFFFFFu - static_cast<std::uint32_t>(token));
}

// The first NaN, else the first of the largest.
std::size_t LargestOf(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size() && !std::isnan(logits[best]); ++i) {
    if (logits[i] > logits[best] || std::isnan(logits[i])) best = i;
  }
  return best;
}

// The smallest key that top_k and top_p keep; 0 for all. `keys`: of the tokens with a weight.
std::uint64_t LeastKept(std::span<std::uint64_t> keys, const Row& row, float largest) {
  const auto weight = [&](std::uint64_t key) {
    return WeightOf(ValueOf(static_cast<std::uint32_t>(key >> 32)), largest, row.scale);
  };
  const auto sum = [&](std::size_t begin, std::size_t end) {
    std::uint64_t total = 0;
    for (std::size_t i = begin; i < end; ++i) total += weight(keys[i]);
    return total;
  };
  const auto split = [&](std::size_t begin, std::size_t at, std::size_t end) {
    const auto first = keys.begin();
    std::nth_element(first + static_cast<std::ptrdiff_t>(begin),
                     first + static_cast<std::ptrdiff_t>(at),
                     first + static_cast<std::ptrdiff_t>(end), std::greater<>());
  };
  const std::size_t all = keys.size();
  if (row.top_k > 0 && row.top_k < all) {
    split(0, row.top_k - 1, all);
    keys = keys.first(row.top_k);
  }
  if (row.top_p < kOne) {
    // Halves: the upper one is kept as a whole, or holds the end.
    std::uint64_t left = std::max<std::uint64_t>(ShareOf(sum(0, keys.size()), row.top_p), 1);
    std::size_t begin = 0, end = keys.size();
    while (end - begin > 1) {
      const std::size_t middle = begin + (end - begin) / 2;
      split(begin, middle, end);
      const std::uint64_t upper = sum(begin, middle);
      if (upper >= left) {
        end = middle;
      } else {
        left -= upper;
        begin = middle;
      }
    }
    keys = keys.first(end);
  }
  return keys.size() == all ? 0 : *std::ranges::min_element(keys);
}

}  // namespace

std::int32_t SampleRow(std::span<const float> logits, const std::int32_t* options,
                       std::uint64_t draw, std::span<std::uint64_t> scratch) {
  const Row row = ReadRow(options);
  const std::size_t likeliest = LargestOf(logits);
  const float largest = logits[likeliest];
  if (!(row.scale > 0) || !std::isfinite(largest)) return static_cast<std::int32_t>(likeliest);
  std::uint64_t least = 0;
  if (row.top_k > 0 || row.top_p < kOne) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (WeightOf(logits[i], largest, row.scale) > 0) scratch[count++] = KeyOf(logits[i], i);
    }
    least = LeastKept(scratch.first(count), row, largest);
  }
  const auto weight = [&](std::size_t i) {
    const std::uint64_t its = WeightOf(logits[i], largest, row.scale);
    return its >= row.min_p && KeyOf(logits[i], i) >= least ? its : 0;
  };
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) total += weight(i);
  std::uint64_t left = MulHigh64(RandomBits(row.seed, draw), total);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const std::uint64_t its = weight(i);
    if (left < its) return static_cast<std::int32_t>(i);
    left -= its;
  }
  return static_cast<std::int32_t>(likeliest);  // options that nobody packed
}

}  // namespace sampling

namespace {

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

}  // namespace

Status CheckSampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0) || std::isinf(options.temperature)) {
    return Invalid(
        fmt::format("temperature is {}; give 0 or a number above it", options.temperature));
  }
  if (options.top_k < 0) return Invalid(fmt::format("top_k is {}; give 0 or more", options.top_k));
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return Invalid(fmt::format("top_p is {}; give a number above 0, at most 1", options.top_p));
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return Invalid(fmt::format("min_p is {}; give a number from 0 to 1", options.min_p));
  }
  return {};
}

SamplingRow PackSampling(const SamplingOptions& options) {
  constexpr double kLog2E = 1.4426950408889634;
  const double one = static_cast<double>(sampling::kOne);
  const double scale = options.temperature > 0 ? kLog2E / options.temperature : 0;
  const auto parts = [&](float share) {
    return static_cast<std::uint64_t>(std::ceil(static_cast<double>(share) * one));
  };
  SamplingRow row{};
  const auto set = [&](std::size_t at, std::uint64_t value) {
    row[at] = static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
    row[at + 1] = static_cast<std::int32_t>(static_cast<std::uint32_t>(value >> 32));
  };
  // The least temperatures have no finite scale in single precision.
  constexpr double kMost = 3e38;
  row[0] = std::bit_cast<std::int32_t>(static_cast<float>(std::min(scale, kMost)));
  row[1] = options.top_k;
  set(2, parts(options.top_p));
  set(4, parts(options.min_p));
  set(6, options.seed);
  return row;
}

Result<int> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                        std::uint64_t draw) {
  CULET_RETURN_IF_ERROR(CheckSampling(options));
  if (logits.empty()) return Invalid("there are no logits; give one a token of the vocabulary");
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (std::isinf(logits[i]) && logits[i] > 0)) {
      return Invalid(fmt::format("logit {} is {}; give numbers", i, logits[i]));
    }
    any |= !std::isinf(logits[i]);
  }
  if (!any) return Invalid("every logit is minus infinity; leave a token that can be drawn");
  std::vector<std::uint64_t> scratch(logits.size());
  return sampling::SampleRow(logits, PackSampling(options).data(), draw, scratch);
}

}  // namespace culet
