// The tuner against a machine that is known: rounds, noise, duels, failures.
#include "culet/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tuner_machine.h"

namespace culet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

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

TEST(TunerTest, RoundsAreInterleavedEachInAnOrderOfItsOwn) {
  Machine machine(Entries{{100}, {101}, {102}});
  auto options = machine.Options();
  options.rounds = 10;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  ASSERT_EQ(machine.order.size(), 30u);
  std::set<std::vector<int>> orders;
  for (auto turn = machine.order.begin(); turn != machine.order.end(); turn += 3) {
    EXPECT_THAT(std::vector<int>(turn, turn + 3), UnorderedElementsAre(0, 1, 2));
    orders.insert({turn, turn + 3});
  }
  EXPECT_GT(orders.size(), 2u);
  // A budget may end in the first: the best predicted come first.
  EXPECT_THAT(std::vector<int>(machine.order.begin(), machine.order.begin() + 3),
              ElementsAre(0, 1, 2));
}

// As at a GPU's power limit: a kernel that runs after a frugal one finds a higher clock.
TEST(TunerTest, NobodyGainsByWhomItComesBehind) {
  Machine machine(Entries{{100}, {94}, {91}, {96}, {98}});
  machine.time_of = [&](int i, int) {
    const double times[] = {100, 94, 91, 96, 98};
    const bool behind = machine.order.size() > 1 && machine.order.end()[-2] == 0;
    return times[i] * (behind ? 0.95 : 1.0);
  };
  auto options = machine.Options();
  options.rounds = 9;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
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

// 12 % faster, but the samples of one of the two stray by more than that.
Machine Straying(int straying) {
  Machine machine(Entries{{100}, {88}});
  machine.time_of = [=](int i, int sample) {
    const double stray[] = {0, 30, -20, 25, -15};
    return (i == 0 ? 100 : 88) + (i == straying ? stray[sample % 5] : 0);
  };
  return machine;
}

TEST(TunerTest, AWideSpreadOfEitherWidensTheBand) {
  for (const int straying : {0, 1}) {
    Machine machine = Straying(straying);
    TunerOptions options = machine.Options();
    options.settle_s = 0;
    Tuner tuner(machine.specs(), options);
    machine.Run(tuner);
    EXPECT_EQ(WinnerOf(tuner), 0) << straying;
    EXPECT_EQ(machine.samples(1), 5) << straying;
  }
}

TEST(TunerTest, MoreSamplesSettleWhoIsAhead) {
  for (const int straying : {0, 1}) {
    Machine machine = Straying(straying);
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner);
    EXPECT_EQ(WinnerOf(tuner), 1) << straying;
    EXPECT_GT(machine.samples(1), 10) << straying;
    EXPECT_LE(machine.samples(1), 2 * 8 * 5) << "rounds and duel, eight times as long each";
  }
}

TEST(TunerTest, SettlingEndsInTime) {
  Machine machine = Straying(0);
  TunerOptions options = machine.Options();
  options.settle_s = 1100e-6;  // half of it is three rounds of both
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 0);
  EXPECT_EQ(machine.samples(1), 5 + 3);
}

