// The tuner's first round over groups of alike candidates, and budgets that end anywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "culet/tuner.h"
#include "tuner_machine.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

Entries TenGroups() {
  // Leaders at 100, 110, ... 190; each group's second member is 1 us slower.
  Entries entries;
  for (int g = 0; g < 10; ++g) entries.push_back({100.0 + 10 * g, g});
  for (int g = 0; g < 10; ++g) entries.push_back({101.0 + 10 * g, g});
  return entries;
}

TEST(TunerGroupsTest, OnlyTheBestGroupsGoOnWhole) {
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

TEST(TunerGroupsTest, TheDefaultsGroupAlwaysGoesOn) {
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

TEST(TunerGroupsTest, WhatLeadersTookWhileTheMachineWasCoolDoesNotCount) {
  // The leaders' first two samples flatter them; the second member of group 0 is the best.
  auto entries = TenGroups();
  entries[10].time_us = 95;
  Machine machine(entries);
  machine.time_of = [&](int i, int sample) {
    return entries[static_cast<std::size_t>(i)].time_us * (i < 10 && sample < 2 ? 0.8 : 1.0);
  };
  auto options = machine.Options();
  options.clusters = 3;
  options.rounds = 3;  // so that two of them would decide
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 10);
}

TEST(TunerGroupsTest, AKeptGroupsSlowLeaderDoesNotTakeItsMembersAway) {
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

TEST(TunerGroupsTest, FewGroupsNeedNoLeaders) {
  // With no more groups than `clusters` every member is sampled: no leader decides for others.
  Machine machine(Entries{{100, 0}, {110, 1}, {300, 2}, {50, 2}});
  Tuner tuner(machine.specs(), machine.Options());
  machine.Run(tuner);
  EXPECT_EQ(WinnerOf(tuner), 3);
}

TEST(TunerGroupsTest, AFailingLeaderIsReplaced) {
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

TEST(TunerGroupsTest, ADisturbedLeaderDoesNotCostItsGroup) {
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

TEST(TunerGroupsTest, AllLeadersFailing) {
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

TEST(TunerGroupsTest, MoreThanMaxCandidatesKeepsTheBestPredicted) {
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

TEST(TunerBudgetTest, ASpentBudgetMeasuresNothing) {
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

TEST(TunerBudgetTest, TheBudgetRunsFromConstruction) {
  Machine machine(Entries{{100}, {50}});
  auto options = machine.Options();
  options.budget_s = 1;
  Tuner tuner(machine.specs(), options);
  machine.clock_s = 1.5;  // spent on making inputs
  EXPECT_EQ(tuner.Next(), nullptr);
  EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kResourceExhausted);
}

TEST(TunerBudgetTest, BeforeTheFirstSampleThereIsNoWinner) {
  Machine machine(Entries{{100}});
  Tuner tuner(machine.specs(), machine.Options());
  EXPECT_EQ(tuner.Winner().status().code(), StatusCode::kFailedPrecondition);
}

TEST(TunerBudgetTest, ABudgetThatEndsInTheFirstRoundTrustsOnlyLargeDifferences) {
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
TEST(TunerBudgetTest, ABudgetMayEndAnywhere) {
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

TEST(TunerBudgetTest, WinnerMayBeAskedAtAnyTime) {
  for (int answers = 1; answers < 40; ++answers) {
    Machine machine(Entries{{100}, {90}, {50, -1, kRefused, 7}, {130}});
    Tuner tuner(machine.specs(), machine.Options());
    machine.Run(tuner, answers);
    const auto winner = tuner.Winner();
    ASSERT_TRUE(winner.ok()) << answers;
    EXPECT_LE(winner->time_us, winner->baseline_us) << answers;
  }
}

TEST(TunerBudgetTest, ProgressFollowsATightBudget) {
  Machine machine(Entries(20, Machine::Entry{100}));
  machine.overhead_us = 1e6;
  auto options = machine.Options();
  options.budget_s = 10;
  Tuner tuner(machine.specs(), options);
  machine.Run(tuner, 5);
  EXPECT_NEAR(tuner.progress(), 0.5, 0.01);
}

}  // namespace
}  // namespace culet
