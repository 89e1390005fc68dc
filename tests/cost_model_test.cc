// The cost model by hand-computed figures, candidates by their order, anchoring by known machines.
#include "gemm/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "culet/scratch.h"

namespace culet {
namespace {

using ::testing::ElementsAre;

class FakeKernel final : public Kernel {
 public:
  FakeKernel(std::string name, KernelDesc desc = {}, KernelInfo info = {})
      : Kernel(desc, Named(std::move(info), std::move(name))) {}
  int Launch(const Operation&, float, const void*, const MatrixLayout&, const void*,
             const MatrixLayout&, const void*, const MatrixLayout&, const void*,
             const MatrixLayout&, float, const void*, const MatrixLayout&, void*,
             const MatrixLayout&, int, int, Workspace&, cudaStream_t) override {
    return 0;
  }
  Feasibility why(const GemmDesc& desc) const noexcept override {
    return desc.m <= max_m ? Feasibility::Ok() : Feasibility::Refuse("m is too large");
  }
  int GetMaxSwizzle(const int4&) const override { return max_swizzle; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return max_splits; }
  double PredictUs(const GemmDesc& desc, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override {
    if (predict) return predict(desc, swizzle, splits);
    return Kernel::PredictUs(desc, device, rates, swizzle, splits);
  }

  int max_m = std::numeric_limits<int>::max();
  int max_swizzle = 0;
  int max_splits = 1;
  std::function<double(const GemmDesc&, int swizzle, int splits)> predict;

 private:
  static KernelInfo Named(KernelInfo info, std::string name) {
    info.name = std::move(name);
    return info;
  }
};

GemmDesc Problem(int m, int n, int k, DataType type = DataType::kFloat32) {
  GemmDesc desc;
  desc.a.type = desc.b.type = desc.d.type = type;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  return desc;
}

// 10 units, 1 MB of cache, 100 GB/s, 1000 GFLOP/s, no launch cost.
DeviceInfo Device() {
  DeviceInfo device;
  device.units = 10;
  device.cache_bytes = 1'000'000;
  return device;
}
constexpr HardwareRates kRates = {100, 1000, 0, true};

KernelInfo Perfect() {
  KernelInfo info;
  info.bandwidth_share = 1;
  info.matrix_share = 1;
  info.launch_us = 0;
  return info;
}

KernelDesc Tiled(int m, int n, int k = 0) {
  KernelDesc desc;
  desc.tile_m = m;
  desc.tile_n = n;
  desc.tile_k = k;
  return desc;
}

double Predict(const Kernel& kernel, const GemmDesc& desc, int swizzle = 0, int splits = 1) {
  return kernel.PredictUs(desc, Device(), kRates, swizzle, splits);
}

TEST(RooflineTest, IsTheSlowerOfMemoryAndArithmetic) {
  // One row: 4 (1000 + 1000 * 1000 + 1000) bytes at 100 GB/s.
  EXPECT_DOUBLE_EQ(RooflineUs(Problem(1, 1000, 1000), kRates), 4.0 * 1'002'000 / 100e3);
  // 1000 rows: 2e9 operations at 1000 GFLOP/s, 12 MB in 120 us.
  EXPECT_DOUBLE_EQ(RooflineUs(Problem(1000, 1000, 1000), kRates), 2000);
}

TEST(RooflineTest, AnUnknownRateSetsNoLimit) {
  EXPECT_DOUBLE_EQ(RooflineUs(Problem(1000, 1000, 1000), {100, 0, 0, true}), 120);
  EXPECT_DOUBLE_EQ(RooflineUs(Problem(1, 1000, 1000), {0, 1000, 0, true}), 2);
  EXPECT_DOUBLE_EQ(RooflineUs(Problem(1, 1000, 1000), {}), 0);
}

TEST(PredictTest, APerfectKernelMeetsTheRoofline) {
  const FakeKernel kernel("perfect", {}, Perfect());
  for (const auto& desc : {Problem(1, 1000, 1000), Problem(1000, 1000, 1000), Problem(3, 5, 7)}) {
    EXPECT_DOUBLE_EQ(Predict(kernel, desc), RooflineUs(desc, kRates));
  }
}

TEST(PredictTest, SharesScaleTheirOwnTerm) {
  KernelInfo info = Perfect();
  info.bandwidth_share = 0.5;
  info.matrix_share = 0.25;
  const FakeKernel kernel("half", {}, info);
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(1, 1000, 1000)), 2 * 40.08);
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(1000, 1000, 1000)), 4 * 2000);
}

