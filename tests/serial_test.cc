// Launches that a problem allows to overlap, and that need not: LaunchSpec::serial.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "culet/gemm.h"
#include "culet/model.h"
#include "fake_kernel.h"
#include "gemm/cache_record.h"

namespace culet {
namespace {

GemmDesc Problem(bool pdl) {
  GemmDesc desc = *MakeDesc(Format::kF32, 4, 32, 64, /*arch=*/0);
  desc.pdl = pdl;
  return desc;
}

class SerialTest : public ::testing::Test {
 protected:
  SerialTest() : gemm_(*Gemm::Create()) {
    overlapping_ = Add("fake/overlapping", true);
    // Faster when it overlaps, by the prediction.
    overlapping_->predict = [](const GemmDesc& desc) { return desc.pdl ? 1e-7 : 2e-7; };
    other_ = Add("fake/other", false);
    other_->predicted_us = 3e-7;
  }

  FakeKernel* Add(const char* id, bool pdl) {
    auto kernel = std::make_unique<FakeKernel>(id, Backend::kUser, pdl);
    FakeKernel* added = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    return added;
  }

  std::vector<LaunchSpec> CandidatesOf(const Kernel* kernel, const GemmDesc& desc) {
    std::vector<LaunchSpec> specs = gemm_.Candidates(desc);
    std::erase_if(specs, [&](const LaunchSpec& spec) { return spec.kernel != kernel; });
    return specs;
  }

