// The engine: where a choice comes from, what tuning remembers, what explain says.
#include "culet/gemm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "culet/model.h"
#include "fake_kernel.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

GemmDesc Problem(int m, int n = 32, int k = 64) {
  return *MakeDesc(Format::kF32, m, n, k, /*arch=*/0);
}

LaunchSpec Measured(Kernel* kernel, double time_us, std::int64_t when = 100) {
  LaunchSpec spec;
  spec.kernel = kernel;
  spec.time_us = time_us;
  spec.origin = Origin::kMeasured;
  spec.when = when;
  return spec;
}

class GemmTest : public ::testing::Test {
 protected:
  GemmTest() : gemm_(*Gemm::Create()) {}

  FakeKernel* Add(const std::string& id, double predicted_us) {
    auto kernel = std::make_unique<FakeKernel>(id);
    kernel->predicted_us = predicted_us;
    FakeKernel* added = kernel.get();
    EXPECT_TRUE(gemm_.Register(std::move(kernel)).ok());
    return added;
  }

  // A fake that computes what the reference computes.
  FakeKernel* AddHonest(const std::string& id, double predicted_us) {
    FakeKernel* kernel = Add(id, predicted_us);
    Kernel* reference = gemm_.registry().Find("cpu_reference");
    kernel->run = [reference](const GemmArgs& a, int, int, Workspace& workspace) {
      return reference->Launch(a.operation, a.alpha, a.A, a.Adesc, a.U, a.Udesc, a.B, a.Bdesc, a.V,
                               a.Vdesc, a.beta, a.C, a.Cdesc, a.D, a.Ddesc, 0, 1, workspace,
                               nullptr);
    };
    return kernel;
  }

  Kernel* Chosen(const GemmDesc& desc, DispatchPolicy policy = DispatchPolicy::kDefault) {
    const auto spec = gemm_.Choose(desc, policy);
    EXPECT_TRUE(spec.ok()) << spec.status().ToString();
    return spec.ok() ? spec->kernel : nullptr;
  }

  Gemm gemm_;
};

