// A gated kernel followed by one that quantises, the first the CPU's reference and the second the
// library's quantisation: what each is given, and what comes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "culet/desc.h"
#include "culet/quantize.h"
#include "culet/registry.h"
#include "kernels/sm90/product/quantise_rows.h"
#include "kernels/sm90/product/quantised.h"

namespace culet {
namespace {

constexpr DataType kF32 = DataType::kFloat32, kE4m3 = DataType::kFloat8_e4m3;
constexpr int kM = 3, kN = 432, kK = 16;  // 216 columns of D: a group and a partial one
constexpr int kColumns = kN / 2, kGroups = 2;
constexpr int kSms = 132;
constexpr int kFails = 700;  // a cudaError_t

int quantised = 0;  // launches of the second kernel
bool quantise_fails = false;

}  // namespace

namespace sm90 {

cudaError_t LoadQuantiseRows() { return cudaSuccess; }

cudaError_t LaunchQuantiseRows(const QuantiseRowsParams& p, cudaStream_t) {
  EXPECT_EQ(p.sms, kSms);
  ++quantised;
  if (quantise_fails) return static_cast<cudaError_t>(kFails);
  MatrixLayout scales =
      p.scale_block == 1 ? RowMajor(kF32, p.m, kGroups) : ColMajor(kF32, p.m, kGroups);
  scales.ld = p.scale_block == 1 ? p.scale_row : p.scale_block;
  MatrixLayout x = RowMajor(kF32, p.m, p.n), d = RowMajor(kE4m3, p.m, p.n);
  x.ld = p.ldx, d.ld = p.ldd;
  EXPECT_TRUE(QuantizeGroups(p.x, x, p.d, d, p.scales, scales).ok());
  return cudaSuccess;
}

}  // namespace sm90

namespace {

// The reference, as a kernel of the gated epilogue alone.
class Paired final : public ArgsKernel {
 public:
  explicit Paired(Kernel& reference) : ArgsKernel(Stated(), Named()), reference_(reference) {}
  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    ++launches;
    if (fails) return -kFails;
    EXPECT_EQ(args.operation.epilogue, Epilogue::kGatedSilu);
    EXPECT_EQ(args.operation.quant_d.scales, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(args.D) % 16, 0u);
    EXPECT_EQ(args.Ddesc.ld % 4, 0);
    return LaunchKernel(reference_, args, swizzle, splits, workspace, stream).ok() ? 0 : 1;
  }
  double PredictUs(const GemmDesc&, const DeviceInfo&, const HardwareRates&, int,
                   int) const noexcept override {
    return 10;
  }

  int launches = 0;
  bool fails = false;

 private:
  static KernelDesc Stated() {
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.epilogue = Epilogue::kGatedSilu;
    desc.determinism = Determinism::kRepeatable;
    return desc;
  }
  static KernelInfo Named() {
    KernelInfo info;
    info.name = "paired";
    return info;
  }
  Kernel& reference_;
};

class QuantisedTest : public testing::Test {
 protected:
  QuantisedTest()
      : inner_(*registry_.Find("cpu_reference")),
        kernel_(sm90::Quantised(inner_, kSms)),
        a_(kM * kK),
        b_(kK * kN),
        codes_(kM * kPitch, 0xEE),
        scales_(kM * kGroups) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (auto* values : {&a_, &b_})
      for (float& value : *values) value = uniform(random);
    quantised = 0, quantise_fails = false;
  }

  GemmArgs Args() {
    GemmArgs args;
    args.operation.epilogue = Epilogue::kGatedSiluQuant;
    args.operation.quant_d = {{QuantType::kK, 128}, scales_.data(), RowMajor(kF32, kM, kGroups)};
    args.A = a_.data(), args.Adesc = RowMajor(kF32, kM, kK);
    args.B = b_.data(), args.Bdesc = ColMajor(kF32, kK, kN);
    args.D = codes_.data(), args.Ddesc = RowMajor(kE4m3, kM, kColumns);
    args.Ddesc.ld = kPitch;
    return args;
  }
  GemmDesc Desc() {
    const auto desc = Describe(Args(), 0);
    EXPECT_TRUE(desc.ok()) << desc.status().ToString();
    return *desc;
  }

