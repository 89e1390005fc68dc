// The gated epilogues: what Describe asks of them, what the reference makes of them, and that a
// comparison finds what is wrong in D and in its scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/desc.h"
#include "culet/gemm.h"
#include "culet/kernel.h"
#include "culet/quantize.h"
#include "culet/registry.h"
#include "culet/scratch.h"

namespace culet {
namespace {

using testing::HasSubstr;

constexpr DataType kF32 = DataType::kFloat32;
constexpr int kM = 3, kN = 416, kK = 7;  // 208 columns of D: a group and a partial one

class GatedTest : public testing::Test {
 protected:
  GatedTest() : a_(kM * kK), b_(kK * kN), c_(kM * kN), bias_(kN), d_(kM * kN / 2), w_(kM * 2) {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (auto* values : {&a_, &b_, &c_, &bias_}) {
      for (float& value : *values) value = uniform(random);
    }
  }

  // D in FP32.
  GemmArgs Args() {
    GemmArgs args;
    args.operation.epilogue = Epilogue::kGatedSilu;
    args.operation.bias = {bias_.data(), kF32, Bias::Axis::kN};
    args.alpha = 0.5f;
    args.beta = 1.0f;
    args.A = a_.data();
    args.Adesc = RowMajor(kF32, kM, kK);
    args.B = b_.data();
    args.Bdesc = ColMajor(kF32, kK, kN);
    args.C = c_.data();
    args.Cdesc = RowMajor(kF32, kM, kN);
    args.D = d_.data();
    args.Ddesc = RowMajor(kF32, kM, kN / 2);
    return args;
  }

  GemmArgs Quantised() {
    GemmArgs args = Args();
    args.operation.epilogue = Epilogue::kGatedSiluQuant;
    args.operation.quant_d = {{QuantType::kK, 128}, w_.data(), RowMajor(kF32, kM, 2)};
    codes_.resize(static_cast<std::size_t>(kM) * kN / 2);
    args.D = codes_.data();
    args.Ddesc.type = DataType::kFloat8_e4m3;
    return args;
  }

