// What `culet bench` makes of its measurements, with clocks and times that are given: the machine's
// own speed decides nothing here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/bench_report.h"
#include "apps/contenders.h"
#include "apps/launch_overhead.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "fake_kernel.h"

namespace culet::cli {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;

Problem ProblemOf(int m) {
  Problem problem;
  problem.desc = *MakeDesc(Format::kBf16, m, 96, 64, 0);
  problem.arguments = "--m " + std::to_string(m);
  return problem;
}

class Bench : public testing::Test {
 protected:
  // The contenders of all kernels for a problem.
  std::vector<Contender> All(const GemmDesc& desc) {
    Selection all;
    all.kind = Selection::kAll;
    return *SelectContenders(gemm, desc, all);
  }

  // Two contenders of the problem with these medians; the first is the choice.
  std::vector<Contender> Timed(double choice_us, double other_us) {
    const auto& kernels = gemm.registry().kernels();
    std::vector<Contender> contenders(2);
    const double times[] = {choice_us, other_us};
    for (std::size_t i = 0; i < 2; ++i) {
      contenders[i].spec.kernel = kernels[i % kernels.size()];
      contenders[i].samples_us = {9 * times[i], times[i], 0.5 * times[i]};
    }
    contenders.front().is_choice = true;
    return contenders;
  }

  nlohmann::json Document(BenchReport& report) {
    testing::internal::CaptureStdout();
    report.End(false);
    return nlohmann::json::parse(testing::internal::GetCapturedStdout());
  }

  Gemm gemm = *Gemm::Create();
};

TEST_F(Bench, TheRegretIsTheChoicesTimeOverTheBest) {
  HardwareRates rates;
  rates.read_gbps = rates.gflops = 1;
  const std::vector<Problem> problems = {ProblemOf(1), ProblemOf(2), ProblemOf(3)};
  BenchReport report(gemm.device(), gemm.registry(), rates, problems,
                     {.format = BenchReport::Options::Format::kJson, .regret = true});
  report.Add(problems[0], Timed(3.0, 2.0));
  report.Add(problems[1], Timed(2.0, 5.0));
  report.Add(problems[2], Timed(8.0, 2.0));
  const auto regret = Document(report)["regret"];
  EXPECT_EQ(regret["problems"], 3);
  EXPECT_THAT(regret["geometric_mean"].get<double>(), DoubleNear(std::cbrt(1.5 * 1 * 4), 1e-9));
  EXPECT_THAT(regret["worst"].get<double>(), DoubleNear(4, 1e-9));
  EXPECT_THAT(regret["worst_problem"].get<std::string>(), HasSubstr("m=3"));
}

TEST_F(Bench, TheChoiceStandsAmongNamesOnce) {
  const GemmDesc desc = ProblemOf(8).desc;
  const std::vector<Contender> all = All(desc);
  ASSERT_GT(all.size(), 1u);
  const std::string other = LaunchName(all.back().spec), choice = LaunchName(all.front().spec);
  for (const std::string& names : {"choice," + other, other + ",choice," + choice}) {
    const auto selection = ParseSelection(names);
    ASSERT_TRUE(selection.ok()) << selection.status().ToString();
    EXPECT_TRUE(CheckNames(gemm.registry(), *selection).ok()) << names;
    const auto contenders = SelectContenders(gemm, desc, *selection);
    ASSERT_TRUE(contenders.ok()) << contenders.status().ToString();
    std::vector<std::string> selected;
    for (const Contender& contender : *contenders) selected.push_back(LaunchName(contender.spec));
    EXPECT_THAT(selected, testing::ElementsAre(choice, other)) << names;
  }
}

TEST_F(Bench, WhatABudgetLeftOutIsCountedAndNoRegret) {
  HardwareRates rates;
  rates.read_gbps = rates.gflops = 1;
  const std::vector<Problem> problems = {ProblemOf(1), ProblemOf(2)};
  BenchReport report(gemm.device(), gemm.registry(), rates, problems,
                     {.format = BenchReport::Options::Format::kJson, .regret = true});
  std::vector<Contender> contenders = Timed(3.0, 2.0);
  contenders.back().samples_us.clear();
  report.Add(problems[0], std::move(contenders));
  report.AddLeftOut();
  const auto document = Document(report);
  EXPECT_EQ(document["left_out_launches"], 1);
  EXPECT_EQ(document["left_out"], 1);
  EXPECT_EQ(document["regret"]["problems"], 1);
  EXPECT_EQ(document["regret"]["worst"], 1.0);
  EXPECT_FALSE(report.failed());
}

TEST_F(Bench, ABudgetThatIsSpentAtOnceMeasuresTheChoiceAlone) {
  std::vector<Contender> contenders = All(ProblemOf(2).desc);
  ASSERT_GT(contenders.size(), 1u);
  double now_s = 0;
  MeasureOptions options;
  options.budget_s = 1;
  options.clock_s = [&] { return now_s += 10; };
  ASSERT_TRUE(MeasureContenders(gemm, ProblemOf(2).desc, options, contenders).ok());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    EXPECT_TRUE(contenders[i].status.ok()) << contenders[i].status.ToString();
    const bool must = i == 0 || contenders[i].is_choice;
    EXPECT_EQ(contenders[i].samples_us.size(), must ? 1u : 0u) << i;
  }
}