TEST(PredictTest, TheLongerLaunchCostCountsOnce) {
  KernelInfo info = Perfect();
  info.launch_us = 3;
  const FakeKernel kernel("launch", {}, info);
  const GemmDesc desc = Problem(1, 1000, 1000);
  EXPECT_DOUBLE_EQ(Predict(kernel, desc), 3 + 40.08);
  EXPECT_DOUBLE_EQ(kernel.PredictUs(desc, Device(), {100, 1000, 5, true}, 0, 1), 5 + 40.08);
}

TEST(PredictTest, PartialTilesCostWholeOnes) {
  const FakeKernel kernel("tile", Tiled(128, 0), Perfect());
  const double full = Predict(kernel, Problem(256, 4000, 4000));
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(129, 4000, 4000)), full);
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(128, 4000, 4000)), full / 2);
}

TEST(PredictTest, OneTileTooManyCostsAnotherRound) {
  const FakeKernel kernel("round", Tiled(100, 100), Perfect());
  const double ten = Predict(kernel, Problem(100, 1000, 10000));  // ten tiles on ten units
  EXPECT_DOUBLE_EQ(ten, 2000);
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(100, 1001, 10000)), 2 * ten);
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(100, 2000, 10000)), 2 * ten);
}

TEST(PredictTest, FewTilesComputeAndReadSlowly) {
  const FakeKernel kernel("few", Tiled(100, 100), Perfect());
  // One tile on one of ten units: a tenth of the arithmetic.
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(100, 100, 10000)), 2000);
  // One tile of one row draws two fair shares of the memory.
  const FakeKernel row("row", Tiled(1, 100), Perfect());
  const GemmDesc desc = Problem(1, 100, 10000);
  EXPECT_DOUBLE_EQ(Predict(row, desc), 5 * MinimumBytes(desc) / 100e3);
}

TEST(PredictTest, SplittingOccupiesIdleUnitsAndCostsTraffic) {
  const FakeKernel kernel("split", Tiled(100, 100), Perfect());
  const GemmDesc desc = Problem(100, 200, 20000);  // 2 tiles, 8 units idle
  const double whole = Predict(kernel, desc);
  EXPECT_DOUBLE_EQ(Predict(kernel, desc, 0, 5), whole / 5);
  // Where memory limits, the partial sums come on top.
  const FakeKernel row("row", Tiled(1, 100), Perfect());
  const GemmDesc thin = Problem(1, 1000, 1000);
  EXPECT_NEAR(Predict(row, thin, 0, 4) - Predict(row, thin), 2.0 * 4 * 1000 * 4 / 100e3, 1e-12);
}

TEST(PredictTest, SplitsAreRoundedToTheKernelsChunk) {
  KernelInfo info = Perfect();
  info.chunk_size_k = 1000;
  const FakeKernel kernel("chunk", Tiled(100, 100), info);
  // Three parts of 2000 are 667, but the kernel cuts k at multiples of 1000: 3000 in all.
  EXPECT_DOUBLE_EQ(Predict(kernel, Problem(100, 1000, 2000), 0, 3),
                   Predict(kernel, Problem(100, 1000, 3000), 0, 3));
}