  void Launch(const GemmArgs& args) {
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    ASSERT_TRUE(reference_->is_feasible(*desc)) << reference_->why(*desc).reason();
    Workspace workspace;
    const Status status = LaunchKernel(*reference_, args, 0, 1, workspace, nullptr);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  // A workspace for a plan's launches, one at a time.
  Workspace WorkspaceOf(const GemmPlan& plan) {
    memory_.assign(workspace_bytes(plan) + 256, std::byte{});
    void* data = memory_.data();
    std::size_t space = memory_.size();
    std::align(256, workspace_bytes(plan), data, space);
    const auto workspace = InitWorkspace(plan.workspace_size(), data, space);
    EXPECT_TRUE(workspace.ok()) << workspace.status().ToString();
    return *workspace;
  }

  std::vector<std::byte> memory_;
  Registry registry_ = Registry::Builtin(HostDevice());
  Kernel* reference_ = registry_.Find("cpu_reference");
  std::vector<float> a_, b_, c_, bias_, d_, w_;
  std::vector<std::uint8_t> codes_;
};

TEST_F(GatedTest, PairsEightGatesWithEightUps) {
  Launch(Args());
  const auto x = [&](int row, int col) {
    double sum = 0;
    for (int i = 0; i < kK; ++i) sum += double{a_[row * kK + i]} * b_[col * kK + i];
    return 0.5 * sum + c_[row * kN + col] + bias_[col];
  };
  for (int row = 0; row < kM; ++row) {
    for (int col = 0; col < kN / 2; ++col) {
      const int gate = col / 8 * 16 + col % 8;
      const double silu = x(row, gate) / (1 + std::exp(-x(row, gate)));
      const double expected = silu * x(row, gate + 8);
      EXPECT_NEAR(d_[row * kN / 2 + col], expected, 1e-6 * (1 + std::fabs(expected)))
          << row << " " << col;
    }
  }
}

TEST_F(GatedTest, QuantisesAsTheLibraryDoes) {
  a_[kK] = a_[kK + 1] = std::numeric_limits<float>::quiet_NaN();  // row 1
  Launch(Args());
  std::vector<float> scales(w_.size());
  std::vector<std::uint8_t> codes(d_.size());
  const Status made = QuantizeGroups(d_.data(), RowMajor(kF32, kM, kN / 2), codes.data(),
                                     RowMajor(DataType::kFloat8_e4m3, kM, kN / 2), scales.data(),
                                     RowMajor(kF32, kM, 2));
  ASSERT_TRUE(made.ok()) << made.ToString();
  Launch(Quantised());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    EXPECT_TRUE(w_[i] == scales[i] || (std::isnan(w_[i]) && std::isnan(scales[i]))) << i;
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const bool of_nan = i / (kN / 2) == 1;
    EXPECT_EQ(codes_[i], of_nan ? 0x7f : codes[i]) << i;
  }
  EXPECT_TRUE(std::isnan(w_[2]) && std::isnan(w_[3])) << "the row of the NaN";
}

// A plan binds W; A, C and D come with each launch, and none may overlap it.
TEST_F(GatedTest, ALaunchMustNotReadOrWriteItsScales) {
  Gemm gemm = *Gemm::Create({.providers = "own"});
  const GemmArgs args = Quantised();
  const auto plan = gemm.Plan(args);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  Workspace workspace = WorkspaceOf(*plan);
  const LaunchPointers good{.A = args.A, .C = args.C, .D = args.D, .beta = args.beta};
  EXPECT_TRUE(plan->Launch(good, workspace).ok());
  LaunchPointers a = good, c = good, d = good;
  a.A = c.C = w_.data();
  d.D = w_.data();
  EXPECT_THAT(plan->Launch(a, workspace).message(), HasSubstr("overlaps A"));
  EXPECT_THAT(plan->Launch(c, workspace).message(), HasSubstr("overlaps C"));
  EXPECT_THAT(plan->Launch(d, workspace).message(), HasSubstr("overlaps D"));
}

// Or each launch names its own, of a plan that has some or none.
TEST_F(GatedTest, ALaunchMayNameItsScales) {
  Gemm gemm = *Gemm::Create({.providers = "own"});
  const GemmArgs args = Quantised();
  GemmArgs without = args;
  without.operation.quant_d.scales = nullptr;
  LaunchPointers to{.A = args.A, .C = args.C, .D = args.D, .alpha = args.alpha, .beta = args.beta};
  Launch(args);
  const std::vector<float> expected = w_;
  for (const GemmArgs& planned : {args, without}) {
    const auto plan = gemm.Plan(planned);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    Workspace workspace = WorkspaceOf(*plan);
    std::vector<float> others(w_.size() + 1, -1.0f);
    std::ranges::fill(w_, -1.0f);
    to.W = others.data();
    ASSERT_TRUE(plan->Launch(to, workspace).ok());
    // Another kernel's sums may differ in their last bits.
    EXPECT_THAT(std::vector<float>(others.begin(), others.end() - 1),
                testing::Pointwise(testing::FloatNear(1e-6f), expected));
    EXPECT_EQ(others.back(), -1.0f);
    EXPECT_THAT(w_, testing::Each(-1.0f)) << "the plan's";
    to.W = reinterpret_cast<char*>(others.data()) + 1;
    EXPECT_THAT(plan->Launch(to, workspace).message(), HasSubstr("W is "));
    to.W = const_cast<void*>(args.B);
    EXPECT_THAT(plan->Launch(to, workspace).message(), HasSubstr("overlaps B"));
    to.W = nullptr;
    const Status none = plan->Launch(to, workspace);
    EXPECT_EQ(none.ok(), planned.operation.quant_d.scales != nullptr) << none.ToString();
  }
  const auto unbound = gemm.Plan(without);
  Workspace workspace = WorkspaceOf(*unbound);
  EXPECT_THAT(unbound->Launch(to, workspace).message(), HasSubstr("W is null"));
  const auto plain = gemm.Plan(Args());
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  to.D = d_.data();
  to.W = w_.data();
  EXPECT_THAT(plain->Launch(to, workspace).message(), HasSubstr("makes no scales of D"));
}

TEST_F(GatedTest, DescribeKeepsAndNamesEverything) {
  const auto desc = Describe(Quantised(), 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->n, kN);
  EXPECT_EQ(ColumnsOfD(*desc), kN / 2);
  EXPECT_EQ(desc->d.quant, (QuantDesc{QuantType::kK, 128}));
  EXPECT_EQ(desc->d.scale_type, kF32);
  EXPECT_THAT(ToString(*desc), HasSubstr("gated_silu_quant W: float32 1x128"));

  const auto refused = [&](const GemmArgs& good, const std::function<void(GemmArgs&)>& change) {
    GemmArgs args = good;
    change(args);
    return Describe(args, 0).status().message();
  };
  const GemmArgs plain = Args(), quantised = Quantised();
  EXPECT_THAT(refused(plain, [](auto& a) { a.Ddesc = RowMajor(kF32, kM, kN); }),
              HasSubstr("Ddesc is 3 x 416, but D (m, n / 2)"));
  EXPECT_THAT(refused(plain,
                      [](auto& a) {
                        a.Bdesc = ColMajor(kF32, kK, 24);
                        a.Cdesc = RowMajor(kF32, kM, 24), a.Ddesc = RowMajor(kF32, kM, 12);
                      }),
              HasSubstr("groups of 16: pad B"));
  EXPECT_THAT(refused(plain, [](auto& a) { a.Cdesc = a.Ddesc; }),
              HasSubstr("C has the shape of A B"));
  EXPECT_THAT(refused(plain, [&](auto& a) { a.operation.quant_d = quantised.operation.quant_d; }),
              HasSubstr("the epilogue is gated_silu, which writes no scales"));
  EXPECT_THAT(refused(quantised, [](auto& a) { a.operation.quant_d.quant.group_size = 64; }),
              HasSubstr("quant_d.quant is k 64"));
  EXPECT_THAT(refused(quantised, [](auto& a) { a.operation.quant_d = {}; }),
              HasSubstr("makes scales for k 128"));
  EXPECT_THAT(refused(quantised, [](auto& a) { a.Ddesc.type = DataType::kBfloat16; }),
              HasSubstr("writes float8_e4m3"));
  EXPECT_THAT(refused(quantised, [](auto& a) { a.operation.quant_d.layout.cols = 1; }),
              HasSubstr("Wdesc is 3 x 1"));
  EXPECT_THAT(
      refused(quantised, [](auto& a) { a.operation.quant_d.layout.type = DataType::kFloat16; }),
      HasSubstr("D's scales are float32"));
  EXPECT_THAT(refused(quantised, [](auto& a) { a.operation.quant_d.scales = a.D; }),
              HasSubstr("overlaps its scales W"));
  EXPECT_THAT(
      refused(quantised, [](auto& a) { a.operation.quant_d.scales = const_cast<void*>(a.B); }),
      HasSubstr("overlaps B"));
}

GemmDesc Problem(Epilogue epilogue, DataType type, QuantDesc quant, Order order_d) {
  GemmDesc desc;
  desc.epilogue = epilogue;
  desc.a.type = desc.b.type = type;
  desc.a.quant = desc.b.quant = quant;
  if (quant.type != QuantType::kNone) {
    desc.a.scale_type = desc.b.scale_type = kF32;
    desc.a.scale_align = desc.b.scale_align = 4;
  }
  desc.d.type = DataType::kBfloat16;
  desc.d.order = desc.c.order = order_d;
  if (epilogue == Epilogue::kGatedSiluQuant) {
    desc.d.type = DataType::kFloat8_e4m3;
    desc.d.quant = {QuantType::kK, 128};
    desc.d.scale_type = kF32;
  }
  desc.c.type = desc.type_bias = kF32;
  desc.m = 17;
  desc.n = 304;
  desc.k = 129;
  return desc;
}

TEST_F(GatedTest, TheReferencePassesWhatItIsComparedWith) {
  for (const Epilogue epilogue : {Epilogue::kGatedSilu, Epilogue::kGatedSiluQuant}) {
    for (const Fill fill : {Fill::kIntegers, Fill::kNormal, Fill::kExtreme}) {
      for (const auto& [type, quant] :
           {std::pair(DataType::kBfloat16, QuantDesc{}),
            std::pair(DataType::kFloat8_e4m3, QuantDesc{QuantType::kRow, 0})}) {
        for (const auto& [order, gate_order] : {std::pair(Order::kRowMajor, GateOrder::kEights),
                                                std::pair(Order::kColMajor, GateOrder::kEights),
                                                std::pair(Order::kRowMajor, GateOrder::kHalves),
                                                std::pair(Order::kColMajor, GateOrder::kHalves)}) {
          ScratchOptions options;
          options.fill = fill;
          options.gap_bytes = 40;
          GemmDesc desc = Problem(epilogue, type, quant, order);
          desc.gate_order = gate_order;
          auto scratch = ScratchProblem::Create(HostDevice(), desc, options);
          ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
          ASSERT_TRUE(scratch->PoisonOutput().ok());
          const auto untouched = scratch->Compare();
          ASSERT_TRUE(untouched.ok());
          EXPECT_GT(untouched->unwritten, 0u);
          Launch(scratch->args());
          const auto report = scratch->Compare();
          ASSERT_TRUE(report.ok());
          EXPECT_TRUE(report->ok()) << ToString(scratch->desc()) << ": " << report->ToString();
        }
      }
    }
  }
}

TEST_F(GatedTest, AComparisonFindsAWrongScaleAndAWrongValue) {
  const GemmDesc desc =
      Problem(Epilogue::kGatedSiluQuant, DataType::kBfloat16, {}, Order::kRowMajor);
  auto scratch = ScratchProblem::Create(HostDevice(), desc);
  ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
  const GemmArgs& args = scratch->args();
  auto* codes = static_cast<std::uint8_t*>(args.D);
  auto* scales = static_cast<float*>(args.operation.quant_d.scales);
  const auto after = [&](auto change) {
    EXPECT_TRUE(scratch->PoisonOutput().ok());
    Launch(args);
    EXPECT_TRUE(scratch->Compare()->ok()) << scratch->Compare()->ToString();
    change();
    return scratch->Compare()->ok();
  };
  EXPECT_FALSE(after([&] { scales[0] *= 1.01f; })) << "a scale that is too large";
  EXPECT_FALSE(after([&] { scales[1] = 1; })) << "the scale of a partial group";
  EXPECT_FALSE(after([&] { codes[5] ^= 0x80; })) << "a sign";
  EXPECT_FALSE(after([&] { scales[0] = std::nanf(""); })) << "a scale that is none";
  EXPECT_FALSE(after([&] { scales[2] = 0; })) << "behind the scales of a row";
}

TEST_F(GatedTest, TheSimdFamiliesTakeThem) {
  for (const Epilogue epilogue : {Epilogue::kGatedSilu, Epilogue::kGatedSiluQuant}) {
    for (const GateOrder order : {GateOrder::kEights, GateOrder::kHalves}) {
      for (const int m : {1, 16, 17}) {
        GemmDesc desc = Problem(epilogue, kF32, {}, Order::kRowMajor);
        desc.gate_order = order;
        desc.m = m;
        int skinny = 0, blocked = 0;
        for (const Kernel* kernel : registry_.kernels()) {
          if (!kernel->is_feasible(desc)) continue;
          EXPECT_FALSE(kernel->desc().transpose) << kernel->id();
          skinny += kernel->id().starts_with("cpu_simd/skinny");
          blocked += kernel->id().starts_with("cpu_simd/blocked");
        }
        EXPECT_EQ(skinny > 0, m <= 16);
        EXPECT_GT(blocked, 0);
      }
    }
  }
}

}  // namespace
}  // namespace culet
