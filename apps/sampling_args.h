// How a command is told how tokens are drawn.
#pragma once

#include <string>
#include <vector>

#include "culet/sampling.h"
#include "options.h"
#include "output.h"

namespace culet::cli {

/// The options --temperature --top-k --top-p --min-p --seed.
class SamplingArgs {
 public:
  void AddTo(const Command& command);

  /// What is wrong with the options given, in one sentence; empty when nothing is.
  std::string Misuse() const;

  /// Whether tokens are drawn, rather than the likeliest ones taken.
  bool draws() const { return options_.temperature > 0; }
  /// Of the run's sequence `index`, which has a seed of its own. The first call of a process draws
  /// the seed that --seed did not give.
  SamplingOptions OptionsOf(std::size_t index);
  /// "temperature 0.7, top-p 0.9, seed 5"
  std::string Describe();
  Json ToJson();

 private:
  std::uint64_t Seed();

  SamplingOptions options_;
  std::vector<Option> given_;  // all but --temperature
  Option seed_option_;
  bool seeded_ = false;
};

}  // namespace culet::cli