TEST(PredictTest, ABudgetOfUnitsIsRespected) {
  const FakeKernel kernel("budget", {}, Perfect());
  GemmDesc desc = Problem(1000, 1000, 1000);
  desc.sm_budget = 5;
  EXPECT_DOUBLE_EQ(Predict(kernel, desc), 4000);
  desc.sm_budget = 100;  // more than there are
  EXPECT_DOUBLE_EQ(Predict(kernel, desc), 2000);
}

TEST(PredictTest, OverheadIsPaidOnceAWave) {
  KernelInfo info = Perfect();
  const FakeKernel without("without", Tiled(100, 100), info);
  info.tile_overhead_us = 7;
  const FakeKernel with("with", Tiled(100, 100), info);
  info.max_active_ctas = 2;
  const FakeKernel pairs("pairs", Tiled(100, 100), info);
  const GemmDesc desc = Problem(100, 2500, 1000);  // 25 tiles on 10 units: 3 waves, or 2 of 20
  EXPECT_DOUBLE_EQ(Predict(with, desc) - Predict(without, desc), 3 * 7);
  EXPECT_DOUBLE_EQ(Predict(pairs, desc) - Predict(without, desc), 2 * 7);
}

TEST(PredictTest, OnAGpuOperandsBeyondTheCacheAreReadAgain) {
  KernelInfo info = Perfect();
  info.matrix_share = 1e6;  // memory alone
  const FakeKernel kernel("reread", Tiled(10, 10), info);
  // A and B of 4 MB each, 100 x 100 tiles in waves of 10 along m: B is read by each of ten bands
  // of rows, A by each of a hundred columns of tiles.
  GemmDesc desc = Problem(1000, 1000, 1000);
  desc.arch = 900;
  EXPECT_DOUBLE_EQ(Predict(kernel, desc), (12e6 + 99 * 4e6 + 9 * 4e6) / 100e3);
  // In bands of two columns, five tiles long, A is read half as often and B twice as often.
  EXPECT_DOUBLE_EQ(Predict(kernel, desc, 1), (12e6 + 49 * 4e6 + 19 * 4e6) / 100e3);
  // In the cache nothing is; and on a CPU the kernel sees to it.
  DeviceInfo large = Device();
  large.cache_bytes = 100'000'000;
  EXPECT_DOUBLE_EQ(kernel.PredictUs(desc, large, kRates, 0, 1), 12e6 / 100e3);
  desc.arch = 0;
  EXPECT_DOUBLE_EQ(Predict(kernel, desc), 12e6 / 100e3);
}

TEST(PredictTest, AnyProblemHasAFinitePrediction) {
  const FakeKernel tiled("tiled", Tiled(128, 256, 64));
  const FakeKernel plain("plain");
  const int sizes[] = {1, 2, 127, 4097, std::numeric_limits<int>::max()};
  for (const int m : sizes) {
    for (const int n : sizes) {
      for (const int k : sizes) {
        for (const int splits : {0, 1, 7, std::numeric_limits<int>::max()}) {
          for (const Kernel* kernel :
               {static_cast<const Kernel*>(&tiled), static_cast<const Kernel*>(&plain)}) {
            const double time_us = Predict(*kernel, Problem(m, n, k), 40, splits);
            EXPECT_TRUE(std::isfinite(time_us) && time_us > 0) << m << ' ' << n << ' ' << k;
          }
        }
      }
    }
  }
  DeviceInfo unknown;
  unknown.units = 0;
  EXPECT_TRUE(std::isfinite(plain.PredictUs(Problem(1, 1, 1), unknown, {}, 0, 1)));
}

// --- Candidates.

class CandidatesTest : public ::testing::Test {
 protected:
  FakeKernel& Add(const std::string& name, double time_us, Backend backend = Backend::kNative) {
    KernelDesc desc;
    desc.backend = backend;
    owned_.push_back(std::make_unique<FakeKernel>(name, desc));
    owned_.back()->predict = [time_us](const GemmDesc&, int, int) { return time_us; };
    kernels_.push_back(owned_.back().get());
    return *owned_.back();
  }

