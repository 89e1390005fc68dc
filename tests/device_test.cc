// The host as a device: its class, its threads, its rates; devices by name.
#include "culet/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/host_device.h"
#include "base/host_rates.h"
#include "base/host_simd.h"

namespace culet {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(ParseTest, Threads) {
  EXPECT_EQ(ParseThreads("1"), 1);
  EXPECT_EQ(ParseThreads("1024"), 1024);
  const char* const bad[] = {nullptr, "",   "0",  "-1",   "1025", "99999999999",
                             "2.5",   "2 ", " 2", "four", "0x4",  "+4"};
  for (const char* text : bad) EXPECT_EQ(ParseThreads(text), 0) << (text ? text : "null");
}

TEST(ParseTest, CpuQuota) {
  EXPECT_EQ(ParseCpuQuota("200000 100000"), 2);
  EXPECT_EQ(ParseCpuQuota("150000 100000"), 2);
  EXPECT_EQ(ParseCpuQuota("1000 100000"), 1);
  EXPECT_EQ(ParseCpuQuota("9000000000000000000 1"), kMaxHostThreads);
  for (const char* none :
       {"max 100000", "", "100000", "100000 ", "0 100000", "-1 100000", "100000 0", "x y"}) {
    EXPECT_EQ(ParseCpuQuota(none), 0) << none;
  }
}

TEST(ParseTest, CacheSize) {
  EXPECT_EQ(ParseCacheSize("491520K"), std::size_t{480} << 20);
  EXPECT_EQ(ParseCacheSize("32M"), std::size_t{32} << 20);
  EXPECT_EQ(ParseCacheSize("1G"), std::size_t{1} << 30);
  for (const char* none : {"", "K", "32", "32Q", "-1K"}) EXPECT_EQ(ParseCacheSize(none), 0) << none;
}

TEST(HostDeviceTest, TheClassSaysWhatDecidesSpeed) {
  EXPECT_EQ(HostClass("avx3_dl", 2, std::size_t{480} << 20), "cpu/avx3_dl/2t/llc480m");
  const DeviceInfo host = HostDevice();
  EXPECT_EQ(host.device_class, HostClass(HostIsa(), HostThreads(), host.cache_bytes));
  EXPECT_THAT(host.device_class, MatchesRegex("cpu/[a-z0-9_]+/[0-9]+t/llc[0-9]+m"));
  EXPECT_EQ(host.arch, 0);
  EXPECT_EQ(host.ordinal, -1);
  EXPECT_EQ(host.units, HostThreads());
  EXPECT_FALSE(host.name.empty());
  EXPECT_GT(host.memory_bytes, 0u);
  EXPECT_LE(AvailableMemoryBytes(), host.memory_bytes);
}

TEST(HostDeviceTest, TheLastLevelCacheIsNoSmallerThanTheSecond) {
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  EXPECT_GE(LastLevelCacheBytes(), static_cast<std::size_t>(std::max(0L, l2)));
}

TEST(HostThreadsTest, MayBeSet) {
  const int before = HostThreads();
  ASSERT_TRUE(SetHostThreads(3).ok());
  EXPECT_EQ(HostThreads(), 3);
  EXPECT_EQ(HostDevice().units, 3);
  EXPECT_THAT(HostDevice().device_class, HasSubstr("/3t/"));
  for (const int bad : {0, -1, kMaxHostThreads + 1}) {
    const Status status = SetHostThreads(bad);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("threads is " + std::to_string(bad)));
    EXPECT_EQ(HostThreads(), 3);
  }
  ASSERT_TRUE(SetHostThreads(before).ok());
}

// What is read once per process is tested in processes of its own.
class HostThreadsDeathTest : public ::testing::Test {
 protected:
  HostThreadsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~HostThreadsDeathTest() override { unsetenv("CULET_THREADS"); }
};

TEST_F(HostThreadsDeathTest, TheEnvironmentSetsThem) {
  setenv("CULET_THREADS", "5", 1);
  EXPECT_EXIT(std::_Exit(HostThreads() + (CheckHostThreads().ok() ? 0 : 100)), ExitedWithCode(5),
              "");
}

