// Problems beyond one plain product: that the suite has them, and that callers can state them.
#include "verify/special_problems.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/matrix_index.h"
#include "culet/kernel.h"
#include "culet/registry.h"
#include "culet/scratch.h"
#include "culet/verify.h"

namespace culet {
namespace {

constexpr DataType kF32 = DataType::kFloat32;

// What Describe allows beyond one plain product. Any kernel that takes it is checked on it.
TEST(SpecialProblems, HoldWhatIsBeyondOnePlainProduct) {
  for (const bool quick : {true, false}) {
    int gated = 0, quantised = 0, halves = 0, whole_blocks = 0, shared_blocks = 0, batches = 0,
        shared = 0, zeros = 0, narrow = 0;
    for (const GemmDesc& d : SpecialProblems(900, quick)) {
      EXPECT_EQ(d.arch, 900);
      gated += d.epilogue == Epilogue::kGatedSilu;
      quantised += d.epilogue == Epilogue::kGatedSiluQuant;
      halves += d.gate_order == GateOrder::kHalves && d.a.type == DataType::kBfloat16;
      if (d.gate_order == GateOrder::kHalves && d.b.quant.type == QuantType::kB) {
        ++(d.n / 2 % d.b.quant.group_size == 0 ? whole_blocks : shared_blocks);
      }
      batches += d.num > 1;
      shared += d.num > 1 && d.b.num == 1;
      zeros += d.b.zero_type != DataType::kNull;
      narrow += IsSubByte(d.b.type);
    }
    for (const int count : {gated, quantised, batches}) EXPECT_GE(count, 10);
    for (const int count : {shared, zeros, narrow, halves, whole_blocks, shared_blocks})
      EXPECT_GE(count, 2);
  }
}

// No kernel is asked for a problem that no caller can state.
TEST(SpecialProblems, CanBeStated) {
  for (const GemmDesc& desc : SpecialProblems(0, false)) {
    const auto scratch = ScratchProblem::Create(HostDevice(), desc);
    ASSERT_TRUE(scratch.ok()) << ToString(desc) << ": " << scratch.status().ToString();
    const auto described = Describe(scratch->args(), 0);
    ASSERT_TRUE(described.ok()) << ToString(desc) << ": " << described.status().ToString();
    EXPECT_EQ(*described, desc) << ToString(desc) << "\n" << ToString(*described);
  }
}

TEST(SpecialProblems, AreInTheSuite) {
  for (const bool quick : {true, false}) {
    const auto all = ConformanceProblems(0, quick);
    for (const GemmDesc& desc : SpecialProblems(0, quick)) {
      EXPECT_EQ(std::ranges::count(all, desc), 1) << ToString(desc);
    }
  }
}

// The reference with one fault.
class Flawed final : public ArgsKernel {
 public:
  enum Flaw {
    kNone,
    kNoZeroPoints,
    kFirstMatrixOfB,
    kScaleTooLarge,
    kNegated,
    kByEights,
    kBlocksOfEachHalf
  };

  Flawed(Kernel& reference, Flaw flaw)
      : ArgsKernel(reference.desc(), {.name = "flawed"}), reference_(reference), flaw_(flaw) {}

  Feasibility why(const GemmDesc& desc) const noexcept override {
    if (!Shows(desc)) return Feasibility::Refuse("it does not show here");
    return reference_.why(desc);
  }
  int Run(const GemmArgs& given, int, int, Workspace& workspace, cudaStream_t) override {
    GemmArgs args = given;
    if (flaw_ == kNoZeroPoints) args.operation.zero_a = args.operation.zero_b = {};
    if (flaw_ == kFirstMatrixOfB) args.Bdesc.num = 1, args.Bdesc.batch_stride = 0;
    if (flaw_ == kFirstMatrixOfB && args.V != nullptr) {
      args.Vdesc.num = 1, args.Vdesc.batch_stride = 0;
    }
    if (flaw_ == kNegated) args.alpha = -args.alpha;
    if (flaw_ == kByEights) args.operation.gate_order = GateOrder::kEights;
    std::vector<float> scales;
    if (flaw_ == kBlocksOfEachHalf) scales = TakeBlocksOfEachHalf(args);
    if (!LaunchKernel(reference_, args, 0, 1, workspace, nullptr).ok()) {
      return static_cast<int>(StatusCode::kInternal);
    }
    if (flaw_ == kScaleTooLarge) *static_cast<float*>(args.operation.quant_d.scales) *= 1.01f;
    return 0;
  }

 private:
  // The scales of B as if up's first column began a block: those of each column, in `args` too.
  static std::vector<float> TakeBlocksOfEachHalf(GemmArgs& args) {
    const int n = args.Bdesc.cols, block = args.operation.quant_b.group_size;
    const MatrixLayout blocks = args.Vdesc;
    args.Vdesc = ColMajor(kF32, blocks.rows, n);
    std::vector<float> scales(static_cast<std::size_t>(blocks.rows) * n);
    for (int col = 0; col < n; ++col) {
      const int half = col / (n / 2) * (n / 2), place = half / block + (col - half) / block;
      for (int row = 0; row < blocks.rows; ++row) {
        scales[IndexOf(args.Vdesc, row, col)] =
            static_cast<const float*>(args.V)[IndexOf(blocks, row, place)];
      }
    }
    args.V = scales.data();
    args.operation.quant_b.type = QuantType::kK;
    return scales;
  }

  bool Shows(const GemmDesc& d) const {
    switch (flaw_) {
      case kNoZeroPoints:
        return d.b.zero_type != DataType::kNull;
      case kFirstMatrixOfB:
        return d.num > 1 && d.b.num > 1;
      case kScaleTooLarge:
        return d.epilogue == Epilogue::kGatedSiluQuant;
      case kNegated:
        return d.epilogue == Epilogue::kGatedSilu && d.c.type == DataType::kNull;
      case kByEights:
        return d.gate_order == GateOrder::kHalves;
      case kBlocksOfEachHalf:
        return d.gate_order == GateOrder::kHalves && d.b.quant.type == QuantType::kB &&
               d.n / 2 % d.b.quant.group_size != 0;
      case kNone:
        break;
    }
    return d.epilogue != Epilogue::kNone || d.num > 1 || d.b.zero_type != DataType::kNull;
  }

  Kernel& reference_;
  Flaw flaw_;
};

TEST(SpecialProblems, FlawsShow) {
  const Registry builtin = *Registry::Builtin(HostDevice(), "own");
  Kernel& reference = *builtin.Find("cpu_reference");
  VerifyOptions options;
  options.quick = true;
  for (const auto flaw :
       {Flawed::kNone, Flawed::kNoZeroPoints, Flawed::kFirstMatrixOfB, Flawed::kScaleTooLarge,
        Flawed::kNegated, Flawed::kByEights, Flawed::kBlocksOfEachHalf}) {
    Registry registry;
    ASSERT_TRUE(registry.Add(std::make_unique<Flawed>(reference, flaw)).ok());
    const VerifyReport report = Verify(registry, HostDevice(), options);
    if (flaw == Flawed::kNone) {
      EXPECT_TRUE(report.ok()) << report.failures.front().message;
      EXPECT_GE(report.passed, 50);
    } else {
      EXPECT_GE(report.failed, flaw == Flawed::kBlocksOfEachHalf ? 2 : 5) << flaw;
      EXPECT_EQ(report.passed, 0) << flaw;
    }
  }
}

}  // namespace
}  // namespace culet