  std::vector<LaunchSpec> Enumerate(const GemmDesc& desc = Problem(16, 64, 64)) const {
    return EnumerateCandidates(kernels_, desc, Device(), kRates);
  }

  static std::vector<std::string> Names(const std::vector<LaunchSpec>& specs) {
    std::vector<std::string> names;
    for (const LaunchSpec& spec : specs) {
      std::string name = spec.kernel->id();
      if (spec.swizzle != 0) name += " w" + std::to_string(spec.swizzle);
      if (spec.splits != 1) name += " s" + std::to_string(spec.splits);
      names.push_back(name);
    }
    return names;
  }

  std::vector<std::unique_ptr<FakeKernel>> owned_;
  std::vector<Kernel*> kernels_;
};

TEST_F(CandidatesTest, BestPredictedFirstEqualsInRegistryOrder) {
  Add("a", 30);
  Add("b", 10);
  Add("c", 20);
  Add("d", 10);
  const auto specs = Enumerate();
  EXPECT_THAT(Names(specs), ElementsAre("b", "d", "c", "a"));
  EXPECT_DOUBLE_EQ(specs[2].time_us, 20);
  EXPECT_EQ(specs[2].origin, Origin::kPredicted);
}

TEST_F(CandidatesTest, InfeasibleKernelsAreLeftOut) {
  Add("a", 30);
  Add("b", 10).max_m = 8;
  EXPECT_THAT(Names(Enumerate(Problem(9, 64, 64))), ElementsAre("a"));
  EXPECT_THAT(Names(Enumerate(Problem(8, 64, 64))), ElementsAre("b", "a"));
}

TEST_F(CandidatesTest, VariantsSpanSwizzleAndSplits) {
  FakeKernel& kernel = Add("a", 30);
  kernel.max_swizzle = 1;
  kernel.max_splits = 3;
  kernel.predict = [](const GemmDesc&, int swizzle, int splits) { return 10.0 * splits - swizzle; };
  EXPECT_THAT(Names(Enumerate()), ElementsAre("a w1", "a", "a w1 s2", "a s2", "a w1 s3", "a s3"));
}

TEST_F(CandidatesTest, ManySplitsAreThinnedOutButNeverExceeded) {
  FakeKernel& kernel = Add("a", 30);
  kernel.max_splits = 20;
  std::vector<int> splits;
  for (const LaunchSpec& spec : Enumerate()) splits.push_back(spec.splits);
  EXPECT_THAT(splits, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18));
}

TEST_F(CandidatesTest, AbsurdLimitsOfAKernelAreHarmless) {
  FakeKernel& wild = Add("wild", 30);
  wild.max_swizzle = std::numeric_limits<int>::max();
  wild.max_splits = std::numeric_limits<int>::max();
  EXPECT_LT(Enumerate().size(), 1000u);
  wild.max_swizzle = -1;
  wild.max_splits = -1;
  EXPECT_THAT(Names(Enumerate()), ElementsAre("wild"));
}

TEST_F(CandidatesTest, PredictionsThatAreNoTimesComeLast) {
  Add("nan", std::nan(""));
  Add("negative", -1);
  Add("a", 30);
  EXPECT_THAT(Names(Enumerate()), ElementsAre("a", "nan", "negative"));
}

TEST_F(CandidatesTest, TheReferenceIsMeasuredOnlyWhenAlone) {
  Add("reference", 20, Backend::kReference);
  EXPECT_THAT(Names(WorthMeasuring(Enumerate(), 24)), ElementsAre("reference"));
  Add("a", 10);
  EXPECT_THAT(Names(WorthMeasuring(Enumerate(), 24)), ElementsAre("a"));
}

TEST_F(CandidatesTest, HopelessKernelsAreNotMeasured) {
  Add("a", 10);
  Add("b", 80);
  Add("c", 81);
  Add("infinite", std::numeric_limits<double>::infinity());
  EXPECT_THAT(Names(WorthMeasuring(Enumerate(), 24)), ElementsAre("a", "b"));
}

