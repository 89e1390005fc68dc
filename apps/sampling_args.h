// How a command is told how tokens are drawn.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "culet/sampling.h"
#include "output.h"

namespace culet::cli {

/// The options --temperature --top-k --top-p --min-p --seed.
class SamplingArgs {
 public:
  void AddTo(CLI::App& command);

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
  std::vector<const CLI::Option*> given_;  // all but --temperature
  const CLI::Option* seed_option_ = nullptr;
  bool seeded_ = false;
};

}  // namespace culet::cli
