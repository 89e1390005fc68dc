// Contest: the candidates of a tuning with their samples, and who is ahead of whom.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "culet/kernel.h"
#include "culet/tuner.h"

namespace culet {

/// Median and spread of some samples.
struct Estimate {
  double time_us = 0;
  double spread_us = 0;
  std::size_t samples = 0;
};

/// Requires: samples not empty.
Estimate EstimateOf(const std::vector<double>& samples);

class Contest {
 public:
  /// Fewer samples have no spread to speak of.
  static constexpr std::size_t kMinSamples = 3;

  struct Candidate {
    LaunchSpec spec;
    std::vector<double> samples = {};  ///< of the rounds, or while `scouted` of those before
    std::vector<double> duel = {};     ///< of the last duel with the default
    bool gone = false;                 ///< failed, or too slow
    bool beaten = false;               ///< lost its duel
    bool scouted = false;              ///< the next sample replaces those so far
  };

  Contest(const std::vector<LaunchSpec>& specs, double noise, double drop_ratio);

  int size() const noexcept { return static_cast<int>(candidates_.size()); }
  Candidate& operator[](int i) { return candidates_[static_cast<std::size_t>(i)]; }
  const Candidate& operator[](int i) const { return candidates_[static_cast<std::size_t>(i)]; }

  /// The first candidate that is not gone; -1 when all are.
  int Default() const;
  int alive() const;

  /// Takes a candidate out. `reason` must not be OK.
  void Remove(int i, Status reason);
  /// Takes out a candidate that is only too slow.
  void RemoveSlow(int i, std::string why);
  const std::vector<Dropped>& dropped() const noexcept { return dropped_; }

  /// Whether `a` is faster than `b` by more than the noise band. Samples of the same round are
  /// compared, so that a falling clock is no noise.
  bool Ahead(const std::vector<double>& a, const std::vector<double>& b) const;

  /// Whether more samples would help: neither is ahead, and the uncertainty of their ratio exceeds
  /// `noise`.
  bool Open(const std::vector<double>& a, const std::vector<double>& b) const;

  /// Whether another round may show that a candidate is ahead of the default.
  bool RoundsOpen() const;

  /// Ahead, and sampled often enough to know the band; with few samples, ahead by drop_ratio.
  bool SurelyAhead(const std::vector<double>& a, const std::vector<double>& b) const;

  /// By the rounds' samples: the best candidate that beats the default, or an earlier one within
  /// the noise of it; else the default. -1 if there is no sample.
  int Challenger(bool surely) const;

  /// Whether a duel has enough samples to be decided.
  bool Fought(int challenger, std::size_t pairs) const;
  bool WinsDuel(int challenger) const;
  bool DuelOpen(int challenger) const;

  /// The duel's estimate if there was one, else the rounds'. Requires: a sample.
  Estimate Standing(int i) const;

 private:
  bool Competes(int i) const;

  double noise_;
  double drop_ratio_;
  std::vector<Candidate> candidates_;
  std::vector<Dropped> dropped_;
};

/// "sm90_bf16/128x128x64 swizzle 1 splits 2".
std::string NameOf(const LaunchSpec& spec);

}  // namespace culet