  // Compares with the reference's own quantisation.
  void ExpectRight(const GemmArgs& args) {
    const std::vector<std::uint8_t> codes = codes_;
    const std::vector<float> scales = scales_;
    std::fill(codes_.begin(), codes_.end(), 0xEE);
    Workspace none;
    ASSERT_TRUE(LaunchKernel(*registry_.Find("cpu_reference"), args, 0, 1, none, nullptr).ok());
    EXPECT_EQ(codes, codes_);
    EXPECT_EQ(scales, scales_);
  }

  static constexpr int kPitch = kColumns + 16;
  Registry registry_ = Registry::Builtin(HostDevice());
  Paired inner_;
  const std::unique_ptr<Kernel> kernel_;
  std::vector<float> a_, b_;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
};

TEST_F(QuantisedTest, IsAKernelOfTheOtherEpilogue) {
  EXPECT_EQ(kernel_->id(), "paired/quantise");
  EXPECT_TRUE(kernel_->why(Desc()).ok()) << kernel_->why(Desc()).reason();
  EXPECT_FALSE(inner_.why(Desc()).ok());
  const WorkspaceSize size = kernel_->workspace_size(Desc(), 0, 1);
  EXPECT_EQ(size.partials, std::size_t{kM} * kColumns * 4);
  EXPECT_GT(kernel_->PredictUs(Desc(), {}, {}, 0, 1), 11);
  GemmDesc other = Desc();
  other.epilogue = Epilogue::kGatedSilu;
  EXPECT_FALSE(kernel_->why(other).ok());
  other = Desc();
  other.sm_budget = 8;
  EXPECT_STREQ(kernel_->why(other).reason(),
               "quantises with all multiprocessors; cannot keep to a budget");
  other = Desc();
  other.d.scale_type = DataType::kFloat8_ue8m0;
  EXPECT_STREQ(kernel_->why(other).reason(), "gives D FP32 scales");
}

TEST_F(QuantisedTest, GivesWhatTheReferenceGives) {
  for (const bool by_columns : {false, true}) {
    for (const bool prepares : {false, true}) {
      GemmArgs args = Args();
      if (by_columns) args.operation.quant_d.layout = ColMajor(kF32, kM, kGroups);
      alignas(16) float memory[kM * kColumns];
      Workspace workspace;
      workspace.partials = memory, workspace.partials_size = sizeof memory;
      if (prepares) {
        GemmArgs later = args;
        later.A = later.D = nullptr;
        const auto prepared = PrepareKernel(*kernel_, later, 0, 1);
        ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
        EXPECT_EQ((*prepared)->Launch(1, args.A, nullptr, 0, nullptr, args.D, workspace, nullptr),
                  0);
      } else {
        EXPECT_TRUE(LaunchKernel(*kernel_, args, 0, 1, workspace, nullptr).ok());
      }
      ExpectRight(args);
    }
  }
  EXPECT_EQ(inner_.launches, 4);
  EXPECT_EQ(quantised, 4);
}

TEST_F(QuantisedTest, ErrorsOfEitherAreReturned) {
  alignas(16) float memory[kM * kColumns];
  Workspace workspace;
  workspace.partials = memory, workspace.partials_size = sizeof memory;
  const auto prepared = PrepareKernel(*kernel_, Args(), 0, 1);
  ASSERT_TRUE(prepared.ok());
  const auto launch = [&] {
    return (*prepared)->Launch(1, a_.data(), nullptr, 0, nullptr, codes_.data(), workspace,
                               nullptr);
  };
  inner_.fails = true;
  EXPECT_EQ(launch(), -kFails);
  EXPECT_EQ(quantised, 0) << "nothing to quantise";
  inner_.fails = false, quantise_fails = true;
  EXPECT_EQ(launch(), -kFails);
}

}  // namespace
}  // namespace culet
