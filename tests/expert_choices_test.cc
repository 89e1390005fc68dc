// Choices for routed experts: measured when asked to, and never older than the cache.
#include <gtest/gtest.h>

#include <memory>

#include "culet/gemm.h"
#include "culet/model.h"
#include "fake_kernel.h"
#include "graph/cpu_experts.h"

namespace culet {
namespace {

class ExpertChoicesTest : public ::testing::Test {
 protected:
  ExpertChoicesTest() : gemm_(*Gemm::Create()), choices_(gemm_) {
    auto kernel = std::make_unique<FakeKernel>("other");
    kernel->predicted_us = 1e9;  // never predicted best
    other_ = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
  }

  GemmDesc Problem(int m) { return *MakeDesc(Format::kF32, m, 24, 40, /*arch=*/0); }

  bool Measured(int m) {
    const auto known = gemm_.cache().Find(Problem(m));
    return known && known->origin == Origin::kMeasured;
  }

  Gemm gemm_;
  ExpertChoices choices_;
  FakeKernel* other_ = nullptr;
};

TEST_F(ExpertChoicesTest, MeasuresPowersOfTwoAndTheMost) {
  for (int m = 1; m <= 6; ++m) {
    ASSERT_TRUE(choices_.Choose(Problem(m), 6, DispatchPolicy::kMeasure).ok());
  }
  for (const int m : {1, 2, 4, 6}) EXPECT_TRUE(Measured(m)) << m;
  for (const int m : {3, 5}) EXPECT_FALSE(Measured(m)) << m;
}

TEST_F(ExpertChoicesTest, MeasuresTheMostOfASmallerBatch) {
  for (int m = 8; m >= 1; --m) {
    ASSERT_TRUE(choices_.Choose(Problem(m), 8, DispatchPolicy::kMeasure).ok());
  }
  ASSERT_TRUE(choices_.Choose(Problem(5), 8, DispatchPolicy::kMeasure).ok());
  ASSERT_FALSE(Measured(5));
  ASSERT_TRUE(choices_.Choose(Problem(5), 5, DispatchPolicy::kMeasure).ok());
  EXPECT_TRUE(Measured(5));
}

TEST_F(ExpertChoicesTest, OtherwiseMeasuresNothing) {
  for (int m = 1; m <= 4; ++m) {
    ASSERT_TRUE(choices_.Choose(Problem(m), 4, DispatchPolicy::kDefault).ok());
  }
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(ExpertChoicesTest, ForgetsWhenTheCacheChanges) {
  const auto before = choices_.Choose(Problem(3), 4, DispatchPolicy::kDefault);
  ASSERT_TRUE(before.ok());
  EXPECT_NE(before->kernel, other_);
  LaunchSpec spec;
  spec.kernel = other_;
  spec.time_us = 1;
  spec.origin = Origin::kMeasured;
  ASSERT_TRUE(gemm_.cache().Insert(Problem(3), spec));
  EXPECT_EQ(choices_.Choose(Problem(3), 4, DispatchPolicy::kDefault)->kernel, other_);
}

}  // namespace
}  // namespace culet