TEST_F(HostThreadsDeathTest, ABadEnvironmentIsIgnoredAndReported) {
  setenv("CULET_THREADS", "many", 1);
  EXPECT_EXIT(std::_Exit(HostThreads() == AvailableCpus() ? 0 : 1), ExitedWithCode(0), "");
  const auto report = [] {
    const auto device = FindDevice("cpu");
    std::fputs(device.status().message().c_str(), stderr);
    return device.ok() ? 0 : static_cast<int>(device.status().code());
  };
  EXPECT_EXIT(std::_Exit(report()), ExitedWithCode(static_cast<int>(StatusCode::kInvalidArgument)),
              "CULET_THREADS is 'many'");
  EXPECT_EXIT(std::_Exit(SetHostThreads(2).ok() ? report() : 99), ExitedWithCode(0), "");
}

TEST_F(HostThreadsDeathTest, TheAffinityMaskLimitsThem) {
  const auto pinned = [] {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(getpid(), sizeof all, &all) != 0) return 101;
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    }
    if (sched_setaffinity(getpid(), sizeof one, &one) != 0) return 102;
    return HostThreads();
  };
  EXPECT_EXIT(std::_Exit(pinned()), ExitedWithCode(1), "");
}

TEST(DevicesTest, TheHostComesFirst) {
  std::string note;
  const auto devices = Devices(&note);
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].device_class, HostDevice().device_class);
  EXPECT_EQ(devices.size(), Devices().size());
  EXPECT_TRUE(devices.size() > 1 || !note.empty()) << "no word why there is no other device";
}

TEST(DevicesTest, FoundByName) {
  const auto host = FindDevice("cpu");
  ASSERT_TRUE(host.ok());
  EXPECT_EQ(host->ordinal, -1);
  for (const char* name : {"", "CPU", "gpu", "cpu:0", "cuda:99", "cuda:", "cuda:-1"}) {
    const auto missing = FindDevice(name);
    ASSERT_FALSE(missing.ok()) << name;
    EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(missing.status().message(), HasSubstr("'" + std::string(name) + "'"));
    EXPECT_THAT(missing.status().message(), HasSubstr("use 'cpu'"));
  }
  EXPECT_EQ(FindDevice("cuda").ok(), Devices().size() > 1);
}

DeviceInfo CpuOf(const char* isa, int threads) {
  DeviceInfo device;
  device.units = threads;
  device.device_class = HostClass(isa, threads, std::size_t{32} << 20);
  return device;
}

TEST(TypicalRatesTest, EveryClassHasRates) {
  for (const char* isa : {"avx3_zen4", "avx3_dl", "avx3", "avx2", "sse4", "ssse3", "sse2", "neon",
                          "sve2_128", "emu128", "scalar", "unheard_of"}) {
    for (const int threads : {1, 2, 64, 1024}) {
      const auto rates = TypicalRates(CpuOf(isa, threads), DataType::kBfloat16);
      EXPECT_GT(rates.read_gbps, 0);
      EXPECT_GT(rates.gflops, 0);
      EXPECT_FALSE(rates.measured);
    }
  }
  EXPECT_GT(TypicalRates(HostDevice(), DataType::kFloat32).gflops, 0);
}

TEST(TypicalRatesTest, WiderVectorsAndMoreThreadsAreFaster) {
  const auto gflops = [](const char* isa, int threads) {
    return TypicalRates(CpuOf(isa, threads), DataType::kFloat32).gflops;
  };
  EXPECT_GT(gflops("avx3_dl", 2), gflops("avx2", 2));
  EXPECT_GT(gflops("avx2", 2), gflops("sse4", 2));
  EXPECT_GT(gflops("sse4", 2), gflops("scalar", 2));
  EXPECT_DOUBLE_EQ(gflops("avx2", 8), 8 * gflops("avx2", 1));
  // Cores add arithmetic; the memory they share ends somewhere.
  const auto gbps = [](int threads) {
    return TypicalRates(CpuOf("avx2", threads), DataType::kFloat32).read_gbps;
  };
  EXPECT_GT(gbps(2), gbps(1));
  EXPECT_DOUBLE_EQ(gbps(512), gbps(1024));
}

