// Budgets and wishes to end, which hold for everything that measuring does: inputs, references and
// launches. Clocks are the tests' own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/scratch.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

GemmDesc Problem(int m, int n = 32, int k = 64) {
  return *MakeDesc(Format::kF32, m, n, k, /*arch=*/0);
}

TEST(ScratchProblemStop, EndsTheMakingOfInputs) {
  int asked = 0;
  ScratchOptions options;
  options.stop = [&] { return ++asked > 0; };
  const auto scratch = ScratchProblem::Create(HostDevice(), Problem(1024, 1024, 1024), options);
  EXPECT_EQ(scratch.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(asked, 1);
}

TEST(ScratchProblemStop, EndsAComparison) {
  bool end = false;
  int asked = 0;
  ScratchOptions options;
  options.stop = [&] {
    ++asked;
    return end;
  };
  auto scratch = ScratchProblem::Create(HostDevice(), Problem(64, 64, 64), options);
  ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
  const int to_create = asked;
  end = true;
  EXPECT_EQ(scratch->Compare().status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(asked, to_create + 1);
  EXPECT_EQ(scratch->PoisonOutput().code(), StatusCode::kResourceExhausted);
  end = false;
  EXPECT_TRUE(scratch->Compare().ok()) << "a wish may be withdrawn";
}

TEST(ScratchProblemStop, MoreThanTheMemoryIsRefusedBeforeItIsTouched) {
  const Status status =
      ScratchProblem::Create(HostDevice(), Problem(2'000'000'000, 20'000, 20'000)).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("smaller problem"));
}

class TimeLimitTest : public ::testing::Test {
 protected:
  TimeLimitTest() : gemm_(*Gemm::Create()) {
    auto kernel = std::make_unique<FakeKernel>("slow");
    slow_ = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    // Right, and as long as it is told to take on the tests' clock.
    Kernel* const reference = gemm_.registry().Find("cpu_reference");
    slow_->run = [this, reference](const GemmArgs& args, int, int, Workspace& workspace) {
      now_s_ += launch_s_;
      return LaunchKernel(*reference, args, 0, 1, workspace, nullptr).ok() ? 0 : 1;
    };
    options_.tuner.clock_s = [this] { return now_s_; };
  }

  Gemm gemm_;
  FakeKernel* slow_ = nullptr;
  double now_s_ = 100, launch_s_ = 0;
  TuneOptions options_;
};

TEST_F(TimeLimitTest, ADefaultThatCannotFitIsNotBegun) {
  options_.tuner.budget_s = 1e-9;  // the clock stands still: nothing is spent
  int candidates = 0;
  options_.on_progress = [&](double, const LaunchSpec&) { return ++candidates < 1000; };
  const Status status = gemm_.Tune(Problem(1), options_).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("no room for a sample"));
  EXPECT_EQ(candidates, 0);
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(TimeLimitTest, ACandidateThatCannotFitIsDroppedWithItsReason) {
  slow_->predict = [](const GemmDesc&) { return 0.6e6; };
  options_.tuner.budget_s = 1;
  const auto report = gemm_.Tune(Problem(1), options_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(slow_->launches, 0);
  const auto dropped =
      std::ranges::find(report->dropped, slow_, [](const Dropped& d) { return d.spec.kernel; });
  ASSERT_NE(dropped, report->dropped.end());
  EXPECT_EQ(dropped->reason.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(dropped->reason.message(), HasSubstr("predicted to take"));
}

TEST_F(TimeLimitTest, ASampleIsExpectedToTakeWhatTheLastOneTook) {
  slow_->predict = [](const GemmDesc&) { return 1e-6; };  // the default
  launch_s_ = 0.9;
  options_.tuner.budget_s = 2;
  const auto report = gemm_.Tune(Problem(1), options_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(slow_->launches, 2);  // checked and timed; what is left is less than it took
  EXPECT_EQ(report->winner.kernel, slow_);
}

TEST_F(TimeLimitTest, InputsCountToo) {
  options_.tuner.clock_s = [this] { return now_s_ += 0.01; };  // each look costs time
  options_.tuner.budget_s = 0.05;
  const Status status = gemm_.Tune(Problem(64, 1024, 1024), options_).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_EQ(slow_->launches, 0);
  EXPECT_THAT(status.message(), HasSubstr("ended before the inputs"));
}

TEST_F(TimeLimitTest, AWishEndsTheTuningBetweenSamples) {
  int asked = 0;
  options_.stop = [&] { return ++asked > 20; };
  options_.tuner.rounds = 1000;
  const auto report = gemm_.Tune(Problem(1), options_);
  EXPECT_FALSE(report.ok() && report->complete);
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(TimeLimitTest, ANoisyEntryIsMeasuredAgainButServes) {
  LaunchSpec noisy;
  noisy.kernel = slow_;
  noisy.time_us = 10;
  noisy.spread_us = 20;
  noisy.origin = Origin::kMeasured;
  ASSERT_TRUE(gemm_.cache().Insert(Problem(1), noisy));
  EXPECT_EQ(gemm_.Choose(Problem(1), DispatchPolicy::kMeasure)->kernel, slow_);
  EXPECT_EQ(slow_->launches, 0);
  EXPECT_THAT(gemm_.explain(Problem(1))->ToString(), HasSubstr("noisy"));
  // No anchor: the neighbour is predicted as if nothing had been measured.
  EXPECT_NE(gemm_.Choose(Problem(2))->kernel, slow_);
  const auto report = gemm_.Tune(Problem(1));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_FALSE(report->from_cache);
  EXPECT_GT(report->measurements, 0);
}

}  // namespace
}  // namespace culet
