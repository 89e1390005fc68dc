// A machine that is known, to try the tuner on: true times, noise, failures, a clock of its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "culet/tuner.h"

namespace culet {

class NoKernel final : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;
  int Run(const GemmArgs&, int, int, Workspace&, cudaStream_t) override { return 0; }
};

// A machine with one kernel a candidate: true time, noise on top, a clock that runs with them.
class Machine {
 public:
  struct Entry {
    double time_us;
    int group = -1;  // candidates of one group share their tile; -1: a group of its own
    Status failure = {};
    int fails_at = 0;  // the sample that fails
  };

  explicit Machine(const std::vector<Entry>& entries, unsigned seed = 1) : random_(seed) {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      KernelDesc desc;
      desc.tile_m = entries[i].group >= 0 ? entries[i].group + 1 : 1000 + static_cast<int>(i);
      KernelInfo info;
      info.name = "k" + std::to_string(i);
      kernels_.push_back(std::make_unique<NoKernel>(desc, info));
      LaunchSpec spec;
      spec.kernel = kernels_.back().get();
      specs_.push_back(spec);
      entries_[spec.kernel] = entries[i];
    }
  }

  std::vector<LaunchSpec> specs() const { return specs_; }

  TunerOptions Options() {
    TunerOptions options;
    options.rounds = 5;
    options.noise = 0.02;
    options.clock_s = [this] { return clock_s; };
    return options;
  }

  // Runs the tuner to its end, or for `limit` answers.
  void Run(Tuner& tuner, int limit = std::numeric_limits<int>::max()) {
    double progress = tuner.progress();
    for (int answers = 0; answers < limit; ++answers) {
      const LaunchSpec* spec = tuner.Next();
      if (spec == nullptr) {
        EXPECT_EQ(tuner.progress(), 1.0);
        return;
      }
      Answer(tuner, *spec);
      EXPECT_GE(tuner.progress(), progress) << "progress fell";
      EXPECT_LE(tuner.progress(), 1.0);
      progress = tuner.progress();
      ASSERT_LT(order.size(), 100000u) << "does not end";
    }
  }

  int samples(int i) const { return static_cast<int>(std::ranges::count(order, i)); }

  double clock_s = 0;
  double noise = 0;                                  // relative, one-sided: disturbances add time
  double overhead_us = 0;                            // of a measurement on the clock
  std::function<double(int i, int sample)> time_of;  // overrides the true times
  std::vector<int> order;  // candidates in the order in which they were proposed

 private:
  void Answer(Tuner& tuner, const LaunchSpec& spec) {
    const Entry& entry = entries_.at(spec.kernel);
    const int i = std::stoi(spec.kernel->id().substr(1));
    const int sample = samples(i);
    order.push_back(i);
    if (!entry.failure.ok() && sample == entry.fails_at) {
      tuner.Drop(entry.failure);
      return;
    }
    double time_us = time_of ? time_of(i, sample) : entry.time_us;
    time_us *= 1 + noise * std::uniform_real_distribution<double>(0, 1)(random_);
    clock_s += (time_us + overhead_us) * 1e-6;
    tuner.Report(time_us);
  }

  std::mt19937 random_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<LaunchSpec> specs_;
  std::map<const Kernel*, Entry> entries_;
};

using Entries = std::vector<Machine::Entry>;

inline int IndexOf(const LaunchSpec& spec) { return std::stoi(spec.kernel->id().substr(1)); }

inline int WinnerOf(const Tuner& tuner) {
  const auto winner = tuner.Winner();
  EXPECT_TRUE(winner.ok()) << winner.status().ToString();
  return winner.ok() ? IndexOf(*winner) : -1;
}

inline std::string ReasonFor(const Tuner& tuner, int i) {
  for (const Dropped& dropped : tuner.dropped()) {
    if (IndexOf(dropped.spec) == i) return dropped.reason.ToString();
  }
  return {};
}

inline const Status kRefused(StatusCode::kUnsupported, "refused the launch");

}  // namespace culet