  Gemm gemm_;
  FakeKernel* overlapping_;
  FakeKernel* other_;
};

TEST_F(SerialTest, IsACandidateOfKernelsThatOverlapWhereTheProblemAllowsIt) {
  EXPECT_EQ(CandidatesOf(overlapping_, Problem(false)).size(), 1u);
  EXPECT_EQ(CandidatesOf(other_, Problem(true)).size(), 1u);
  const auto both = CandidatesOf(overlapping_, Problem(true));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_FALSE(both[0].serial);
  EXPECT_DOUBLE_EQ(both[0].time_us, 1e-7);
  EXPECT_TRUE(both[1].serial);
  EXPECT_DOUBLE_EQ(both[1].time_us, 2e-7);
}

// A transposed twin never overlaps, so a serial launch of it would be the same one twice.
TEST_F(SerialTest, IsNoCandidateOfATransposedTwin) {
  auto twin = transpose(*overlapping_);
  const Kernel* const added = twin.get();
  EXPECT_FALSE(added->desc().pdl);
  ASSERT_TRUE(gemm_.Register(std::move(twin)).ok());
  EXPECT_EQ(CandidatesOf(added, Problem(true)).size(), 1u);
}

TEST_F(SerialTest, TheKernelIsLaunchedWithoutPdl) {
  std::vector<float> a(4 * 64), b(64 * 32), d(4 * 32);
  GemmArgs args;
  args.A = a.data(), args.Adesc = RowMajor(DataType::kFloat32, 4, 64);
  args.B = b.data(), args.Bdesc = ColMajor(DataType::kFloat32, 64, 32);
  args.D = d.data(), args.Ddesc = RowMajor(DataType::kFloat32, 4, 32);
  args.operation.pdl = true;
  bool pdl = false;
  overlapping_->run = [&](const GemmArgs& given, int, int, Workspace&) {
    pdl = given.operation.pdl;
    return 0;
  };
  Workspace none;
  for (const bool serial : {true, false}) {
    LaunchSpec spec;
    spec.kernel = overlapping_;
    spec.serial = serial;
    const auto plan = gemm_.Plan(args, spec);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    pdl = serial;
    ASSERT_TRUE(plan->Launch({.A = a.data(), .D = d.data()}, none).ok());
    EXPECT_EQ(pdl, !serial);
    EXPECT_TRUE(plan->desc().pdl);
  }
}

// What Run chooses from memory is launched as it was measured, too.
TEST_F(SerialTest, ARememberedSerialLaunchIsLaunchedSo) {
  LaunchSpec spec;
  spec.kernel = overlapping_, spec.time_us = 1, spec.when = 5, spec.origin = Origin::kMeasured;
  spec.serial = true;
  GemmDesc desc = Problem(true);
  ASSERT_TRUE(gemm_.cache().Insert(desc, spec));
  const auto choice = gemm_.Choose(desc);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->kernel, overlapping_);
  EXPECT_TRUE(choice->serial);
  EXPECT_NE(gemm_.explain(desc)->ToString().find("fake/overlapping serial"), std::string::npos);
}

TEST_F(SerialTest, TuningUnderPdlBeginsWithWhatWasMeasuredWithout) {
  LaunchSpec spec;
  spec.kernel = other_, spec.time_us = 1, spec.when = 5, spec.origin = Origin::kMeasured;
  ASSERT_TRUE(gemm_.cache().Insert(Problem(false), spec));
  EXPECT_EQ(gemm_.Candidates(Problem(true)).front().kernel, other_);
  spec.kernel = overlapping_, spec.when = 6;
  ASSERT_TRUE(gemm_.cache().Insert(Problem(false), spec));
  const auto candidates = gemm_.Candidates(Problem(true));
  ASSERT_GE(candidates.size(), 3u);
  EXPECT_EQ(candidates[0].kernel, overlapping_);
  EXPECT_FALSE(candidates[0].serial);
  EXPECT_EQ(candidates[1].kernel, overlapping_);
  EXPECT_TRUE(candidates[1].serial);
}

// The product of Problem().
int Multiply(const GemmArgs& args) {
  const auto* a = static_cast<const float*>(args.A);
  const auto* b = static_cast<const float*>(args.B);
  auto* d = static_cast<float*>(args.D);
  for (int row = 0; row < args.Ddesc.rows; ++row) {
    for (int column = 0; column < args.Ddesc.cols; ++column) {
      double sum = 0;
      for (int k = 0; k < args.Adesc.cols; ++k) {
        sum += double{a[row * args.Adesc.ld + k]} * b[column * args.Bdesc.ld + k];
      }
      d[row * args.Ddesc.ld + column] = static_cast<float>(sum);
    }
  }
  return 0;
}

// Where overlap can gain next to nothing, tuning under pdl does not choose anew among all kernels,
// unless that one is wrong.
TEST_F(SerialTest, TuningUnderPdlKeepsTheKernelOfALongLaunch) {
  LaunchSpec spec;
  spec.kernel = overlapping_, spec.when = 5, spec.origin = Origin::kMeasured;
  int others = 0;
  other_->run = [&](const GemmArgs& args, int, int, Workspace&) {
    ++others;
    return Multiply(args);
  };
  bool right = true;
  overlapping_->run = [&](const GemmArgs& args, int, int, Workspace&) {
    return right ? Multiply(args) : 0;
  };
  const auto tuned_kernel = [&](double plain_us) {
    spec.time_us = plain_us, ++spec.when;
    EXPECT_TRUE(gemm_.cache().Insert(Problem(false), spec));
    others = 0;
    TuneOptions options;
    options.force = true;
    const auto tuned = gemm_.Tune(Problem(true), options);
    EXPECT_TRUE(tuned.ok()) << tuned.status().ToString();
    return tuned.ok() ? tuned->winner.kernel : nullptr;
  };
  EXPECT_NE(tuned_kernel(400), nullptr);
  EXPECT_GT(others, 0);
  EXPECT_EQ(tuned_kernel(600), overlapping_);
  EXPECT_EQ(others, 0);
  right = false;
  EXPECT_NE(tuned_kernel(600), overlapping_);
}

TEST_F(SerialTest, ARecordSaysSoOnlyWhereItIs) {
  LaunchSpec spec;
  spec.kernel = overlapping_, spec.time_us = 1;
  for (const bool serial : {false, true}) {
    spec.serial = serial;
    const std::string line = WriteRecord("cpu/test", Problem(true), spec);
    EXPECT_EQ(line.find("\"serial\"") != std::string::npos, serial) << line;
    const ParsedRecord read = ReadRecord(line);
    ASSERT_EQ(read.state, RecordState::kSound) << read.record.damage;
    EXPECT_EQ(read.record.serial, serial);
  }
}

}  // namespace
}  // namespace culet