TEST(TunerTest, WhatIsSettledIsNotSampledAgain) {
  // Ahead, behind, and as good as the default to within the noise.
  Machine machine(Entries{{100}, {90}, {110}, {99}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 1);
  EXPECT_EQ(machine.samples(3), 5);
  EXPECT_EQ(machine.samples(1), 5 + 5);
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

TEST(TunerTest, AScatteringCandidateIsNoNearTieOfTheBest) {
  const double true_us[] = {100, 90, 86};
  Machine machine(Entries{{100}, {90}, {86}});
  machine.time_of = [&](int i, int sample) {
    return true_us[i] * (i == 1 ? 1 + (sample % 3 - 1) * 0.10 : 1.0);
  };
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
}

TEST(TunerTest, AClockThatFallsWhileAllTakeTurnsIsNoNoise) {
  const double true_us[] = {100, 101, 97};
  Machine machine(Entries{{100}, {101}, {97}});
  machine.time_of = [&](int i, int sample) { return true_us[i] * (1 + 0.05 * sample); };
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
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
  for (auto pair = last.begin(); pair != last.end(); pair += 2)
    EXPECT_THAT(std::vector<int>(pair, pair + 2), UnorderedElementsAre(0, 2));
  EXPECT_DOUBLE_EQ(tuner.Winner()->time_us, 55);
  EXPECT_DOUBLE_EQ(tuner.Winner()->baseline_us, 104);
}

TEST(TunerTest, SustainedRoundsReplaceTheQuickOnesAndDecide) {
  Machine machine(Entries{{100}, {90}, {91}});
  const Tuner* asked = nullptr;
  machine.time_of = [&](int i, int sample) {
    EXPECT_EQ(asked->sustained(), sample >= 5);
    const double quick[] = {100, 90, 91}, hot[] = {110, 104, 96};
    return asked->sustained() ? hot[i] : quick[i];
  };
  TunerOptions options = machine.Options();
  options.rounds = 8;
  options.quick_rounds = 5;
  Tuner tuner(machine.specs(), options);
  asked = &tuner;
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
  EXPECT_DOUBLE_EQ(tuner.Winner()->time_us, 96);
}

// As on the CPU: a sample is a launch, and no other one is longer.
TEST(TunerTest, WithoutSustainedRoundsAllSamplesCount) {
  // Of 1's nine samples five are good, of its last four one.
  Machine machine(Entries{{100}, {90}});
  const Tuner* asked = nullptr;
  machine.time_of = [&](int i, int sample) {
    EXPECT_FALSE(asked->sustained());
    return i == 1 && sample >= 5 && sample < 8 ? 104.0 : i == 1 ? 90.0 : 100.0;
  };
  TunerOptions options = machine.Options();
  options.rounds = 9;
  Tuner tuner(machine.specs(), options);
  asked = &tuner;
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 1);
  EXPECT_EQ(*ForDevice({}, DeviceInfo{}).quick_rounds, 9);
  TunerOptions twenty;
  twenty.rounds = 20;
  EXPECT_EQ(*ForDevice(twenty, DeviceInfo{}).quick_rounds, 20);
}

// As on a GPU.
TunerOptions FiveQuickRounds(Machine& machine, int rounds) {
  TunerOptions options = machine.Options();
  options.rounds = rounds;
  options.quick_rounds = 5;
  options.drop_ratio = 1.1;
  return options;
}

TEST(TunerTest, QuickSamplesDropOnlyWhatIsFarBehind) {
  // 2 is 7 % behind while the clock is high, and the best under load; 3 is 6 % behind under load.
  Machine machine(Entries{{100}, {90}, {96}, {90}});
  const Tuner* asked = nullptr;
  machine.time_of = [&](int i, int) {
    const double quick[] = {100, 90, 96, 90}, hot[] = {110, 108, 100, 106};
    return asked->sustained() ? hot[i] : quick[i];
  };
  Tuner tuner(machine.specs(), FiveQuickRounds(machine, 8));
  asked = &tuner;
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 2);
  EXPECT_EQ(machine.samples(3), 5 + 3) << "three sustained samples tell 6 %";
}

// As at a GPU's power limit, whose clock falls when sustained samples begin.
TEST(TunerTest, TheFirstSustainedSamplesMayBeFarOff) {
  Machine machine(Entries{{100}, {96}, {105}});
  const Tuner* asked = nullptr;
  machine.time_of = [&](int i, int sample) {
    const double times[] = {100, 96, 105};
    return times[i] * (i == 1 && sample == 5 ? 1.18 : i == 1 && sample == 6 ? 1.05 : 1);
  };
  Tuner tuner(machine.specs(), FiveQuickRounds(machine, 9));
  asked = &tuner;
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 1);
  EXPECT_EQ(machine.samples(2), 5 + 3) << "5 % behind in all of them";
}

TEST(TunerTest, ALuckyCandidateLosesTheDuelAndTheNextOneFights) {
  // 1 looks best in the rounds and equals the default afterwards; 2 really is faster.
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
