// The statistics of repeated timings.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace culet {

/// The value below which a share `q` of the samples lies, linear between neighbours.
/// Requires: samples not empty, 0 <= q <= 1.
inline double Quantile(std::vector<double> samples, double q) {
  std::sort(samples.begin(), samples.end());
  const double position = q * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto above = std::min(below + 1, samples.size() - 1);
  return std::lerp(samples[below], samples[above], position - static_cast<double>(below));
}

inline double Median(std::vector<double> samples) { return Quantile(std::move(samples), 0.5); }

/// Half the interquartile range: half of all samples lie within about this of the median, however
/// far a few of them stray. 0 for one sample.
inline double HalfInterquartileRange(const std::vector<double>& samples) {
  return 0.5 * (Quantile(samples, 0.75) - Quantile(samples, 0.25));
}

}  // namespace culet
