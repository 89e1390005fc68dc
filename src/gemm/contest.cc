#include "gemm/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/stats.h"

namespace culet {
namespace {

// Of the samples of one turn each.
std::vector<double> RatiosOf(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t turn = 0; turn < std::min(a.size(), b.size()); ++turn) {
    ratios.push_back(a[turn] / b[turn]);
  }
  return ratios;
}

// How well a median of ratios is known, and nobody is ahead by less: of nine samples and fewer half
// their interquartile range, which is one and a half times the standard error of nine.
double ErrorOfMedian(const std::vector<double>& samples) {
  const double share = std::min(1.0, 3 / std::sqrt(static_cast<double>(samples.size())));
  return share * HalfInterquartileRange(samples);
}

}  // namespace

Estimate EstimateOf(const std::vector<double>& samples) {
  return {Median(samples), HalfInterquartileRange(samples), samples.size()};
}

std::string NameOf(const LaunchSpec& spec) {
  return fmt::format("{} swizzle {} splits {}{}{}",
                     spec.kernel != nullptr ? spec.kernel->id() : "null", spec.swizzle, spec.splits,
                     spec.variant != 0 ? fmt::format(" variant {}", spec.variant) : "",
                     spec.serial ? " serial" : "");
}

Contest::Contest(const std::vector<LaunchSpec>& specs, double noise, double drop_ratio)
    : noise_(noise), drop_ratio_(drop_ratio) {
  for (const LaunchSpec& spec : specs) candidates_.push_back(Candidate{.spec = spec});
}

int Contest::Default() const {
  const auto first = std::ranges::find(candidates_, false, &Candidate::gone);
  return first != candidates_.end() ? static_cast<int>(first - candidates_.begin()) : -1;
}

int Contest::alive() const {
  return static_cast<int>(std::ranges::count(candidates_, false, &Candidate::gone));
}

void Contest::Remove(int i, Status reason) {
  (*this)[i].gone = true;
  dropped_.push_back({(*this)[i].spec, std::move(reason)});
}

void Contest::RemoveSlow(int i, std::string why) {
  Remove(i, Status(StatusCode::kResourceExhausted, std::move(why)));
}

bool Contest::Ahead(const std::vector<double>& a, const std::vector<double>& b) const {
  const std::vector<double> ratios = RatiosOf(a, b);
  return Median(a) < Median(b) && 1 - Median(ratios) > std::max(noise_, ErrorOfMedian(ratios));
}

bool Contest::Open(const std::vector<double>& a, const std::vector<double>& b) const {
  return !Ahead(a, b) && !Ahead(b, a) && ErrorOfMedian(RatiosOf(a, b)) > noise_;
}

bool Contest::RoundsOpen() const {
  const int standard = Default();
  if (standard < 0 || !Competes(standard)) return false;
  for (int i = 0; i < size(); ++i) {
    if (i != standard && Competes(i) && Open((*this)[i].samples, (*this)[standard].samples)) {
      return true;
    }
  }
  return false;
}

bool Contest::SurelyAhead(const std::vector<double>& a, const std::vector<double>& b) const {
  if (!Ahead(a, b)) return false;
  return std::min(a.size(), b.size()) >= kMinSamples || Median(a) * drop_ratio_ < Median(b);
}

bool Contest::Competes(int i) const {
  const Candidate& candidate = (*this)[i];
  return !candidate.gone && !candidate.beaten && !candidate.samples.empty();
}

int Contest::Challenger(bool surely) const {
  int best = -1;
  double best_us = INFINITY;
  for (int i = 0; i < size(); ++i) {
    if (!Competes(i)) continue;
    const double time_us = Median((*this)[i].samples);
    if (time_us < best_us) {
      best = i;
      best_us = time_us;
    }
  }
  const int standard = Default();
  if (standard < 0) return -1;
  if ((*this)[standard].samples.empty()) return best;
  const std::vector<double>& slowest = (*this)[standard].samples;
  const auto beats_default = [&](int i) {
    const std::vector<double>& samples = (*this)[i].samples;
    return surely ? SurelyAhead(samples, slowest) : Ahead(samples, slowest);
  };
  if (best < 0 || best == standard || !beats_default(best)) return standard;
  // The first within `noise` of it, not the fastest: near ties then fall the same way in every run.
  const double near_us = Median((*this)[best].samples) / (1 - noise_);
  for (int i = 0; i < best; ++i) {
    if (!Competes(i) || Median((*this)[i].samples) > near_us) continue;
    if (beats_default(i)) return i;
  }
  return best;
}

bool Contest::Fought(int challenger, std::size_t pairs) const {
  return (*this)[challenger].duel.size() >= pairs && (*this)[Default()].duel.size() >= pairs;
}

bool Contest::WinsDuel(int challenger) const {
  return Ahead((*this)[challenger].duel, (*this)[Default()].duel);
}

bool Contest::DuelOpen(int challenger) const {
  return Open((*this)[challenger].duel, (*this)[Default()].duel);
}

Estimate Contest::Standing(int i) const {
  const Candidate& candidate = (*this)[i];
  return EstimateOf(candidate.duel.size() >= kMinSamples ? candidate.duel : candidate.samples);
}

}  // namespace culet