TEST(TypicalRatesTest, GpusByTypeSizeAndMemory) {
  DeviceInfo gpu;
  gpu.arch = 900;
  gpu.units = 132;
  gpu.memory_bytes = std::size_t{141} << 30;
  gpu.device_class = "cuda/900/132sm/l2-60m/mem141g";
  const auto fp8 = TypicalRates(gpu, DataType::kFloat8_e4m3);
  const auto bf16 = TypicalRates(gpu, DataType::kBfloat16);
  const auto f32 = TypicalRates(gpu, DataType::kFloat32);
  EXPECT_DOUBLE_EQ(fp8.read_gbps, 4310);
  EXPECT_DOUBLE_EQ(fp8.gflops, 1458e3);
  EXPECT_DOUBLE_EQ(bf16.gflops, 788e3);
  EXPECT_GT(bf16.gflops, f32.gflops);
  gpu.units = 66;
  EXPECT_DOUBLE_EQ(TypicalRates(gpu, DataType::kBfloat16).gflops, 394e3);
  // An H100's memory at the H200's share of its interface; the size of a memory says nothing.
  gpu.memory_gbps = 3352;
  EXPECT_NEAR(TypicalRates(gpu, DataType::kBfloat16).read_gbps, 3010, 1);
  gpu.memory_bytes = std::size_t{24} << 30;
  EXPECT_NEAR(TypicalRates(gpu, DataType::kBfloat16).read_gbps, 3010, 1);
  // Half the power limit takes from the tensor cores, a slower clock from all.
  gpu.units = 132;
  gpu.power_watts = 350;
  EXPECT_DOUBLE_EQ(TypicalRates(gpu, DataType::kFloat8_e4m3).gflops, 729e3);
  EXPECT_DOUBLE_EQ(TypicalRates(gpu, DataType::kFloat32).gflops, f32.gflops);
  gpu.clock_mhz = 990;
  EXPECT_DOUBLE_EQ(TypicalRates(gpu, DataType::kFloat32).gflops, f32.gflops / 2);
}

// About half a millisecond between two looks at the clock: every sample takes as long. A power of
// two, so that sums are exact.
constexpr double kStep = 0x1p-11;
HostRatesInputs Inputs(std::size_t cache_bytes, std::size_t free_bytes) {
  return {[now_s = 0.0]() mutable { return now_s += kStep; }, cache_bytes, free_bytes};
}

TEST(HostRatesTest, AreTheWorkOverTheTime) {
  const auto rates = MeasureHostRates(Inputs(std::size_t{4} << 20, std::size_t{1} << 30));
  ASSERT_TRUE(rates.ok()) << rates.status().ToString();
  EXPECT_TRUE(rates->measured);
  EXPECT_DOUBLE_EQ(rates->launch_us, kStep * 1e6);
  // 16 MiB a sample, shared by the threads in whole cache lines.
  const double read_bytes = std::round(rates->read_gbps * 1e9 * kStep);
  EXPECT_LE(read_bytes, 16 << 20);
  EXPECT_GT(read_bytes, (16 << 20) - 256.0 * HostThreads());
  // Twelve multiply-adds of a vector a step and thread.
  const double lanes = rates->gflops * 1e9 * kStep / (HostThreads() * (1 << 19) * 12.0 * 2.0);
  // Vectors of 4, 8 or 16 floats, or one.
  EXPECT_THAT(lanes, testing::AnyOf(testing::DoubleNear(1, 1e-6), testing::DoubleNear(4, 1e-6),
                                    testing::DoubleNear(8, 1e-6), testing::DoubleNear(16, 1e-6)));
}

TEST(HostRatesTest, TheDataMustExceedTheCacheAndFitTheMemory) {
  const std::size_t mebi = std::size_t{1} << 20;
  for (const auto& [cache, free] : {std::pair{200 * mebi, 400 * mebi}, {4 * mebi, 127 * mebi}}) {
    const auto refused = MeasureHostRates(Inputs(cache, free));
    ASSERT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(refused.status().message(), HasSubstr("free memory"));
  }
}

TEST(HostRatesTest, ThisMachinesAreMeasuredOrRefusedForWantOfMemory) {
  const auto rates = MeasureHostRates();
  if (!rates.ok()) {
    ASSERT_EQ(rates.status().code(), StatusCode::kResourceExhausted) << rates.status().ToString();
    return;
  }
  EXPECT_TRUE(rates->measured);
  EXPECT_GT(rates->read_gbps, 0);
  EXPECT_GT(rates->gflops, 0);
  EXPECT_GE(rates->launch_us, 0);
}

TEST(HostRatesDeathTest, ShortMemoryIsReported) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto starved = [] {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t limit = pages * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE)) + (32u << 20);
    const rlimit bytes = {limit, limit};
    if (!SetHostThreads(1).ok() || setrlimit(RLIMIT_AS, &bytes) != 0) return 101;
    return static_cast<int>(MeasureHostRates().status().code());
  };
  EXPECT_EXIT(std::_Exit(starved()),
              ExitedWithCode(static_cast<int>(StatusCode::kResourceExhausted)), "");
}

}  // namespace
}  // namespace culet
