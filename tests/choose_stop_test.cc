// A stop while DispatchPolicy::kMeasure tunes: what was measured is chosen and kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "culet/gemm.h"
#include "culet/model.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

class ChooseStopTest : public ::testing::Test {
 protected:
  ChooseStopTest() : gemm_(*Gemm::Create()) {
    auto kernel = std::make_unique<FakeKernel>("first");
    kernel->predicted_us = 1e-6;  // the default, so it is measured first
    first_ = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    Kernel* const reference = gemm_.registry().Find("cpu_reference");
    first_->run = [this, reference](const GemmArgs& args, int, int, Workspace& workspace) {
      ++launches_;
      return LaunchKernel(*reference, args, 0, 1, workspace, nullptr).ok() ? 0 : 1;
    };
  }

  Gemm gemm_;
  FakeKernel* first_ = nullptr;
  int launches_ = 0;
  const GemmDesc desc_ = *MakeDesc(Format::kF32, 4, 24, 40, /*arch=*/0);
};

// The first launch is checked, the second one timed.
TEST_F(ChooseStopTest, WhatWasMeasuredUntilThenIsChosenAndKept) {
  gemm_.SetStop([&] { return launches_ >= 2; });
  const auto choice = gemm_.Choose(desc_, DispatchPolicy::kMeasure);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(choice->kernel, first_);
  EXPECT_EQ(choice->origin, Origin::kMeasured);
  EXPECT_EQ(launches_, 2);
  const auto kept = gemm_.cache().Find(desc_);
  ASSERT_TRUE(kept.has_value());
  EXPECT_TRUE(SameLaunch(*kept, *choice));
  EXPECT_EQ(kept->origin, Origin::kMeasured);
}

TEST_F(ChooseStopTest, BeforeAnySampleItIsAnError) {
  gemm_.SetStop([] { return true; });
  const Status status = gemm_.Choose(desc_, DispatchPolicy::kMeasure).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("was stopped before any sample"));
  EXPECT_EQ(launches_, 0);
  EXPECT_EQ(gemm_.cache().size(), 0u);
  EXPECT_TRUE(gemm_.Choose(desc_).ok()) << "what measures nothing does not ask";
  gemm_.SetStop(nullptr);
  EXPECT_TRUE(gemm_.Choose(desc_, DispatchPolicy::kMeasure).ok());
  EXPECT_EQ(gemm_.cache().size(), 1u);
}

TEST_F(ChooseStopTest, AQuestionThatThrowsIsAYes) {
  gemm_.SetStop([&]() -> bool {
    if (launches_ < 2) return false;
    throw std::runtime_error("no answer");
  });
  const auto choice = gemm_.Choose(desc_, DispatchPolicy::kMeasure);
  ASSERT_TRUE(choice.ok()) << choice.status().ToString();
  EXPECT_EQ(launches_, 2);
  EXPECT_TRUE(gemm_.cache().Find(desc_).has_value());
}

// Plan and Run choose as Choose does.
TEST_F(ChooseStopTest, APlanAsksToo) {
  std::vector<float> a(4 * 40, 1), b(40 * 24, 1), d(4 * 24);
  GemmArgs args;
  args.operation.dispatch = DispatchPolicy::kMeasure;
  args.A = a.data();
  args.Adesc = RowMajor(DataType::kFloat32, 4, 40);
  args.B = b.data();
  args.Bdesc = ColMajor(DataType::kFloat32, 40, 24);
  args.D = d.data();
  args.Ddesc = RowMajor(DataType::kFloat32, 4, 24);
  gemm_.SetStop([&] { return launches_ >= 2; });
  const auto plan = gemm_.Plan(args);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->spec().kernel, first_);
  EXPECT_EQ(launches_, 2);
}

}  // namespace
}  // namespace culet
