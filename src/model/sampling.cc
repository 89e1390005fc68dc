#include "culet/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace culet {
namespace {

Status Invalid(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

Status CheckOptions(const SamplingOptions& options) {
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

// The index of the largest, of equals the first.
Result<std::size_t> Largest(std::span<const float> logits) {
  if (logits.empty()) return Invalid("there are no logits; give one a token of the vocabulary");
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || (std::isinf(logits[i]) && logits[i] > 0)) {
      return Invalid(fmt::format("logit {} is {}; give numbers", i, logits[i]));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (std::isinf(logits[best])) {
    return Invalid("every logit is minus infinity; leave a token that can be drawn");
  }
  return best;
}

// A number from 0 to 1, 1 excluded: SplitMix64.
double Random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  std::uint64_t bits = state;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  bits ^= bits >> 31;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

struct Candidate {
  std::size_t token;
  double weight;  // its probability over that of the likeliest
};

bool LessLikely(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight < b.weight : a.token > b.token;
}

// Those that top_k and top_p leave. A heap gives the likeliest first without sorting the rest.
std::vector<Candidate> Likeliest(std::vector<Candidate> all, const SamplingOptions& options) {
  const std::size_t most = options.top_k > 0
                               ? std::min(all.size(), static_cast<std::size_t>(options.top_k))
                               : all.size();
  std::ranges::make_heap(all, LessLikely);
  const auto take = [&] {
    std::ranges::pop_heap(all, LessLikely);
    const Candidate taken = all.back();
    all.pop_back();
    return taken;
  };
  std::vector<Candidate> kept;
  double total = 0;
  if (most < all.size()) {
    while (kept.size() < most) kept.push_back(take());
    for (const Candidate& candidate : kept) total += candidate.weight;
  } else {
    for (const Candidate& candidate : all) total += candidate.weight;
  }
  double sum = 0;
  for (std::size_t i = 0; i < most; ++i) {
    if (i == kept.size()) kept.push_back(take());
    sum += kept[i].weight;
    if (sum >= options.top_p * total) {
      kept.resize(i + 1);
      break;
    }
  }
  return kept;
}

}  // namespace

Result<int> SampleToken(std::span<const float> logits, const SamplingOptions& options,
                        std::uint64_t& state) {
  CULET_RETURN_IF_ERROR(CheckOptions(options));
  const auto largest = Largest(logits);
  if (!largest.ok()) return largest.status();
  if (options.temperature == 0) return static_cast<int>(*largest);

  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double below = static_cast<double>(logits[i]) - logits[*largest];
    const double weight = std::exp(below / options.temperature);
    if (weight > 0) candidates.push_back({i, weight});
  }
  if (options.top_k > 0 || options.top_p < 1) {
    candidates = Likeliest(std::move(candidates), options);
  }
  std::erase_if(candidates, [&](const Candidate& c) { return c.weight < options.min_p; });
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  double left = Random(state) * total;
  for (const Candidate& candidate : candidates) {
    left -= candidate.weight;
    if (left < 0) return static_cast<int>(candidate.token);
  }
  return static_cast<int>(candidates.back().token);  // what rounding left
}

}  // namespace culet
