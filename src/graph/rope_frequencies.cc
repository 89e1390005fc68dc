// Rotary frequencies and their scalings.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "culet/tensor.h"

namespace culet {
namespace {

// Low frequencies are divided by the factor, high ones stay, those between are mixed by how many
// turns fit into the original context.
double Llama3(double frequency, const RopeParams& p) {
  const double turns = p.original_context * frequency / (2 * std::numbers::pi);
  if (turns < p.low_freq_factor) return frequency / p.factor;
  if (turns > p.high_freq_factor) return frequency;
  const double high = (turns - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  return (1 - high) * frequency / p.factor + high * frequency;
}

// The index whose frequency makes so many turns over the original context.
double YarnIndex(double turns, const RopeParams& p) {
  return p.dims * std::log(p.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(p.theta));
}

// A ramp over the index, from frequencies that stay to those that are divided.
void Yarn(const RopeParams& p, std::vector<double>& frequencies) {
  double low = YarnIndex(p.beta_fast, p), high = YarnIndex(p.beta_slow, p);
  if (p.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(p.dims - 1));
  constexpr double kLeastWidth = 0.001;  // as the method's authors guard their division
  const double width = low == high ? kLeastWidth : high - low;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / width, 0.0, 1.0);
    frequencies[i] *= divided / p.factor + (1 - divided);
  }
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeParams& params) {
  std::vector<double> frequencies(static_cast<std::size_t>(params.dims / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(params.theta, -2.0 * static_cast<double>(i) / params.dims);
  }
  switch (params.scaling) {
    case RopeScaling::kNone:
      break;
    case RopeScaling::kLinear:
      for (double& frequency : frequencies) frequency /= params.factor;
      break;
    case RopeScaling::kLlama3:
      for (double& frequency : frequencies) frequency = Llama3(frequency, params);
      break;
    case RopeScaling::kYarn:
      Yarn(params, frequencies);
      break;
    case RopeScaling::kLongRope: {
      const std::vector<double>& by = params.is_long ? params.long_divisors : params.short_divisors;
      for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= by[i];
      break;
    }
  }
  return frequencies;
}

}  // namespace culet
