// Grouped products as problems like all others: their key, the choice, tuning, the cache and what
// explain says of them, with kernels of the test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "culet/grouped_kernel.h"
#include "culet/grouped_scratch.h"
#include "culet/scratch.h"

namespace culet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GroupedArgs SomeArgs() {
  GroupedArgs args;
  args.groups = 8;
  args.rows = args.a_rows = 32;
  args.n = 24;
  args.k = 40;
  args.type = args.d_type = DataType::kFloat32;
  args.expected_tokens = 16;
  args.expected_active = 2;
  args.expected_experts = 8;
  return args;
}

GemmDesc SomeDesc() { return *DescribeGrouped(SomeArgs(), 0); }

// FP32 rows by groups, right but for a factor, after a wait.
class Plain final : public GroupedKernel {
 public:
  Plain(const char* name, int wait_us, float factor, double predicted_us)
      : GroupedKernel(Desc(), Info(name)),
        wait_us_(wait_us),
        factor_(factor),
        predicted_us_(predicted_us) {}

  int GetMaxSwizzle(const int4&) const override { return 0; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return 1; }
  double PredictUs(const GemmDesc&, const DeviceInfo&, const HardwareRates&, int,
                   int) const noexcept override {
    return predicted_us_;
  }
  Status LaunchGrouped(Gemm&, const GroupedArgs& args, const LaunchSpec&,
                       cudaStream_t) const override {
    ++launches;
    std::this_thread::sleep_for(std::chrono::microseconds(wait_us_));
    const auto* const a = static_cast<const float*>(args.A);
    const auto* const b = static_cast<const float*>(args.B);
    auto* const d = static_cast<float*>(args.D);
    for (int group = 0; group < args.groups; ++group) {
      for (int row = args.starts[group]; row < args.starts[group + 1]; ++row) {
        for (int column = 0; column < args.n; ++column) {
          double sum = 0;
          for (int k = 0; k < args.k; ++k) {
            sum += double{a[row * args.lda + k]} * b[(group * args.n + column) * args.k + k];
          }
          d[row * args.ldd + column] = factor_ * static_cast<float>(sum);
        }
      }
    }
    return {};
  }

  mutable int launches = 0;

 private:
  static KernelDesc Desc() {
    KernelDesc desc;
    desc.grouped = true;
    desc.type_a = desc.type_b = desc.type_d = DataType::kFloat32;
    return desc;
  }
  static KernelInfo Info(const char* name) {
    KernelInfo info;
    info.name = name;
    return info;
  }

  const int wait_us_;
  const float factor_;
  const double predicted_us_;
};

Plain& Register(Gemm& gemm, const char* name, int wait_us, float factor, double predicted_us) {
  auto kernel = std::make_unique<Plain>(name, wait_us, factor, predicted_us);
  Plain& added = *kernel;
  EXPECT_TRUE(gemm.Register(std::move(kernel)).ok());
  return added;
}

Gemm Engine() {
  auto gemm = Gemm::Create({.device = "cpu", .record = "off"});
  EXPECT_TRUE(gemm.ok());
  return *std::move(gemm);
}

TEST(GroupedChoiceTest, KeyKnowsTheClassAndNoRouting) {
  const GemmDesc desc = SomeDesc();
  EXPECT_TRUE(IsGrouped(desc));
  EXPECT_EQ(desc.m, 16);
  EXPECT_EQ(desc.group_active, 2);
  EXPECT_EQ(desc.num, 8);
  EXPECT_THAT(ToString(desc), HasSubstr("grouped: 8 groups, 2 of 8 experts"));
  const GroupedRows rows = ExpectedRows(desc);
  EXPECT_DOUBLE_EQ(rows.rows, 32);
  EXPECT_NEAR(rows.reached, 8 * (1 - std::pow(0.75, 16)), 1e-9);
  EXPECT_DOUBLE_EQ(Operations(desc), 2.0 * 32 * 24 * 40);
  EXPECT_NEAR(MinimumBytes(desc), 4 * (32 * 40 + rows.reached * 24 * 40 + 32 * 24), 1);

  GroupedArgs other = SomeArgs();
  other.rows = 9;  // what is launched, not what is expected
  EXPECT_EQ(*DescribeGrouped(other, 0), desc);
  const std::int32_t index[32] = {};
  other.index = index;
  EXPECT_THAT(ToString(*DescribeGrouped(other, 0)), HasSubstr("gathered"));
  other.expected_tokens = 0;
  EXPECT_EQ(DescribeGrouped(other, 0)->m, 9);
  other.k = 0;
  EXPECT_THAT(DescribeGrouped(other, 0).status().message(), HasSubstr("k is 0"));
}

