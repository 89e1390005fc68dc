// Who measures and who computes on the CPU wait for each other, but not for ever: a launch that
// lasts longer than the others' patience gets its time, and a call that never ends is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/thread_pool.h"
#include "base/time_alone.h"
#include "culet/gemm.h"
#include "culet/model.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kAtOnce{0};

// Calls the pool again and again until it is destroyed.
class Caller {
 public:
  explicit Caller(ThreadPool& pool)
      : thread_([this, &pool] {
          while (!stop_) {
            pool.Run(2, [this](int, int) { runs_.fetch_add(1); });
          }
        }) {}
  ~Caller() {
    stop_ = true;
    thread_.join();
  }
  int runs() const { return runs_; }
  void AwaitRun() const {
    for (const int before = runs_; runs_ == before;) std::this_thread::yield();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> runs_{0};
  std::thread thread_;
};

// Stays in a call of the pool until it is destroyed.
class Holder {
 public:
  explicit Holder(ThreadPool& pool)
      : thread_([this, &pool] {
          pool.Run(1, [this](int, int) {
            held_ = true;
            while (!let_go_) std::this_thread::yield();
          });
        }) {
    while (!held_) std::this_thread::yield();
  }
  ~Holder() {
    let_go_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> held_{false}, let_go_{false};
  std::thread thread_;
};

// The callers' patience ends in the first sample, whatever it lasts; an hour by the clock, so that
// they wait for four in the second.
TEST(TimeAloneTest, WhatLastsLongerThanTheOthersPatienceGetsItsTime) {
  ThreadPool pool(2, kAtOnce);
  const Caller caller(pool);
  double now_s = 0;
  int samples = 0;
  bool disturbed = false;
  const auto run = [&]() -> Status {
    if (++samples == 1) {
      caller.AwaitRun();
      now_s += 3600;
      return {};
    }
    const int before = caller.runs();
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    disturbed = caller.runs() != before;
    now_s += 1;
    return {};
  };
  const auto time_us = TimeAloneUs(pool, run, nullptr, [&] { return now_s; });
  ASSERT_TRUE(time_us.ok()) << time_us.status().ToString();
  EXPECT_EQ(*time_us, 1e6);
  EXPECT_EQ(samples, 2);
  EXPECT_FALSE(disturbed);
}

// What waits for a caller of its own is no deadlock, and has no time.
TEST(TimeAloneTest, WhatWaitsForAnotherCallerIsToldSo) {
  ThreadPool pool(2, kAtOnce);
  const Caller caller(pool);
  int samples = 0;
  const auto run = [&]() -> Status {
    ++samples;
    caller.AwaitRun();
    return {};
  };
  const Status status = TimeAloneUs(pool, run, nullptr, [] { return 0.0; }).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("another thread"));
  EXPECT_EQ(samples, 2);
}

TEST(TimeAloneTest, ACallThatDoesNotEndIsGivenUp) {
  ThreadPool pool(2, kAtOnce);
  const auto run = [] { return Status(StatusCode::kInternal, "it ran"); };
  {
    const Holder holder(pool);
    int asked = 0;
    const Status status = TimeAloneUs(pool, run, [&] { return ++asked == 3; }).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("did not end"));
    EXPECT_EQ(asked, 3);
    const MeasuringAlone alone(pool, {.give_up = [] { return true; }});
    EXPECT_FALSE(alone.begun());
  }
  EXPECT_EQ(TimeAloneUs(pool, run).status().code(), StatusCode::kInternal);
}

TEST(TimeAloneTest, SoIsAMeasurementThatDoesNotEnd) {
  ThreadPool pool(2, kAtOnce);
  MeasuringAlone first(pool);
  std::thread second([&] {
    MeasuringAlone alone(pool, {.give_up = [] { return true; }});
    EXPECT_FALSE(alone.begun());
    EXPECT_FALSE(alone.End());
  });
  second.join();
  EXPECT_TRUE(first.begun());
  EXPECT_TRUE(first.End());
}

// A caller that gave up no longer blocks others: otherwise these calls would wait for ever.
TEST(TimeAloneTest, WhoGivesUpLetsTheOthersGoOn) {
  ThreadPool pool(2, std::chrono::hours(1000));
  const Holder holder(pool);
  {
    const MeasuringAlone alone(pool, {.give_up = [] { return true; }});
    EXPECT_FALSE(alone.begun());
    std::thread other([&] { pool.Run(2, [](int, int) {}); });
    other.join();
  }
  std::thread other([&] { pool.Run(2, [](int, int) {}); });
  other.join();
}

class TuneBesideAHangingCallTest : public testing::Test {
 protected:
  TuneBesideAHangingCallTest() {
    EXPECT_TRUE(SetHostThreads(3).ok());
    options_.tuner.clock_s = [this] { return now_s_; };
  }
  ~TuneBesideAHangingCallTest() override { EXPECT_TRUE(SetHostThreads(threads_).ok()); }

  // Tunes beside a call that never ends; `while_waiting` is called when the wait for it began.
  template <class WhileWaiting>
  Result<TuneReport> Tune(const WhileWaiting& while_waiting) {
    const Holder holder(HostPool());
    bool launching = false;
    // Progress is told before each sample; what is asked after the first is asked by the wait.
    options_.on_progress = [&](double, const LaunchSpec&) { return launching = true; };
    int asked = 0;
    options_.stop = [&] {
      if (launching && ++asked > 1000) while_waiting();
      return stop_;
    };
    return gemm_.Tune(desc_, options_);
  }

  Gemm gemm_ = *Gemm::Create();
  const GemmDesc desc_ = *MakeDesc(Format::kF32, 4, 8, 16, /*arch=*/0);
  double now_s_ = 0;
  bool stop_ = false;
  TuneOptions options_;

 private:
  const int threads_ = HostThreads();
};

TEST_F(TuneBesideAHangingCallTest, ItIsAnErrorOnceForAll) {
  const auto report = Tune([&] { now_s_ += 20; });
  EXPECT_EQ(report.status().code(), StatusCode::kFailedPrecondition) << report.status().ToString();
  EXPECT_THAT(report.status().message(), HasSubstr("did not end"));
  EXPECT_EQ(gemm_.cache().size(), 0u);
}

TEST_F(TuneBesideAHangingCallTest, TheWaitEndsWithTheBudget) {
  options_.tuner.budget_s = 10;
  const auto report = Tune([&] { now_s_ += 20; });
  EXPECT_EQ(report.status().code(), StatusCode::kResourceExhausted) << report.status().ToString();
}

TEST_F(TuneBesideAHangingCallTest, TheWaitEndsWhenTheCallerWantsIt) {
  const auto report = Tune([&] { stop_ = true; });
  EXPECT_FALSE(report.ok() && report->complete);
  EXPECT_EQ(gemm_.cache().size(), 0u);
  // Nothing was spoilt: without the other call it is tuned.
  stop_ = false;
  options_.stop = nullptr;
  options_.on_progress = nullptr;
  EXPECT_TRUE(gemm_.Tune(desc_, options_).ok());
}

}  // namespace
}  // namespace culet
