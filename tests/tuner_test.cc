// The tuner against a machine that is known: true times, noise, failures and a clock of our own.
#include "culet/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace culet {
namespace {

using ::testing::HasSubstr;

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

int IndexOf(const LaunchSpec& spec) { return std::stoi(spec.kernel->id().substr(1)); }

int WinnerOf(const Tuner& tuner) {
  const auto winner = tuner.Winner();
  EXPECT_TRUE(winner.ok()) << winner.status().ToString();
  return winner.ok() ? IndexOf(*winner) : -1;
}

std::string ReasonFor(const Tuner& tuner, int i) {
  for (const Dropped& dropped : tuner.dropped()) {
    if (IndexOf(dropped.spec) == i) return dropped.reason.ToString();
  }
  return {};
}

const Status kRefused(StatusCode::kUnsupported, "refused the launch");

TEST(TunerTest, TheFastestWinsWithItsTimesAndTheDefaults) {
  Machine machine(Entries{{100}, {80}, {60}, {70}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  const auto winner = tuner.Winner();
  ASSERT_TRUE(winner.ok()) << winner.status().ToString();
  EXPECT_EQ(IndexOf(*winner), 2);
  EXPECT_DOUBLE_EQ(winner->time_us, 60);
  EXPECT_DOUBLE_EQ(winner->spread_us, 0);
  EXPECT_DOUBLE_EQ(winner->baseline_us, 100);
  EXPECT_EQ(winner->origin, Origin::kMeasured);
  EXPECT_FALSE(tuner.out_of_budget());
}

TEST(TunerTest, MedianAndHalfInterquartileRangeOfTheSamples) {
  Machine machine(Entries{{1}});
  const double times[] = {10, 50, 11, 13, 12};
  machine.time_of = [&](int, int sample) { return times[sample]; };
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  const auto winner = tuner.Winner();
  ASSERT_TRUE(winner.ok());
  EXPECT_DOUBLE_EQ(winner->time_us, 12);
  EXPECT_DOUBLE_EQ(winner->spread_us, 1);  // half of 13 - 11
  EXPECT_DOUBLE_EQ(winner->baseline_us, 12);
}

TEST(TunerTest, OneCandidateIsSampledRoundsTimesAndWins) {
  Machine machine(Entries{{42}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(machine.samples(0), 5);
  EXPECT_EQ(WinnerOf(tuner), 0);
}

TEST(TunerTest, RoundsAreInterleavedInTheOrderOfTheCandidates) {
  Machine machine(Entries{{100}, {101}, {102}});
  auto options = machine.Options();
  options.rounds = 3;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(machine.order, (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(TunerTest, NextRepeatsItselfUntilAnswered) {
  Machine machine(Entries{{100}, {90}});
  Tuner tuner(machine.specs(), machine.Options());
  tuner.Report(1);       // nothing was proposed: no effect
  tuner.Drop(kRefused);  // the same
  const LaunchSpec* first = tuner.Next();
  EXPECT_EQ(tuner.Next(), first);
  tuner.Report(100);
  EXPECT_NE(tuner.Next(), first);
  EXPECT_TRUE(tuner.dropped().empty());
}

TEST(TunerTest, TheDefaultStaysWithinTheNoise) {
  Machine machine(Entries{{100}, {98.5}, {99}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 0);
}

TEST(TunerTest, JustBeyondTheNoiseTheDefaultGoes) {
  Machine machine(Entries{{100}, {97.9}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 1);
}

TEST(TunerTest, AWideSpreadOfEitherWidensTheBand) {
  // 10 % faster, but the samples of one of the two stray by more than that.
  for (const int straying : {0, 1}) {
    Machine machine(Entries{{100}, {90}});
    machine.time_of = [=](int i, int sample) {
      const double stray[] = {0, 30, -20, 25, -15};
      return (i == 0 ? 100 : 90) + (i == straying ? stray[sample % 5] : 0);
    };
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    EXPECT_EQ(WinnerOf(tuner), 0) << straying;
  }
}

TEST(TunerTest, EqualCandidatesKeepTheDefault) {
  Machine machine(Entries{{50}, {50}, {50}, {50}, {50}, {50}, {50}, {50}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 0);
}

TEST(TunerTest, AmongNearTiesTheFirstWins) {
  Machine machine(Entries{{100}, {90}, {60.5}, {60}, {60.3}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
}

TEST(TunerTest, ANearTieThatDoesNotBeatTheDefaultIsNoStandIn) {
  // 1 is within the band of 2 but also of the default; 2 beats the default.
  Machine machine(Entries{{100}, {98.5}, {97}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
  EXPECT_EQ(machine.samples(0), 10) << "there was more than one duel";
}

TEST(TunerTest, RerunsAgreeWhateverTheNoiseWithinTheBand) {
  std::set<int> winners;
  for (unsigned seed = 0; seed < 200; ++seed) {
    Machine machine(Entries{{100}, {99.5}, {80}, {80.2}, {79.9}, {120}}, seed);
    machine.noise = 0.015;
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    winners.insert(WinnerOf(tuner));
  }
  EXPECT_EQ(winners, std::set<int>{2});
}

TEST(TunerTest, RunsWithEqualTimesProposeTheSameSequence) {
  std::vector<int> first;
  for (int run = 0; run < 2; ++run) {
    Machine machine(
        Entries{{100, 0}, {60, 1}, {61, 2}, {59, 3}, {70, 4}, {75, 5}, {58, 6}, {57, 6}}, 7);
    machine.noise = 0.1;
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    if (run == 0) first = machine.order;
    EXPECT_EQ(machine.order, first);
  }
}

// Property: whatever the machine, the winner is not slower than the default, nor than the best by
// more than band and noise allow.
TEST(TunerTest, NeverSlowerThanTheDefault) {
  std::mt19937 random(3);
  for (unsigned seed = 0; seed < 300; ++seed) {
    Entries entries;
    const int count = 1 + static_cast<int>(random() % 30);
    for (int i = 0; i < count; ++i) {
      entries.push_back({std::uniform_real_distribution<double>(50, 200)(random),
                         static_cast<int>(random() % 12)});
      if (random() % 8 == 0) {
        entries.back().failure = kRefused;
        entries.back().fails_at = static_cast<int>(random() % 8);
      }
    }
    entries[0].failure = {};
    Machine machine(entries, seed);
    machine.noise = 0.05;
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    const auto winner = tuner.Winner();
    ASSERT_TRUE(winner.ok());
    EXPECT_LE(winner->time_us, winner->baseline_us);
    EXPECT_LE(entries[static_cast<std::size_t>(IndexOf(*winner))].time_us,
              entries[0].time_us * 1.0001);
    EXPECT_EQ(ReasonFor(tuner, IndexOf(*winner)), "") << "a dropped candidate won";
    for (const Dropped& dropped : tuner.dropped()) EXPECT_FALSE(dropped.reason.ok());
  }
}

TEST(TunerTest, TheWinnerMeetsTheDefaultAgainInTurn) {
  Machine machine(Entries{{100}, {90}, {50}});
  machine.time_of = [](int i, int sample) {
    const double rounds[] = {100, 90, 50}, duel[] = {104, 90, 55};
    return sample < 5 ? rounds[i] : duel[i];
  };
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  ASSERT_GE(machine.order.size(), 10u);
  const std::vector<int> last(machine.order.end() - 10, machine.order.end());
  EXPECT_EQ(last, (std::vector<int>{0, 2, 0, 2, 0, 2, 0, 2, 0, 2}));
  EXPECT_DOUBLE_EQ(tuner.Winner()->time_us, 55);
  EXPECT_DOUBLE_EQ(tuner.Winner()->baseline_us, 104);
}

TEST(TunerTest, ALuckyCandidateLosesTheDuelAndTheNextOneFights) {
  // 1 looks best in the rounds and is the default's equal afterwards; 2 is what it seems.
  Machine machine(Entries{{100}, {100}, {85}});
  machine.time_of = [](int i, int sample) {
    if (i == 1) return sample < 5 ? 80.0 : 100.0;
    return i == 0 ? (sample < 10 ? 100.0 : 104.0) : 85.0;
  };
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  const auto winner = tuner.Winner();
  ASSERT_TRUE(winner.ok());
  EXPECT_EQ(IndexOf(*winner), 2);
  EXPECT_DOUBLE_EQ(winner->time_us, 85);
  EXPECT_EQ(machine.samples(0), 5 + 2 * 5);
  EXPECT_DOUBLE_EQ(winner->baseline_us, 104) << "each duel has samples of its own";
}

TEST(TunerTest, AWinnerThatSlowsDownInItsDuelLeavesTheDefault) {
  Machine machine(Entries{{100}, {100}});
  machine.time_of = [](int i, int sample) { return i == 1 && sample < 5 ? 50.0 : 100.0; };
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 0);
}

TEST(TunerTest, SlowCandidatesGoAfterARoundWithAReason) {
  Machine machine(Entries{{100}, {160}, {130}, {120}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(machine.samples(1), 1);  // beyond 1.25 squared at once
  EXPECT_EQ(machine.samples(2), 2);  // beyond 1.25 when a second sample confirms it
  EXPECT_EQ(machine.samples(3), 5);
  EXPECT_THAT(ReasonFor(tuner, 1), HasSubstr("1.60 times the leading 100 us"));
  EXPECT_THAT(ReasonFor(tuner, 2), HasSubstr("1.30 times"));
  EXPECT_EQ(ReasonFor(tuner, 3), "");
}

TEST(TunerTest, OneDisturbedSampleDropsNobody) {
  for (int disturbed = 0; disturbed < 5; ++disturbed) {
    Machine machine(Entries{{100}, {80}});
    machine.time_of = [&](int i, int sample) {
      return i == 0 ? 100.0 : (sample == disturbed ? 150.0 : 80.0);
    };
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    EXPECT_EQ(WinnerOf(tuner), 1) << disturbed;
  }
}

TEST(TunerTest, ASlowDefaultStaysToBeComparedWith) {
  Machine machine(Entries{{1000}, {90}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(ReasonFor(tuner, 0), "");
  const auto winner = tuner.Winner();
  ASSERT_TRUE(winner.ok());
  EXPECT_EQ(IndexOf(*winner), 1);
  EXPECT_DOUBLE_EQ(winner->baseline_us, 1000);
}

TEST(TunerTest, FailuresAreDroppedWithTheirReasonAndNeverTimedAgain) {
  Machine machine(Entries{{100}, {1, -1, kRefused, 0}, {90}, {88, -1, kRefused, 3}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
  EXPECT_EQ(machine.samples(1), 1);
  EXPECT_EQ(machine.samples(3), 4);
  EXPECT_EQ(ReasonFor(tuner, 1), "UNSUPPORTED: refused the launch");
  EXPECT_EQ(ReasonFor(tuner, 3), "UNSUPPORTED: refused the launch");
  for (const LaunchSpec& spec : tuner.Standings()) EXPECT_NE(IndexOf(spec) % 2, 1);
}

TEST(TunerTest, TimesThatAreNoneDropTheCandidate) {
  const double none[] = {0, -1, std::nan(""), std::numeric_limits<double>::infinity(),
                         -std::numeric_limits<double>::infinity()};
  for (const double time_us : none) {
    Machine machine(Entries{{100}, {50}});
    machine.time_of = [&](int i, int) { return i == 0 ? 100 : time_us; };
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    EXPECT_EQ(WinnerOf(tuner), 0) << time_us;
    EXPECT_THAT(ReasonFor(tuner, 1), HasSubstr("the time measured was"));
    EXPECT_EQ(machine.samples(1), 1);
  }
}

TEST(TunerTest, ADropWithoutAReasonGetsOne) {
  Machine machine(Entries{{100}});
  Tuner tuner(machine.specs(), machine.Options());
  ASSERT_NE(tuner.Next(), nullptr);
  tuner.Drop(OkStatus());
  ASSERT_EQ(tuner.dropped().size(), 1u);
  EXPECT_FALSE(tuner.dropped()[0].reason.ok());
}

TEST(TunerTest, AllDroppedNamesEveryReason) {
  Machine machine(
      Entries{{1, -1, kRefused, 0}, {1, -1, Status(StatusCode::kWrongResult, "is off"), 0}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  const auto winner = tuner.Winner();
  ASSERT_FALSE(winner.ok());
  EXPECT_EQ(winner.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(winner.status().message(), HasSubstr("k0 swizzle 0 splits 1: UNSUPPORTED: refused"));
  EXPECT_THAT(winner.status().message(), HasSubstr("k1 swizzle 0 splits 1: WRONG_RESULT: is off"));
  EXPECT_TRUE(tuner.Standings().empty());
}

TEST(TunerTest, NoCandidates) {
  Tuner tuner({});
  EXPECT_EQ(tuner.Next(), nullptr);
  EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(tuner.progress(), 1.0);
}

TEST(TunerTest, TheNextReplacesADefaultThatFails) {
  for (const int fails_at : {0, 1, 4, 5, 6, 9}) {  // in the rounds, and in the duel with 2
    Machine machine(Entries{{100, -1, kRefused, fails_at}, {70}, {60}});
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    const auto winner = tuner.Winner();
    ASSERT_TRUE(winner.ok());
    EXPECT_EQ(IndexOf(*winner), 2) << fails_at;
    EXPECT_DOUBLE_EQ(winner->baseline_us, 70) << fails_at;
  }
}

TEST(TunerTest, AChallengerThatFailsInItsDuelIsFollowedByTheNext) {
  Machine machine(Entries{{100}, {50, -1, kRefused, 6}, {60}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
}

// --- Groups.

Entries TenGroups() {
  // Leaders at 100, 110, ... 190; each group's second member is 1 us slower.
  Entries entries;
  for (int g = 0; g < 10; ++g) entries.push_back({100.0 + 10 * g, g});
  for (int g = 0; g < 10; ++g) entries.push_back({101.0 + 10 * g, g});
  return entries;
}

TEST(TunerTest, OnlyTheBestGroupsGoOnWhole) {
  Machine machine(TenGroups());
  auto options = machine.Options();
  options.clusters = 3;
  options.drop_ratio = 10;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  for (int i = 0; i < 20; ++i) {
    const int group = i % 10;
    if (group < 3) {
      EXPECT_GE(machine.samples(i), 5) << i;
    } else {
      EXPECT_EQ(machine.samples(i), i < 10 ? 2 : 0) << i;
      EXPECT_THAT(ReasonFor(tuner, i), HasSubstr(std::to_string(group) + " groups were faster"))
          << i;
    }
  }
}

TEST(TunerTest, TheDefaultsGroupAlwaysGoesOn) {
  auto entries = TenGroups();
  entries[0].time_us = 500;  // the default leads the slowest group,
  entries[10].time_us = 70;  // whose second member is the best of all
  Machine machine(entries);
  auto options = machine.Options();
  options.clusters = 3;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 10);
}

TEST(TunerTest, AKeptGroupsSlowLeaderDoesNotTakeItsMembersAway) {
  // Group 1's leader is 1.4 times the best, beyond drop_ratio; a member is the best of all.
  auto entries = TenGroups();
  for (std::size_t i = 2; i < 10; ++i) entries[i].time_us = 400;
  entries[1].time_us = 140;
  entries[11].time_us = 50;
  Machine machine(entries);
  auto options = machine.Options();
  options.clusters = 2;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 11);
}

TEST(TunerTest, FewGroupsNeedNoLeaders) {
  // With no more groups than `clusters` every member is sampled: no leader decides for others.
  Machine machine(Entries{{100, 0}, {110, 1}, {300, 2}, {50, 2}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 3);
}

TEST(TunerTest, AFailingLeaderIsReplaced) {
  auto entries = TenGroups();
  entries[4].failure = kRefused;
  entries[14].time_us = 40;
  Machine machine(entries);
  auto options = machine.Options();
  options.clusters = 2;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 14);
}

TEST(TunerTest, ADisturbedLeaderDoesNotCostItsGroup) {
  auto entries = TenGroups();
  Machine machine(entries);
  machine.time_of = [&](int i, int sample) {
    if (i % 10 == 9) return sample == 0 ? 1000.0 : 60.0;  // the best group, disturbed once
    return entries[static_cast<std::size_t>(i)].time_us;
  };
  auto options = machine.Options();
  options.clusters = 2;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 9);
}

TEST(TunerTest, AllLeadersFailing) {
  auto entries = TenGroups();
  for (auto& entry : entries) entry.failure = kRefused;
  Machine machine(entries);
  auto options = machine.Options();
  options.clusters = 2;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(tuner.dropped().size(), 20u);
}

TEST(TunerTest, MoreThanMaxCandidatesKeepsTheBestPredicted) {
  Entries entries(40, Machine::Entry{100});
  Machine machine(entries);
  auto specs = machine.specs();
  for (std::size_t i = 0; i < specs.size(); ++i) specs[i].time_us = 100 + (i * 7) % 40;
  auto options = machine.Options();
  options.max_candidates = 4;
  Tuner tuner(specs, options);
  machine.Run(tuner);
  const std::set<int> seen(machine.order.begin(), machine.order.end());
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_TRUE(seen.contains(0)) << "the default is always among them";
}

// --- Budget.

TEST(TunerTest, ASpentBudgetMeasuresNothing) {
  for (const double budget_s : {-1.0, std::nan("")}) {
    Machine machine(Entries{{100}, {50}});
    auto options = machine.Options();
    options.budget_s = budget_s;
    Tuner tuner(machine.specs(), options);
    EXPECT_EQ(tuner.Next(), nullptr);
    EXPECT_TRUE(tuner.out_of_budget());
    EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(tuner.progress(), 1.0);
  }
}

TEST(TunerTest, TheBudgetRunsFromConstruction) {
  Machine machine(Entries{{100}, {50}});
  auto options = machine.Options();
  options.budget_s = 1;
  Tuner tuner(machine.specs(), options);
  machine.clock_s = 1.5;  // spent on making inputs
  EXPECT_EQ(tuner.Next(), nullptr);
  EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kResourceExhausted);
}

TEST(TunerTest, BeforeTheFirstSampleThereIsNoWinner) {
  Machine machine(Entries{{100}});
  Tuner tuner(machine.specs(), machine.Options());
  EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kFailedPrecondition);
}

TEST(TunerTest, ABudgetThatEndsInTheFirstRoundTrustsOnlyLargeDifferences) {
  for (const double other_us : {50.0, 85.0}) {
    Machine machine(Entries{{100}, {other_us}, {100}, {100}});
    machine.overhead_us = 1e6;  // a second a measurement
    auto options = machine.Options();
    options.budget_s = 2.5;
    Tuner tuner(machine.specs(), options);
    machine.Run(tuner);
    EXPECT_TRUE(tuner.out_of_budget());
    EXPECT_EQ(machine.order, (std::vector<int>{0, 1, 2}));
    // 100 against 85 in one sample each may be chance; 100 against 50 is not.
    EXPECT_EQ(WinnerOf(tuner), other_us < 80 ? 1 : 0);
  }
}

// Wherever it ends, the verdict is one that the samples support.
TEST(TunerTest, ABudgetMayEndAnywhere) {
  auto entries = TenGroups();
  entries[5].time_us = 60;
  for (int limit = 1; limit < 80; ++limit) {
    Machine machine(entries);
    machine.overhead_us = 1e6;
    auto options = machine.Options();
    options.budget_s = limit - 0.5;
    Tuner tuner(machine.specs(), options);
    machine.Run(tuner);
    const auto winner = tuner.Winner();
    ASSERT_TRUE(winner.ok()) << limit;
    EXPECT_LE(winner->time_us, winner->baseline_us) << limit;
    EXPECT_TRUE(IndexOf(*winner) == 0 || IndexOf(*winner) == 5) << limit;
    EXPECT_LE(static_cast<int>(machine.order.size()), limit);
    EXPECT_TRUE(tuner.out_of_budget() || IndexOf(*winner) == 5);
  }
}

TEST(TunerTest, WinnerMayBeAskedAtAnyTime) {
  for (int answers = 1; answers < 40; ++answers) {
    Machine machine(Entries{{100}, {90}, {50, -1, kRefused, 7}, {130}});
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner, answers);
    const auto winner = tuner.Winner();
    ASSERT_TRUE(winner.ok()) << answers;
    EXPECT_LE(winner->time_us, winner->baseline_us) << answers;
  }
}

TEST(TunerTest, ProgressFollowsATightBudget) {
  Machine machine(Entries(20, Machine::Entry{100}));
  machine.overhead_us = 1e6;
  auto options = machine.Options();
  options.budget_s = 10;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner, 5);
  EXPECT_NEAR(tuner.progress(), 0.5, 0.01);
}

TEST(TunerTest, OptionsThatMakeNoSenseAreMadeSafe) {
  Machine machine(Entries{{100}, {50}, {90}});
  auto options = machine.Options();
  options.rounds = 0;
  options.clusters = -3;
  options.max_candidates = 0;
  options.drop_ratio = std::nan("");
  options.noise = -1;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 0);  // max_candidates of 0 leaves the default
  options.max_candidates = 24;
  options.clusters = 5;
  Machine again(Entries{{100}, {50}, {90}});
  options.clock_s = nullptr;
  options.noise = std::nan("");
  Tuner with_own_clock(again.specs(), options);
  again.Run(with_own_clock);
  EXPECT_EQ(WinnerOf(with_own_clock), 1);
}

TEST(TunerTest, StandingsAreFastestFirst) {
  Machine machine(Entries{{100}, {80}, {90}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  const auto standings = tuner.Standings();
  ASSERT_EQ(standings.size(), 3u);
  EXPECT_EQ(IndexOf(standings[0]), 1);
  EXPECT_EQ(IndexOf(standings[1]), 2);
  EXPECT_EQ(IndexOf(standings[2]), 0);
  EXPECT_EQ(standings[0].origin, Origin::kMeasured);
  EXPECT_EQ(IndexOf(*tuner.Winner()), 1);
}

}  // namespace
}  // namespace culet