TEST(GroupedChoiceTest, TuningMeasuresChecksAndRemembers) {
  Gemm gemm = Engine();
  Plain& slow = Register(gemm, "test/slow", 3000, 1, 1);
  Plain& fast = Register(gemm, "test/fast", 0, 1, 2);
  Register(gemm, "test/wrong", 0, 1.1f, 1.5);
  const GemmDesc desc = SomeDesc();
  EXPECT_EQ(gemm.Choose(desc)->kernel, &slow);  // predicted best

  TuneOptions options;
  options.tuner.rounds = 3;
  const auto report = gemm.Tune(desc, options);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->winner.origin, Origin::kMeasured);
  EXPECT_NE(report->winner.kernel, &slow);
  bool wrong = false;
  for (const Dropped& dropped : report->dropped) {
    if (dropped.spec.kernel->id() != "test/wrong") continue;
    wrong = true;
    EXPECT_EQ(dropped.reason.code(), StatusCode::kWrongResult);
    EXPECT_THAT(dropped.reason.message(), HasSubstr("instead of"));
  }
  EXPECT_TRUE(wrong);
  EXPECT_EQ(gemm.Choose(desc)->kernel, report->winner.kernel);
  EXPECT_GT(fast.launches, 0);

  // As a file keeps it.
  std::stringstream text;
  EXPECT_EQ(gemm.cache().Export(text), 1);
  EXPECT_THAT(text.str(), HasSubstr("\"group_active\":2,\"group_experts\":8"));
  Gemm other = Engine();
  Register(other, "test/slow", 3000, 1, 1);
  Register(other, "test/fast", 0, 1, 2);
  EXPECT_EQ(other.cache().Import(text), 1);
  EXPECT_EQ(other.Choose(desc)->kernel->id(), report->winner.kernel->id());

  // A product of that class takes it, whatever its routing.
  GroupedArgs args = SomeArgs();
  std::vector<float> a(32 * 40, 1), b(8 * 24 * 40, 0.5f), d(32 * 24, -1);
  const std::vector<std::int32_t> starts = {0, 0, 0, 5, 5, 5, 5, 5, 20};
  args.A = a.data(), args.B = b.data(), args.D = d.data(), args.starts = starts.data();
  const int before = fast.launches;
  ASSERT_TRUE(GroupedGemm(gemm, args).ok());
  if (report->winner.kernel == &fast) EXPECT_EQ(fast.launches, before + 1);
  EXPECT_EQ(d[0], 20);
  EXPECT_EQ(d[20 * 24], -1);
}

TEST(GroupedChoiceTest, ExplainNamesGroupedKernelsAlone) {
  Gemm gemm = Engine();
  Register(gemm, "test/slow", 0, 1, 7);
  const auto explanation = gemm.explain(SomeDesc());
  ASSERT_TRUE(explanation.ok()) << explanation.status().message();
  const std::string text = explanation->ToString();
  EXPECT_THAT(text, HasSubstr("cpu_grouped/products"));
  EXPECT_THAT(text, HasSubstr("test/slow"));
  EXPECT_THAT(text, Not(HasSubstr("cpu_simd")));
  GroupedArgs bf16 = SomeArgs();
  bf16.type = DataType::kBfloat16;
  EXPECT_THAT(gemm.explain(*DescribeGrouped(bf16, 0))->ToString(),
              HasSubstr("test/slow  A has another type"));
}

TEST(GroupedChoiceTest, OneKernelOfOnesChoice) {
  Gemm gemm = Engine();
  Plain& mine = Register(gemm, "test/mine", 0, 1, 1e6);
  GroupedArgs args = SomeArgs();
  std::vector<float> a(32 * 40, 1), b(8 * 24 * 40, 0.5f), d(32 * 24, -1);
  const std::vector<std::int32_t> starts = {0, 0, 0, 5, 5, 5, 5, 5, 20};
  args.A = a.data(), args.B = b.data(), args.D = d.data(), args.starts = starts.data();
  LaunchSpec spec;
  spec.kernel = &mine;
  EXPECT_TRUE(GroupedGemm(gemm, args, spec).ok());
  EXPECT_EQ(mine.launches, 1);
  args.type = DataType::kBfloat16;
  EXPECT_THAT(GroupedGemm(gemm, args, spec).message(), HasSubstr("A has another type"));
  spec.kernel = gemm.registry().Find("cpu_reference");
  EXPECT_THAT(GroupedGemm(gemm, args, spec).message(), HasSubstr("no grouped products"));
}

TEST(GroupedChoiceTest, ScratchRoutings) {
  Gemm gemm = Engine();
  GroupedArgs args = SomeArgs();
  args.expected_tokens = 100;
  const GemmDesc desc = *DescribeGrouped(args, 0);
  for (const GroupedRouting routing : kGroupedRoutings) {
    const auto scratch = GroupedScratch::Create(gemm.device(), desc, {.routing = routing});
    ASSERT_TRUE(scratch.ok()) << scratch.status().message();
    EXPECT_DOUBLE_EQ(scratch->rows().rows, 200);
    EXPECT_DOUBLE_EQ(scratch->rows().reached, 8);
  }
  // Of bad keys, and when the caller ends it.
  EXPECT_EQ(GroupedScratch::Create(gemm.device(), GemmDesc{}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      GroupedScratch::Create(gemm.device(), desc, {.stop = [] { return true; }}).status().code(),
      StatusCode::kResourceExhausted);
}

// Every type, epilogue and layout of the host's own kernel against the scratch's oracle.
TEST(GroupedChoiceTest, ScratchChecksTheHost) {
  Gemm gemm = Engine();
  const std::int32_t index[1] = {};
  const float bias[1] = {};
  for (const DataType type :
       {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16, DataType::kFloat8_e4m3}) {
    for (const bool gated : {false, true}) {
      GroupedArgs args = SomeArgs();
      args.type = type;
      args.d_type = type == DataType::kFloat16 ? type : DataType::kBfloat16;
      args.n = 128, args.k = 136;
      if (gated) args.epilogue = Epilogue::kGatedSilu, args.index = index, args.bias = bias;
      const GemmDesc desc = *DescribeGrouped(args, 0);
      auto scratch = GroupedScratch::Create(gemm.device(), desc);
      ASSERT_TRUE(scratch.ok()) << scratch.status().message();
      const Status status = scratch->Check(gemm, nullptr);
      EXPECT_TRUE(status.ok()) << ToString(desc) << ": " << status.message();
      EXPECT_GT(*scratch->SampleUs(gemm, nullptr), 0);
    }
  }
}

}  // namespace
}  // namespace culet
