// Kernels that take a problem and then cannot be prepared: the next candidate takes their place,
// and explain says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Fails in Prepare except for one variant.
class Unprepared final : public FakeKernel {
 public:
  using FakeKernel::FakeKernel;

  Result<int> GetVariants(const GemmDesc&) const override { return variants; }
  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    ++asked;
    if (!failure.ok() && args.operation.variant != only_good) return failure;
    return FakeKernel::Prepare(args, swizzle, splits);
  }

  Status failure = Status(StatusCode::kInternal, "its library says error 13");
  int only_good = -1;  // a variant
  int variants = 1;
  int asked = 0;
};

class PrepareFailureTest : public ::testing::Test {
 protected:
  PrepareFailureTest() : gemm_(*Gemm::Create()) {
    best_ = Add("fake/best", 1e-7);
    second_ = Add("fake/second", 2e-7);
    second_->failure = Status();
    args_.A = a_.data(), args_.Adesc = RowMajor(DataType::kFloat32, 8, 8);
    args_.B = a_.data(), args_.Bdesc = ColMajor(DataType::kFloat32, 8, 8);
    args_.D = d_.data(), args_.Ddesc = RowMajor(DataType::kFloat32, 8, 8);
    desc_ = *Describe(args_, 0);
  }

  Unprepared* Add(const char* id, double predicted_us) {
    auto kernel = std::make_unique<Unprepared>(id);
    kernel->predicted_us = predicted_us;
    Unprepared* added = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    return added;
  }

  LaunchSpec Measured(Kernel* kernel) {
    LaunchSpec spec;
    spec.kernel = kernel, spec.time_us = 1, spec.when = 5, spec.origin = Origin::kMeasured;
    return spec;
  }

  std::string Explained() { return gemm_.explain(desc_)->ToString(); }

  Gemm gemm_;
  Unprepared *best_, *second_;
  std::vector<float> a_ = std::vector<float>(64, 1), d_ = a_;
  GemmArgs args_;
  GemmDesc desc_;
};

TEST_F(PrepareFailureTest, TheNextCandidateTakesItsPlaceAndExplainSaysSo) {
  EXPECT_THAT(Explained(), HasSubstr("choice    fake/best"));
  const auto plan = gemm_.Plan(args_);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->spec().kernel, second_);
  EXPECT_THAT(Explained(), HasSubstr("choice    fake/second"));
  EXPECT_THAT(Explained(), HasSubstr("could not be prepared: its library says error 13"));
  EXPECT_EQ(gemm_.Choose(desc_)->kernel, second_);
}

TEST_F(PrepareFailureTest, ItIsNotAskedAgainForThisProblemAlone) {
  ASSERT_TRUE(gemm_.Plan(args_).ok());
  ASSERT_TRUE(gemm_.Plan(args_).ok());
  EXPECT_EQ(best_->asked, 1);
  GemmArgs other = args_;
  other.Adesc.rows = other.Ddesc.rows = 4;
  ASSERT_TRUE(gemm_.Plan(other).ok());
  EXPECT_EQ(best_->asked, 2);
}

TEST_F(PrepareFailureTest, AMeasuredChoiceToo) {
  ASSERT_TRUE(gemm_.cache().Insert(desc_, Measured(best_)));
  const auto plan = gemm_.Plan(args_);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->spec().kernel, second_);
  EXPECT_EQ(gemm_.Choose(desc_)->kernel, second_);
  EXPECT_TRUE(gemm_.cache().Find(desc_).has_value()) << "what was measured stays";
}

TEST_F(PrepareFailureTest, AnotherVariantOfTheSameKernelMayBeNext) {
  best_->variants = 3;
  best_->only_good = 2;
  const auto plan = gemm_.Plan(args_);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->spec().kernel, best_);
  EXPECT_EQ(plan->spec().variant, 2);
  EXPECT_THAT(Explained(), HasSubstr("choice    fake/best variant 2"));
  EXPECT_THAT(Explained(), HasSubstr("could not be prepared"));
}

TEST_F(PrepareFailureTest, ASuccessTakesItBack) {
  ASSERT_TRUE(gemm_.Plan(args_).ok());
  best_->failure = Status();
  LaunchSpec spec;
  spec.kernel = best_;
  ASSERT_TRUE(gemm_.Plan(args_, spec).ok());
  EXPECT_EQ(gemm_.Choose(desc_)->kernel, best_);
  EXPECT_THAT(Explained(), Not(HasSubstr("could not be prepared")));
}

TEST_F(PrepareFailureTest, AWantOfMemoryMayPass) {
  best_->failure = Status(StatusCode::kResourceExhausted, "no memory for the library's workspace");
  const auto plan = gemm_.Plan(args_);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->spec().kernel, second_);
  best_->failure = Status();
  EXPECT_EQ(gemm_.Plan(args_)->spec().kernel, best_);
}

TEST_F(PrepareFailureTest, TheReferenceIsTheLastToTakeThePlace) {
  Gemm gemm = *Gemm::Create({.providers = "onednn"});  // leaves culet's own kernels out
  auto only = std::make_unique<Unprepared>("fake/only");
  only->predicted_us = 1e-7;
  ASSERT_TRUE(gemm.Register(std::move(only)).ok());
  const auto plan = gemm.Plan(args_);
  ASSERT_TRUE(plan.ok());
  EXPECT_NE(plan->spec().kernel->id(), "fake/only");
  LaunchSpec spec;
  spec.kernel = gemm.registry().Find("fake/only");
  EXPECT_THAT(gemm.Plan(args_, spec).status().message(), HasSubstr("error 13"));
}

TEST_F(PrepareFailureTest, ABadArgumentIsNoReasonToTryOthers) {
  args_.B = nullptr;
  EXPECT_EQ(gemm_.Plan(args_).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(best_->asked, 0);
}

TEST_F(PrepareFailureTest, TuningDropsItWithItsReason) {
  const auto report = gemm_.Tune(desc_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_NE(report->winner.kernel, best_);
  ASSERT_FALSE(report->dropped.empty());
  EXPECT_THAT(report->dropped.front().reason.message(), HasSubstr("error 13"));
}

}  // namespace
}  // namespace culet
