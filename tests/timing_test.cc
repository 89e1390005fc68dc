// What makes a measurement cold and long enough, and the launches that are timed.
#include "culet/timing.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "culet/model.h"
#include "culet/tuner.h"
#include "fake_kernel.h"

namespace culet {
namespace {

DeviceInfo Hopper() {
  DeviceInfo device;
  device.arch = 900;
  device.units = 132;
  device.cache_bytes = std::size_t{60} << 20;
  device.memory_bytes = std::size_t{140} << 30;
  return device;
}

GemmDesc Fp8(int m, int n, int k) { return *MakeDesc(Format::kFp8Block, m, n, k, 900); }

std::size_t SetsThatRotate(const GemmDesc& desc, const ScratchOptions& options) {
  return static_cast<std::size_t>(static_cast<double>(options.rotate_bytes) / MinimumBytes(desc)) +
         1;
}

// Which a library reads in place, as it reads a caller's.
TEST(ColdInputs, HaveScalesOnSixteenBytes) {
  const DeviceInfo host = HostDevice();
  for (const Format format : {Format::kFp8Row, Format::kFp8Tensor}) {
    const GemmDesc desc = *MakeDesc(format, 5, 48, 64, host.arch);
    const auto scratch = ScratchProblem::Create(host, desc, ColdInputs(host, desc));
    ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
    for (int set = 0; set < scratch->sets(); ++set) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch->args(set).U) % 16, 0u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(scratch->args(set).V) % 16, 0u);
    }
  }
}

TEST(ColdInputs, ExceedThreeTimesTheCacheOfAGpu) {
  const DeviceInfo gpu = Hopper();
  for (const int m : {1, 128, 8192}) {
    const GemmDesc desc = Fp8(m, 4096, 4096);
    const ScratchOptions options = ColdInputs(gpu, desc);
    EXPECT_EQ(options.rotate_bytes, 3 * gpu.cache_bytes);
    EXPECT_GT(static_cast<double>(SetsThatRotate(desc, options)) * MinimumBytes(desc),
              3.0 * static_cast<double>(gpu.cache_bytes));
  }
}

TEST(ColdInputs, ExceedTheCacheOfACpu) {
  DeviceInfo cpu;
  cpu.cache_bytes = std::size_t{480} << 20;
  cpu.memory_bytes = std::size_t{64} << 30;
  const GemmDesc desc = *MakeDesc(Format::kBf16, 1, 4096, 4096, 0);
  EXPECT_EQ(ColdInputs(cpu, desc).rotate_bytes, cpu.cache_bytes);
}

TEST(ColdInputs, TakeAQuarterOfTheMemoryAtMost) {
  DeviceInfo small = Hopper();
  small.memory_bytes = std::size_t{200} << 20;
  EXPECT_EQ(ColdInputs(small, Fp8(8, 4096, 4096)).rotate_bytes, std::size_t{50} << 20);
}

TEST(ColdInputs, AreAtMost256Sets) {
  const GemmDesc tiny = Fp8(1, 128, 128);
  EXPECT_LE(SetsThatRotate(tiny, ColdInputs(Hopper(), tiny)), 256u);
}

TEST(LaunchesPerSample, OneOnTheCpu) { EXPECT_EQ(LaunchesPerSample({}, 40, 1.0), 1); }

TEST(LaunchesPerSample, EverySetOnceAndLongEnough) {
  const DeviceInfo gpu = Hopper();
  EXPECT_EQ(LaunchesPerSample(gpu, 43, 1000.0), 43);  // every set
  EXPECT_EQ(LaunchesPerSample(gpu, 5, 10.0), 60);     // 600 us
  EXPECT_EQ(LaunchesPerSample(gpu, 1, 499.0), 2);     // a kernel behind a kernel
  EXPECT_EQ(LaunchesPerSample(gpu, 1, 2500.0), 1);
  EXPECT_EQ(LaunchesPerSample(gpu, 256, 0.01), 256);
  EXPECT_EQ(LaunchesPerSample(gpu, 1, 0.0), 256);
}

TEST(TunerDefaults, FollowTheDeviceWhereNothingIsSet) {
  const TunerOptions cpu = ForDevice({}, DeviceInfo{}), gpu = ForDevice({}, Hopper());
  EXPECT_EQ(*cpu.max_candidates, 24);
  EXPECT_EQ(*cpu.noise, 0.01);
  EXPECT_GT(*gpu.max_candidates, *cpu.max_candidates);
  EXPECT_GT(*gpu.clusters, *cpu.clusters);
  EXPECT_LT(*gpu.noise, *cpu.noise);
  EXPECT_LT(*gpu.drop_ratio, *cpu.drop_ratio);
  TunerOptions given;
  given.max_candidates = 3;
  given.noise = 0.5;
  EXPECT_EQ(*ForDevice(given, Hopper()).max_candidates, 3);
  EXPECT_EQ(*ForDevice(given, Hopper()).noise, 0.5);
}

class TimedLaunches : public testing::Test {
 protected:
  void SetUp() override {
    auto kernel = std::make_unique<FakeKernel>("user/fake");
    fake = kernel.get();
    fake->run = [this](const GemmArgs& args, int, int, Workspace&) {
      weights.push_back(args.B);
      return code;
    };
    ASSERT_TRUE(gemm.Register(std::move(kernel)).ok());
    spec.kernel = fake;
    ScratchOptions options;
    options.sets = 3;
    auto made =
        ScratchProblem::Create(gemm.device(), *MakeDesc(Format::kBf16, 2, 64, 64, 0), options);
    ASSERT_TRUE(made.ok());
    scratch = std::make_unique<ScratchProblem>(*std::move(made));
  }

  Gemm gemm = *Gemm::Create();
  FakeKernel* fake = nullptr;
  LaunchSpec spec;
  std::unique_ptr<ScratchProblem> scratch;
  std::vector<const void*> weights;
  int code = 0;
};

TEST_F(TimedLaunches, SamplesOfAllLaunchesTakeTheSetsInTurn) {
  auto first = TimedLaunch::Create(gemm, *scratch, spec);
  auto second = TimedLaunch::Create(gemm, *scratch, spec);
  ASSERT_TRUE(first.ok() && second.ok());
  for (int i = 0; i < 3; ++i) {
    const auto a = first->SampleUs(), b = second->SampleUs();
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_GE(*a, 0.0);
  }
  ASSERT_EQ(weights.size(), 6u);
  for (std::size_t i = 0; i + 3 <= weights.size(); ++i) {
    EXPECT_EQ(std::set<const void*>(&weights[i], &weights[i] + 3).size(), 3u) << i;
  }
}

TEST_F(TimedLaunches, AKernelThatWritesNothingDoesNotPass) {
  auto launch = TimedLaunch::Create(gemm, *scratch, spec);
  ASSERT_TRUE(launch.ok());
  const auto report = launch->Check();
  ASSERT_TRUE(report.ok());
  EXPECT_FALSE(report->ok());
  EXPECT_EQ(report->unwritten, 2u * 64u);
}

TEST_F(TimedLaunches, AFailingLaunchIsTold) {
  code = static_cast<int>(StatusCode::kDataLoss);
  auto launch = TimedLaunch::Create(gemm, *scratch, spec);
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->SampleUs().status().code(), StatusCode::kDataLoss);
  EXPECT_FALSE(launch->Check().ok());
}

}  // namespace
}  // namespace culet
