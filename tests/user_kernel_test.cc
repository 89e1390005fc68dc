// A user's kernel that throws, or returns what no launch returns: an error with its name, never the
// end of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/verify.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Throws in the chosen functions.
class Thrower final : public FakeKernel {
 public:
  using FakeKernel::FakeKernel;

  int GetMaxSwizzle(const int4& shape) const override {
    if (in_swizzle) throw std::runtime_error("no swizzle today");
    return FakeKernel::GetMaxSwizzle(shape);
  }
  int GetMaxSplits(const int4& shape, int swizzle, std::size_t bsize,
                   std::size_t psize) const override {
    if (in_splits) throw std::runtime_error("no splits today");
    return FakeKernel::GetMaxSplits(shape, swizzle, bsize, psize);
  }
  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    if (in_prepare) throw std::runtime_error("not prepared");
    if (prepares_nothing) return std::unique_ptr<PreparedKernel>();
    return FakeKernel::Prepare(args, swizzle, splits);
  }

  bool in_swizzle = false, in_splits = false, in_prepare = false, prepares_nothing = false;
};

class UserKernelTest : public ::testing::Test {
 protected:
  UserKernelTest() : gemm_(*Gemm::Create()) {
    auto kernel = std::make_unique<Thrower>("mine");
    kernel->predicted_us = 1e-6;  // the default, unless it cannot
    mine_ = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    args_.A = a_.data();
    args_.Adesc = RowMajor(DataType::kFloat32, 8, 8);
    args_.B = b_.data();
    args_.Bdesc = ColMajor(DataType::kFloat32, 8, 8);
    args_.D = d_.data();
    args_.Ddesc = RowMajor(DataType::kFloat32, 8, 8);
    desc_ = *Describe(args_, 0);
  }

  void ThrowAtLaunch() {
    mine_->run = [](const GemmArgs&, int, int, Workspace&) -> int {
      throw std::runtime_error("out of luck");
    };
  }

  // What `status` must say of a function that threw.
  static void ExpectThrown(const Status& status, const char* function, const char* words) {
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("mine"), HasSubstr(function), HasSubstr(words)));
  }

  Gemm gemm_;
  Thrower* mine_ = nullptr;
  std::vector<float> a_ = std::vector<float>(64, 1), b_ = a_, d_ = a_;
  GemmArgs args_;
  GemmDesc desc_;
};

// A kernel is not asked for what its KernelDesc does not state.
TEST(KernelTest, IsOfferedWhatItsDescStates) {
  GemmDesc plain;
  plain.a.type = plain.b.type = plain.d.type = DataType::kBfloat16;
  plain.m = plain.n = plain.k = 64;
  FakeKernel kernel("fake");
  ASSERT_TRUE(kernel.why(plain).ok()) << kernel.why(plain).reason();

  GemmDesc zeros = plain;
  zeros.b.type = DataType::kFloat8_e4m3;
  zeros.b.quant = {QuantType::kK, 32};
  zeros.b.scale_type = DataType::kFloat32;
  ASSERT_TRUE(kernel.why(zeros).ok()) << kernel.why(zeros).reason();
  zeros.b.zero_type = DataType::kFloat32;
  EXPECT_STREQ(kernel.why(zeros).reason(), "takes no zero points");
  kernel.stated().zero_points = true;
  EXPECT_TRUE(kernel.why(zeros).ok());

  GemmDesc four_bits = plain;
  four_bits.b.type = DataType::kInt4;
  EXPECT_STREQ(kernel.why(four_bits).reason(), "takes no elements of 4 bits");
  std::swap(four_bits.a.type, four_bits.b.type);
  EXPECT_STREQ(kernel.why(four_bits).reason(), "takes no elements of 4 bits");
  kernel.stated().type_a = DataType::kInt4;
  EXPECT_TRUE(kernel.why(four_bits).ok()) << kernel.why(four_bits).reason();
}

// A kernel with few accumulator bits and no promotion serves only problems that allow it.
TEST(KernelTest, SumsOfFewBitsAreForWhoAllowsThem) {
  GemmDesc desc;
  desc.a.type = desc.b.type = DataType::kFloat8_e4m3;
  desc.d.type = DataType::kBfloat16;
  desc.m = desc.n = desc.k = 64;
  FakeKernel kernel("fake");
  kernel.stated().accumulator_bits = 14;
  EXPECT_THAT(kernel.why(desc).reason(), HasSubstr("accumulate=fast"));
  desc.accumulate = Accumulate::kFast;
  EXPECT_TRUE(kernel.why(desc).ok());
  desc.accumulate = Accumulate::kPromoted;
  kernel.stated().promotion_k = 128;
  EXPECT_TRUE(kernel.why(desc).ok());
  desc.accumulate = Accumulate::kFull;
  EXPECT_THAT(kernel.why(desc).reason(), HasSubstr("accumulate=promoted"));
  kernel.stated().accumulator_bits = 24;
  EXPECT_TRUE(kernel.why(desc).ok());
}

