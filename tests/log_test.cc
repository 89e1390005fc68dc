// The log and the ranges for profilers: silent until asked, what they say, what they survive.
#include "culet/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/trace.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "culet/model.h"
#include "idle_dispatch.h"

namespace culet {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override {
    SetLog(nullptr);
    trace_hooks = nullptr;
  }

  void Listen(LogLevel least) {
    SetLog(
        [this](LogLevel level, const std::string& message) {
          const std::lock_guard lock(mutex_);
          heard_.emplace_back(level, message);
        },
        least);
  }

  // Plans and launches a small product.
  static void Multiply(Gemm& gemm) {
    std::vector<float> a(8 * 16, 1.0f), b(16 * 8, 1.0f), d(8 * 8);
    GemmArgs args;
    args.A = a.data();
    args.Adesc = RowMajor(DataType::kFloat32, 8, 16);
    args.B = b.data();
    args.Bdesc = ColMajor(DataType::kFloat32, 16, 8);
    args.D = d.data();
    args.Ddesc = RowMajor(DataType::kFloat32, 8, 8);
    const auto plan = gemm.Plan(args);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    std::vector<std::max_align_t> memory(workspace_bytes(*plan) / sizeof(std::max_align_t) + 32);
    void* begin = memory.data();
    std::size_t room = memory.size() * sizeof(std::max_align_t);
    std::align(256, workspace_bytes(*plan), begin, room);
    auto workspace = InitWorkspace(plan->workspace_size(), begin, workspace_bytes(*plan));
    ASSERT_TRUE(workspace.ok());
    ASSERT_TRUE(plan->Launch({.A = a.data(), .D = d.data()}, *workspace).ok());
    EXPECT_EQ(d[0], 16);
  }

  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> heard_;
};

TEST_F(LogTest, IsSilentUntilAskedAndAfterwards) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  Multiply(*gemm);
  EXPECT_THAT(heard_, IsEmpty());
  Listen(LogLevel::kDebug);
  Multiply(*gemm);
  EXPECT_FALSE(heard_.empty());
  SetLog(nullptr);
  heard_.clear();
  Multiply(*gemm);
  EXPECT_THAT(heard_, IsEmpty());
}

TEST_F(LogTest, APlanIsADebugMessage) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  Listen(LogLevel::kDebug);
  Multiply(*gemm);
  EXPECT_THAT(heard_,
              Contains(Pair(LogLevel::kDebug, AllOf(StartsWith("plan m=8 n=8 k=16"),
                                                    HasSubstr("cpu_"), HasSubstr("predicted")))));
  heard_.clear();
  Listen(LogLevel::kInfo);
  Multiply(*gemm);
  EXPECT_THAT(heard_, IsEmpty());
}

TEST_F(LogTest, TuningIsAnInfoMessage) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  Listen(LogLevel::kInfo);
  TuneOptions options;
  options.tuner.budget_s = 1;
  ASSERT_TRUE(gemm->Tune(*MakeDesc(Format::kF32, 1, 64, 64, 0), options).ok());
  EXPECT_THAT(heard_, Contains(Pair(LogLevel::kInfo, AllOf(StartsWith("tuned m=1 n=64 k=64"),
                                                           HasSubstr("the default")))));
}

TEST_F(LogTest, ACacheThatIsReadIsInfoAndADamagedOneAWarning) {
  const std::string path = ::testing::TempDir() + "/log_test.jsonl";
  std::filesystem::remove(path);
  DispatchCache cache({});
  Listen(LogLevel::kInfo);
  ASSERT_TRUE(CacheFile(path).Load(cache).ok());
  EXPECT_THAT(heard_, ElementsAre(Pair(LogLevel::kInfo, HasSubstr("log_test.jsonl: 0 used"))));
  heard_.clear();
  std::ofstream(path) << R"({"format":"culet-dispatch-cache","version":1})"
                      << "\nrubbish\n";
  ASSERT_TRUE(CacheFile(path).Load(cache).ok());
  EXPECT_THAT(heard_, ElementsAre(Pair(LogLevel::kWarning, HasSubstr("1 damaged"))));
}

TEST_F(LogTest, WhatTheFunctionThrowsIsDropped) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  SetLog([](LogLevel, const std::string&) { throw std::runtime_error("no disk"); },
         LogLevel::kDebug);
  Multiply(*gemm);
}

TEST_F(LogTest, TheFunctionMayCallTheLibrary) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  int calls = 0;
  SetLog(
      [&](LogLevel, const std::string&) {
        ++calls;
        Multiply(*gemm);
      },
      LogLevel::kDebug);
  Multiply(*gemm);
  EXPECT_EQ(calls, 1);  // what it calls logs nothing
}

TEST_F(LogTest, ManyThreadsMayLogWhileTheFunctionIsReplaced) {
  std::atomic<bool> stop = false;
  std::atomic<int> calls = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) Log(LogLevel::kInfo, "message {}", 7);
    });
  }
  for (int i = 0; i < 200 || calls < 1000; ++i) {
    SetLog([&calls](LogLevel, const std::string& message) {
      calls += message == "message 7" ? 1 : -1000000;
    });
    if (i % 3 == 0) SetLog(nullptr);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(calls, 0);
}

std::vector<std::string> ranges;  // "+name" and "-"
constexpr TraceHooks kHooks = {
    [](const char* name) noexcept { ranges.push_back(std::string("+") + name); },
    []() noexcept { ranges.push_back("-"); }};

TEST_F(LogTest, ALaunchIsARangeWithItsKernelAndSizes) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  ranges.clear();
  Multiply(*gemm);
  EXPECT_THAT(ranges, IsEmpty());
  trace_hooks = &kHooks;
  Multiply(*gemm);
  EXPECT_THAT(ranges, ElementsAre(AllOf(StartsWith("+cpu_"), HasSubstr(" 8x8x16")), "-"));
}

TEST_F(LogTest, ANodeOfAGraphIsARange) {
  ComputeGraph graph;
  std::vector<float> values(4 * 8);
  const int a = graph.add_leaf(ToDevicePtr(values.data()), {4, 8});
  graph.mark_output(graph.add_op(TensorOp::kAdd, 0, {4, 8}, {a, a}, {}, "sum"));
  IdleDispatch dispatch;
  auto executor = GraphExecutor::Create(graph, dispatch);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  ranges.clear();
  trace_hooks = &kHooks;
  ASSERT_TRUE(executor->Launch().ok());
  EXPECT_THAT(ranges, ElementsAre("+sum add", "-"));
}

TEST_F(LogTest, TracingIsRefusedWhereThereIsNoNvtx) {
  const Status status = SetTracing(true);
  if (status.ok()) {
    EXPECT_NE(trace_hooks.load(), nullptr);
  } else {
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr("nvtx3"));
  }
  EXPECT_TRUE(SetTracing(false).ok());
  EXPECT_EQ(trace_hooks.load(), nullptr);
}

}  // namespace
}  // namespace culet