TEST(GemmCreateTest, AnUnknownDeviceIsAnErrorThatListsTheKnownOnes) {
  const auto gemm = Gemm::Create({"abacus", {}});
  ASSERT_FALSE(gemm.ok());
  EXPECT_EQ(gemm.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(gemm.status().message(), HasSubstr("abacus"));
  EXPECT_THAT(gemm.status().message(), HasSubstr("cpu"));
}

TEST_F(GemmTest, TheBestPredictionIsChosenAndNotRemembered) {
  Add("slow", 1e-6);
  FakeKernel* fast = Add("fast", 1e-7);
  EXPECT_EQ(Chosen(Problem(3)), fast);
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(GemmTest, ANewKernelCompetesAtOnce) {
  FakeKernel* fast = Add("fast", 1e-7);
  ASSERT_EQ(Chosen(Problem(3)), fast);
  FakeKernel* faster = Add("faster", 1e-8);
  EXPECT_EQ(Chosen(Problem(3)), faster);
}

TEST_F(GemmTest, AMeasurementBeatsThePrediction) {
  FakeKernel* slow = Add("slow", 1.0);
  Add("fast", 1e-7);
  ASSERT_TRUE(gemm_.cache().Insert(Problem(3), Measured(slow, 5.0)));
  EXPECT_EQ(Chosen(Problem(3)), slow);
}

TEST_F(GemmTest, APredictedEntryDoesNotCountAsMeasured) {
  FakeKernel* slow = Add("slow", 1.0);
  FakeKernel* fast = Add("fast", 1e-7);
  LaunchSpec spec = Measured(slow, 5.0);
  spec.origin = Origin::kPredicted;
  gemm_.cache().Insert(Problem(3), spec);
  EXPECT_EQ(Chosen(Problem(3)), fast);
}

TEST_F(GemmTest, AnEntryWhoseKernelNowRefusesIsPassedOver) {
  FakeKernel* slow = Add("slow", 1.0);
  FakeKernel* fast = Add("fast", 1e-7);
  ASSERT_TRUE(gemm_.cache().Insert(Problem(3), Measured(slow, 5.0)));
  slow->refusal = "not today";
  EXPECT_EQ(Chosen(Problem(3)), fast);
}

TEST_F(GemmTest, AnEntryWithImpossibleSplitsIsPassedOver) {
  FakeKernel* slow = Add("slow", 1.0);
  FakeKernel* fast = Add("fast", 1e-7);
  LaunchSpec spec = Measured(slow, 5.0);
  spec.splits = 64;
  gemm_.cache().Insert(Problem(3), spec);
  EXPECT_EQ(Chosen(Problem(3)), fast);
}

TEST_F(GemmTest, ReuseTakesTheNextSmallerBatchOnly) {
  FakeKernel* slow = Add("slow", 1.0);
  FakeKernel* fast = Add("fast", 1e-7);
  ASSERT_TRUE(gemm_.cache().Insert(Problem(8), Measured(slow, 5.0)));
  EXPECT_EQ(Chosen(Problem(9), DispatchPolicy::kReuse), slow);
  EXPECT_EQ(Chosen(Problem(4096), DispatchPolicy::kReuse), slow);
  // Below the smallest entry there is nothing to reuse: the choice is a prediction again.
  EXPECT_EQ(gemm_.Choose(Problem(7), DispatchPolicy::kReuse)->origin, Origin::kPredicted);
  EXPECT_EQ(Chosen(Problem(9, 48), DispatchPolicy::kReuse), fast);
}

TEST_F(GemmTest, NeighboursCorrectThePrediction) {
  // "liar" promises more, but lost to "honest" at both neighbours.
  FakeKernel* liar = Add("liar", 1e-5);
  FakeKernel* honest = Add("honest", 2e-5);
  ASSERT_EQ(Chosen(Problem(16)), liar);
  gemm_.cache().Insert(Problem(8), Measured(honest, 2e-5));
  gemm_.cache().Insert(Problem(32), Measured(honest, 2e-5));
  const auto spec = gemm_.Choose(Problem(16));
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->kernel, honest);
  EXPECT_EQ(spec->origin, Origin::kPredicted);
}

TEST_F(GemmTest, PdlTakesWhatIsKnownWithoutItUnlessMeasuredItself) {
  FakeKernel* liar = Add("liar", 1e-5);
  FakeKernel* honest = Add("honest", 2e-5);
  FakeKernel* early = Add("early", 3e-5);
  GemmDesc pdl = Problem(16), between = Problem(24);
  pdl.pdl = between.pdl = true;
  ASSERT_EQ(Chosen(pdl), liar);
  gemm_.cache().Insert(Problem(16), Measured(honest, 2e-5));
  EXPECT_EQ(Chosen(pdl), honest);
  EXPECT_EQ(gemm_.explain(pdl)->source, ChoiceSource::kCacheExact);
  EXPECT_EQ(Chosen(between), honest);  // the neighbour corrects the prediction
  honest->refusal = "not today";
  EXPECT_EQ(gemm_.Choose(pdl)->origin, Origin::kPredicted);
  honest->refusal = nullptr;
  gemm_.cache().Insert(pdl, Measured(early, 1e-5));
  EXPECT_EQ(Chosen(pdl), early);
  EXPECT_EQ(Chosen(Problem(16)), honest);
}

TEST_F(GemmTest, AProblemNobodyTakesIsRefusedWithEveryReason) {
  FakeKernel* fake = Add("fake", 1.0);
  fake->refusal = "dislikes everything";
  GemmDesc desc = Problem(3);
  desc.b.pack = 77;
  const auto spec = gemm_.Choose(desc);
  ASSERT_EQ(spec.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(spec.status().message(), HasSubstr("dislikes everything"));
  for (const Kernel* kernel : gemm_.registry().kernels()) {
    // Kernels of grouped products are not among the answers for others.
    EXPECT_EQ(spec.status().message().find(kernel->id()) != std::string::npos,
              !kernel->desc().grouped)
        << kernel->id();
  }
}

TEST_F(GemmTest, ExplainGivesOneReasonForEachOtherKernel) {
  FakeKernel* fast = Add("fast", 1e-7);
  FakeKernel* never = Add("never", 1.0);
  never->refusal = "dislikes everything";
  const auto explanation = gemm_.explain(Problem(3));
  ASSERT_TRUE(explanation.ok());
  EXPECT_EQ(explanation->choice.kernel, fast);
  EXPECT_EQ(explanation->source, ChoiceSource::kCostModel);
  const auto others = std::ranges::count_if(
      gemm_.registry().kernels(), [&](const Kernel* kernel) { return !kernel->desc().grouped; });
  EXPECT_EQ(static_cast<std::ptrdiff_t>(explanation->rejected.size()), others - 1);
  bool found = false;
  for (const auto& rejected : explanation->rejected) {
    EXPECT_FALSE(rejected.reason.empty()) << rejected.kernel_id;
    if (rejected.kernel_id != "never") continue;
    found = true;
    EXPECT_FALSE(rejected.feasible);
    EXPECT_EQ(rejected.reason, "dislikes everything");
  }
  EXPECT_TRUE(found);
  const std::string text = explanation->ToString();
  EXPECT_THAT(text, HasSubstr("fast"));
  EXPECT_THAT(text, HasSubstr("dislikes everything"));
}

TEST_F(GemmTest, ExplainSaysThatAMeasurementDecided) {
  FakeKernel* slow = Add("slow", 1.0);
  Add("fast", 1e-7);
  gemm_.cache().Insert(Problem(3), Measured(slow, 5.0));
  const auto explanation = gemm_.explain(Problem(3));
  ASSERT_TRUE(explanation.ok());
  EXPECT_EQ(explanation->choice.kernel, slow);
  EXPECT_EQ(explanation->source, ChoiceSource::kCacheExact);
  EXPECT_GT(explanation->roofline_us, 0);
  EXPECT_THAT(explanation->ToString(), HasSubstr("won when measured"));
}

TEST_F(GemmTest, TuningNeverKeepsAWrongKernel) {
  FakeKernel* wrong = Add("wrong", 1e-9);  // predicted best, so it is the default
  wrong->run = [](const GemmArgs& a, int, int, Workspace&) {
    std::memset(a.D, 0, static_cast<std::size_t>(a.Ddesc.rows) * a.Ddesc.ld * 4);
    return 0;
  };
  FakeKernel* silent = Add("silent", 1e-9);  // writes nothing
  FakeKernel* refusing = Add("refusing", 1e-9);
  refusing->run = [](const GemmArgs&, int, int, Workspace&) {
    return static_cast<int>(StatusCode::kUnsupported);
  };
  const auto report = gemm_.Tune(Problem(3));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_NE(report->winner.kernel, wrong);
  EXPECT_NE(report->winner.kernel, silent);
  EXPECT_NE(report->winner.kernel, refusing);
  std::vector<const Kernel*> failed;
  for (const Dropped& dropped : report->dropped) {
    if (dropped.reason.code() != StatusCode::kOk) failed.push_back(dropped.spec.kernel);
  }
  EXPECT_THAT(failed, ::testing::IsSupersetOf<const Kernel*>({wrong, silent, refusing}));
  EXPECT_GT(report->measurements, 0);
  EXPECT_EQ(report->winner.origin, Origin::kMeasured);
  EXPECT_GT(report->winner.time_us, 0);
  EXPECT_GT(report->winner.when, 1'600'000'000);
  // A wrong kernel runs once, for the check; it is not timed.
  EXPECT_EQ(wrong->launches, 1);
  EXPECT_EQ(report->dropped.front().reason.code(), StatusCode::kWrongResult);
  EXPECT_EQ(Chosen(Problem(3)), report->winner.kernel);
}

TEST_F(GemmTest, ASecondTuningMeasuresNothing) {
  auto first = gemm_.Tune(Problem(3));
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->from_cache);
  // A busy machine's measurement may be noisy, and is repeated.
  for (int i = 0; i < 100 && IsNoisy(first->winner); ++i) {
    first = gemm_.Tune(Problem(3));
    ASSERT_TRUE(first.ok());
  }
  const auto second = gemm_.Tune(Problem(3));
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(second->from_cache);
  EXPECT_EQ(second->measurements, 0);
  EXPECT_EQ(second->winner.kernel, first->winner.kernel);
  TuneOptions force;
  force.force = true;
  EXPECT_GT(gemm_.Tune(Problem(3), force)->measurements, 0);
}

TEST_F(GemmTest, AForcedTuningReplacesAnEntryFromTheFuture) {
  FakeKernel* honest = AddHonest("honest", 1e-9);
  const std::int64_t future = 4'000'000'000;
  ASSERT_TRUE(gemm_.cache().Insert(Problem(3), Measured(honest, 1e-3, future)));
  TuneOptions force;
  force.force = true;
  const auto report = gemm_.Tune(Problem(3), force);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  const auto entry = gemm_.cache().Find(Problem(3));
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(entry->time_us, report->winner.time_us);
  EXPECT_GT(entry->when, future);
}

TEST_F(GemmTest, MeasurePolicyTunesOnce) {
  FakeKernel* honest = AddHonest("honest", 1e-9);
  ASSERT_TRUE(gemm_.Choose(Problem(5), DispatchPolicy::kMeasure).ok());
  const int launches = honest->launches;
  EXPECT_GT(launches, 0);
  ASSERT_TRUE(gemm_.Choose(Problem(5), DispatchPolicy::kMeasure).ok());
  EXPECT_EQ(honest->launches, launches);
}

TEST_F(GemmTest, AStoppedTuningRemembersNothing) {
  AddHonest("honest", 1e-9);
  TuneOptions options;
  int calls = 0;
  options.on_progress = [&](double, const LaunchSpec&) { return ++calls < 3; };
  const auto report = gemm_.Tune(Problem(3), options);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_FALSE(report->complete);
  EXPECT_EQ(report->measurements, 2);
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(GemmTest, RunComputesTheProduct) {
  const int m = 5, n = 7, k = 9;
  std::vector<float> a(m * k), b(k * n), d(m * n, NAN);
  for (int i = 0; i < m * k; ++i) a[i] = static_cast<float>(i % 5 - 2);
  for (int i = 0; i < k * n; ++i) b[i] = static_cast<float>(i % 7 - 3);
  GemmArgs args;
  args.A = a.data();
  args.Adesc = RowMajor(DataType::kFloat32, m, k);
  args.B = b.data();
  args.Bdesc = ColMajor(DataType::kFloat32, k, n);
  args.D = d.data();
  args.Ddesc = RowMajor(DataType::kFloat32, m, n);
  const auto size = gemm_.RunWorkspaceSize(args);
  ASSERT_TRUE(size.ok());
  std::vector<std::byte> memory(size->total() + 256);
  void* start = memory.data();
  std::size_t space = memory.size();
  std::align(256, size->total(), start, space);
  Workspace workspace = *InitWorkspace(*size, start, space);
  ASSERT_TRUE(gemm_.Run(args, workspace).ok());
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int p = 0; p < k; ++p) sum += a[i * k + p] * b[j * k + p];
      EXPECT_EQ(d[i * n + j], sum) << i << ',' << j;
    }
  }
}

TEST_F(GemmTest, RunRefusesWhatItCannotDo) {
  std::vector<float> a(64), b(64), d(64, 7.0f);
  GemmArgs args;
  args.Adesc = RowMajor(DataType::kFloat32, 8, 8);
  args.B = b.data();
  args.Bdesc = ColMajor(DataType::kFloat32, 8, 8);
  args.D = d.data();
  args.Ddesc = RowMajor(DataType::kFloat32, 8, 8);
  Workspace workspace;
  EXPECT_THAT(gemm_.Run(args, workspace).message(), HasSubstr("A is null"));
  args.A = a.data();
  FakeKernel* needy = Add("needy", 1e-9);
  needy->workspace = {0, 128, 0};
  const Status status = gemm_.Run(args, workspace);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("128"));
  EXPECT_EQ(needy->launches, 0);
  EXPECT_THAT(d, ::testing::Each(7.0f));
}

}  // namespace
}  // namespace culet