TEST_F(UserKernelTest, AThrowingLaunchIsAnError) {
  ThrowAtLaunch();
  Workspace workspace;
  ExpectThrown(gemm_.Run(args_, workspace), "Launch", "out of luck");
  const auto plan = gemm_.Plan(args_);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->spec().kernel, mine_);
  ExpectThrown(plan->Launch({.A = a_.data(), .D = d_.data()}, workspace), "Launch", "out of luck");
  mine_->run = [](const GemmArgs&, int, int, Workspace&) -> int { throw 7; };
  EXPECT_EQ(gemm_.Run(args_, workspace).code(), StatusCode::kInternal);
}

TEST_F(UserKernelTest, TuningDropsAThrowingKernelWithItsReason) {
  ThrowAtLaunch();
  const auto report = gemm_.Tune(desc_);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_NE(report->winner.kernel, mine_);
  ASSERT_EQ(report->dropped.empty(), false);
  EXPECT_EQ(report->dropped.front().spec.kernel, mine_);
  ExpectThrown(report->dropped.front().reason, "Launch", "out of luck");
}

TEST_F(UserKernelTest, AThrowingPrepareIsAnError) {
  mine_->in_prepare = true;
  LaunchSpec spec;
  spec.kernel = mine_;
  ExpectThrown(gemm_.Plan(args_, spec).status(), "Prepare", "not prepared");
  mine_->in_prepare = false;
  mine_->prepares_nothing = true;
  ExpectThrown(gemm_.Plan(args_, spec).status(), "Prepare", "gave no launch");
}

TEST_F(UserKernelTest, AKernelWhoseLimitsThrowIsNoCandidate) {
  for (bool* where : {&mine_->in_swizzle, &mine_->in_splits}) {
    *where = true;
    const char* const words = where == &mine_->in_swizzle ? "no swizzle" : "no splits";
    const auto choice = gemm_.Choose(desc_);
    ASSERT_TRUE(choice.ok()) << choice.status().ToString();
    EXPECT_NE(choice->kernel, mine_);
    const auto explanation = gemm_.explain(desc_);
    ASSERT_TRUE(explanation.ok());
    EXPECT_THAT(explanation->ToString(), HasSubstr(words));
    LaunchSpec spec;
    spec.kernel = mine_;
    spec.swizzle = 1;
    spec.splits = 2;
    spec.origin = Origin::kMeasured;
    EXPECT_FALSE(gemm_.cache().Insert(desc_, spec));
    *where = false;
  }
}

TEST_F(UserKernelTest, VerifyReportsIt) {
  VerifyOptions options;
  options.kernel = "mine";
  options.quick = true;
  int cases = 0;
  options.on_case = [&](const std::string&, const GemmDesc&) { return ++cases <= 3; };
  const auto verify = [&] {
    cases = 0;
    return Verify(gemm_.registry(), gemm_.device(), options);
  };
  ThrowAtLaunch();
  const VerifyReport launch = verify();
  ASSERT_EQ(launch.failures.size(), 3u);
  EXPECT_THAT(launch.failures[0].message, HasSubstr("out of luck"));
  mine_->in_splits = true;
  const VerifyReport splits = verify();
  ASSERT_EQ(splits.failures.size(), 3u);
  EXPECT_THAT(splits.failures[0].message, HasSubstr("no splits"));
}

TEST_F(UserKernelTest, AReturnValueThatIsNoCodeIsADefect) {
  mine_->run = [](const GemmArgs&, int, int, Workspace&) { return 4711; };
  Workspace workspace;
  const Status status = gemm_.Run(args_, workspace);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("4711"));
}

// A twin's refusal is one of the transposed problem, and says so.
TEST_F(UserKernelTest, ATwinSpeaksOfTheTransposedProblem) {
  mine_->refusal = "writes D in row-major order only";
  const auto twin = transpose(*mine_);
  EXPECT_EQ(WhyNot(*mine_, desc_), "writes D in row-major order only");
  EXPECT_EQ(WhyNot(*twin, desc_), "for D^T = B^T A^T: writes D in row-major order only");
  mine_->refusal = nullptr;
  EXPECT_EQ(WhyNot(*twin, desc_), "");
  const auto explanation = gemm_.explain(desc_);
  ASSERT_TRUE(explanation.ok());
  for (const Explanation::Rejected& rejected : explanation->rejected) {
    if (rejected.feasible || !rejected.kernel_id.ends_with("/t")) continue;
    EXPECT_THAT(rejected.reason, testing::StartsWith("for D^T = B^T A^T: ")) << rejected.kernel_id;
  }
}

}  // namespace
}  // namespace culet