TEST_F(CandidatesTest, UsersKernelsAreAlwaysMeasured) {
  for (int i = 0; i < 10; ++i) Add("n" + std::to_string(i), 10 + i);
  Add("mine", 1000, Backend::kUser);
  EXPECT_THAT(Names(WorthMeasuring(Enumerate(), 3)), ElementsAre("n0", "n1", "mine"));
}

TEST_F(CandidatesTest, NoKernelsVariantsCrowdOutTheOthers) {
  FakeKernel& many = Add("many", 10);
  many.max_splits = 8;
  Add("b", 11);
  Add("c", 12);
  // Of eight places two are many's while others wait; what is left over is its too.
  const auto names = Names(WorthMeasuring(Enumerate(), 8));
  EXPECT_THAT(names,
              ElementsAre("many", "many s2", "many s3", "many s4", "many s5", "many s6", "b", "c"));
}

TEST_F(CandidatesTest, TheFirstIsAlwaysKeptAndTheOrderToo) {
  Add("a", 10);
  Add("b", 20);
  Add("c", 30);
  auto specs = Enumerate();
  std::swap(specs[0], specs[2]);  // a default that the model did not choose
  EXPECT_THAT(Names(WorthMeasuring(specs, 2)), ElementsAre("c", "b"));
  EXPECT_THAT(Names(WorthMeasuring(specs, 0)), ElementsAre("c"));
  specs[0].time_us = 1000;  // nor would think worth a sample
  EXPECT_THAT(Names(WorthMeasuring(specs, 2)), ElementsAre("c", "b"));
  EXPECT_TRUE(WorthMeasuring({}, 5).empty());
}

// --- Anchoring. Two kernels: "slim" is good at small batches, "wide" at large ones.

class AnchorTest : public CandidatesTest {
 protected:
  AnchorTest() {
    slim_ = &Add("slim", 0);
    slim_->predict = [](const GemmDesc& desc, int, int) { return 10.0 * desc.m; };
    wide_ = &Add("wide", 0);
    wide_->predict = [](const GemmDesc& desc, int, int) { return 100.0 + desc.m; };
  }

  static std::optional<std::pair<GemmDesc, LaunchSpec>> Measured(Kernel& kernel, int m,
                                                                 double time_us) {
    LaunchSpec spec;
    spec.kernel = &kernel;
    spec.time_us = time_us;
    spec.origin = Origin::kMeasured;
    return std::pair(Problem(m, 64, 64), spec);
  }

  std::map<std::string, double> Anchored(int m) const {
    const GemmDesc desc = Problem(m, 64, 64);
    auto specs = Enumerate(desc);
    AnchorOnNeighbours(neighbours_, desc, Device(), kRates, specs);
    EXPECT_TRUE(std::ranges::is_sorted(specs, {}, &LaunchSpec::time_us));
    std::map<std::string, double> times;
    for (const LaunchSpec& spec : specs) {
      times[spec.kernel->id()] = spec.time_us;
      EXPECT_EQ(spec.origin, Origin::kPredicted);
    }
    return times;
  }

  FakeKernel* slim_;
  FakeKernel* wide_;
  DispatchCache::Neighbours neighbours_;
};

TEST_F(AnchorTest, WithoutNeighboursNothingChanges) {
  EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 50);
  EXPECT_DOUBLE_EQ(Anchored(5)["wide"], 105);
}

TEST_F(AnchorTest, AnErrorOfTheModelIsCommonToAllKernels) {
  neighbours_.below = Measured(*slim_, 4, 60);  // predicted 40
  EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 50 * 1.5);
  EXPECT_DOUBLE_EQ(Anchored(5)["wide"], 105 * 1.5);
}