TEST_F(Bench, ABudgetThatEndsInARoundEndsIt) {
  std::vector<Contender> contenders = All(ProblemOf(2).desc);
  const std::size_t count = contenders.size();
  double now_s = 0;
  int samples = 0;
  MeasureOptions options;
  options.budget_s = 1;
  options.clock_s = [&] { return now_s; };
  options.on_sample = [&](double, const Contender&) {
    // All are prepared and sampled twice, then the time is up in the third round.
    if (++samples > static_cast<int>(3 * count)) now_s = 2;
    return true;
  };
  ASSERT_TRUE(MeasureContenders(gemm, ProblemOf(2).desc, options, contenders).ok());
  std::size_t taken = 0;
  for (const Contender& contender : contenders) {
    EXPECT_GE(contender.samples_us.size(), 2u);
    taken += contender.samples_us.size();
  }
  EXPECT_EQ(taken, 2 * count + 1);
}

TEST_F(Bench, WithoutABudgetEveryContenderHasEveryRound) {
  std::vector<Contender> contenders = All(ProblemOf(2).desc);
  double now_s = 0;
  MeasureOptions options;
  options.rounds = 4;
  options.clock_s = [&] { return now_s += 1e9; };
  ASSERT_TRUE(MeasureContenders(gemm, ProblemOf(2).desc, options, contenders).ok());
  for (const Contender& contender : contenders) EXPECT_EQ(contender.samples_us.size(), 4u);
}

// The limit passes while the kernel refuses its launch.
TEST_F(Bench, AKernelsFaultIsToldThoughTheTimeIsUp) {
  double now_s = 0;
  auto kernel = std::make_unique<FakeKernel>("refuses");
  kernel->run = [&](const GemmArgs&, int, int, Workspace&) {
    now_s = 2;
    return 1;
  };
  const Kernel* const mine = kernel.get();
  ASSERT_TRUE(gemm.Register(std::move(kernel)).ok());
  std::vector<Contender> contenders = All(ProblemOf(2).desc);
  std::erase_if(contenders, [&](const Contender& c) { return c.spec.kernel != mine; });
  ASSERT_EQ(contenders.size(), 1u);
  MeasureOptions options;
  options.budget_s = options.limit_s = 1;
  options.clock_s = [&] { return now_s; };
  ASSERT_TRUE(MeasureContenders(gemm, ProblemOf(2).desc, options, contenders).ok());
  EXPECT_EQ(contenders.front().status.code(), StatusCode::kInvalidArgument);
}

// 20,000 calls a batch, in a clock that goes on by 1 ms at each look, and now and then by a second.
TEST_F(Bench, TheCostOfALaunchIsTheMedianBatchOverItsCalls) {
  double now_s = 0;
  int looks = 0;
  const auto overhead =
      MeasureLaunchOverhead(gemm, [&] { return now_s += ++looks % 10 == 0 ? 1.0 : 1e-3; });
  ASSERT_TRUE(overhead.ok()) << overhead.status().ToString();
  EXPECT_THAT(overhead->plan_us, DoubleNear(0.05, 1e-9));
  EXPECT_THAT(overhead->kernel_us, DoubleNear(0.05, 1e-9));
}

}  // namespace
}  // namespace culet::cli