TEST_F(AnchorTest, ALoserIsNotExpectedToWin) {
  neighbours_.below = Measured(*wide_, 4, 52);  // predicted 104, and slim, which lost, 40
  // Measured at half its prediction; slim took at least 52.
  EXPECT_DOUBLE_EQ(Anchored(4)["wide"], 52);
  EXPECT_DOUBLE_EQ(Anchored(4)["slim"], 52 * 1.02);
  EXPECT_DOUBLE_EQ(Anchored(5)["wide"], 105 * 0.5);
  EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 50 * (52 * 1.02 / 40));
}

TEST_F(AnchorTest, AKernelThatWasInfeasibleThereDidNotLose) {
  neighbours_.above = Measured(*wide_, 64, 328);  // twice its prediction of 164
  slim_->max_m = 16;
  slim_->predict = [](const GemmDesc& desc, int, int) { return desc.m > 16 ? 1.0 : 10.0 * desc.m; };
  EXPECT_DOUBLE_EQ(Anchored(8)["slim"], 80 * 2);
  EXPECT_DOUBLE_EQ(Anchored(8)["wide"], 108 * 2);
}

TEST_F(AnchorTest, BetweenNeighboursTheFactorsMeetHalfway) {
  neighbours_.below = Measured(*slim_, 4, 40);    // factor 1
  neighbours_.above = Measured(*slim_, 16, 640);  // factor 4; wide's 116 lost: at least 5.6
  EXPECT_DOUBLE_EQ(Anchored(8)["slim"], 80 * 2);  // halfway in the logarithm
  EXPECT_NEAR(Anchored(8)["wide"], 108 * std::sqrt(640 * 1.02 / 116), 1e-9);
  EXPECT_NEAR(Anchored(15)["slim"], 150 * std::pow(4, std::log2(15 / 4.0) / 2), 1e-9);
}

TEST_F(AnchorTest, TheSameWinnerOnBothSidesWinsBetween) {
  // The model believes in slim, twice the machine said wide.
  slim_->predict = [](const GemmDesc&, int, int) { return 10.0; };
  wide_->predict = [](const GemmDesc&, int, int) { return 10.0; };
  neighbours_.below = Measured(*wide_, 16, 30);
  neighbours_.above = Measured(*wide_, 64, 31);
  for (const int m : {16, 17, 32, 63, 64}) EXPECT_LT(Anchored(m)["wide"], Anchored(m)["slim"]) << m;
}

TEST_F(AnchorTest, PredictedOrUselessNeighboursAreIgnored) {
  neighbours_.below = Measured(*slim_, 4, 60);
  neighbours_.below->second.origin = Origin::kPredicted;
  EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 50);
  for (const double time_us : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    neighbours_.below = Measured(*slim_, 4, time_us);
    EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 50);
  }
  neighbours_.below = Measured(*slim_, 4, 60);
  neighbours_.below->second.kernel = nullptr;
  EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 50);
}

TEST_F(AnchorTest, OneUsefulNeighbourIsEnough) {
  neighbours_.below = Measured(*slim_, 4, 60);
  neighbours_.below->second.origin = Origin::kPredicted;
  neighbours_.above = Measured(*slim_, 8, 40);  // half of 80
  EXPECT_DOUBLE_EQ(Anchored(5)["slim"], 25);
}

TEST_F(AnchorTest, TheBatchMayBeN) {
  const auto at = [&](int n) {
    GemmDesc desc = Problem(64, n, 64);
    desc.batch_dim = 1;
    return desc;
  };
  slim_->predict = [](const GemmDesc& desc, int, int) { return 10.0 * desc.n; };
  neighbours_.below = Measured(*slim_, 0, 40);
  neighbours_.above = Measured(*slim_, 0, 640);
  neighbours_.below->first = at(4);
  neighbours_.above->first = at(16);
  auto specs = Enumerate(at(8));
  AnchorOnNeighbours(neighbours_, at(8), Device(), kRates, specs);
  const auto slim = std::ranges::find(specs, slim_, &LaunchSpec::kernel);
  EXPECT_DOUBLE_EQ(slim->time_us, 160);
}

}  // namespace
}  // namespace culet
