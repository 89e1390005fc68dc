// Several callers of one thread pool: they share the workers, and none of them runs while another
// measures. No clock decides: what fails here waits for ever and is ended by ctest.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "asan.h"
#include "base/thread_pool.h"
#include "culet/device.h"
#include "gemm/runtime.h"

namespace culet {
namespace {

constexpr std::chrono::hours kForEver{1000};
constexpr std::chrono::milliseconds kAtOnce{0};

// Every task waits until all threads of the pool are in one: a job that runs on the caller alone
// never ends.
void MeetAllThreads(ThreadPool& pool) {
  std::atomic<int> missing{pool.threads()};
  pool.Run(pool.threads(), [&](int, int) {
    missing.fetch_sub(1);
    while (missing.load() > 0) std::this_thread::yield();
  });
}

void YieldOften() {
  for (int i = 0; i < 20; ++i) std::this_thread::yield();
}

// Holds `threads` threads of the pool, the caller's among them, until it is told to let go.
class Holder {
 public:
  Holder(ThreadPool& pool, int threads)
      : caller_([this, &pool, threads] {
          pool.Run(threads, [&](int, int) {
            held_.fetch_add(1);
            while (!let_go_) std::this_thread::yield();
          });
        }) {
    while (held_.load() < threads) std::this_thread::yield();
  }
  void LetGo() { let_go_ = true; }
  ~Holder() {
    let_go_ = true;
    caller_.join();
  }

 private:
  std::atomic<int> held_{0};
  std::atomic<bool> let_go_{false};
  std::thread caller_;
};

// Every task waits until `threads` threads are in one.
void Meet(ThreadPool& pool, int threads) {
  std::atomic<int> missing{threads};
  pool.Run(threads, [&](int, int) {
    missing.fetch_sub(1);
    while (missing.load() > 0) std::this_thread::yield();
  });
}

TEST(PoolCallersTest, ASecondCallerGetsTheWorkersThatAreFree) {
  for (int round = 0; round < 10; ++round) {
    ThreadPool pool(5);
    const Holder first(pool, 2);
    Meet(pool, 2);
    Meet(pool, 2);
  }
}

TEST(PoolCallersTest, WorkersComeBackWhenACallerEnds) {
  ThreadPool pool(4);
  for (int round = 0; round < 10; ++round) {
    {
      const Holder first(pool, 3);
      std::atomic<int> runs{0};
      pool.Run(100, [&](int, int) { runs.fetch_add(1); });
      EXPECT_EQ(runs.load(), 100);
    }
    MeetAllThreads(pool);
  }
}

// A long job that another one had taken threads from gets them when that one ends.
TEST(PoolCallersTest, ARunningJobGetsTheThreadsOfOneThatEnds) {
  ThreadPool pool(3);
  for (int round = 0; round < 10; ++round) {
    Holder first(pool, 2);
    std::atomic<int> begun{0}, missing{3};
    pool.Run(100, [&](int, int) {
      // The first tasks end; then all three threads are needed at once.
      if (begun.fetch_add(1) < 50) return;
      first.LetGo();
      missing.fetch_sub(1);
      while (missing.load() > 0) std::this_thread::yield();
    });
  }
}

TEST(PoolCallersTest, CallersAndWorkersAreNoMoreThanTheThreads) {
  ThreadPool pool(3);
  std::atomic<int> inside{0}, most{0}, callers{0};
  const auto call = [&] {
    callers.fetch_add(1);
    while (callers.load() < 2) std::this_thread::yield();
    for (int round = 0; round < 30; ++round) {
      pool.Run(20, [&](int, int) {
        const int now = inside.fetch_add(1) + 1;
        int seen = most.load();
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        std::this_thread::yield();
        inside.fetch_sub(1);
      });
    }
  };
  std::thread other(call);
  call();
  other.join();
  // A worker that a second caller finds at work finishes its task first.
  EXPECT_LE(most.load(), 4);
}

// Two callers' jobs at once, each thread number once a job.
TEST(PoolCallersTest, ThreadNumbersAreExclusiveInEachJob) {
  ThreadPool pool(4);
  std::atomic<bool> exclusive{true};
  const auto call = [&] {
    for (int round = 0; round < 30; ++round) {
      std::vector<std::atomic<int>> inside(4);
      std::vector<std::atomic<int>> runs(30);
      pool.Run(30, [&](int task, int thread) {
        auto& mine = inside[static_cast<std::size_t>(thread)];
        if (mine.fetch_add(1) != 0) exclusive = false;
        runs[static_cast<std::size_t>(task)].fetch_add(1);
        std::this_thread::yield();
        mine.fetch_sub(1);
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  };
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) others.emplace_back(call);
  call();
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(exclusive);
}

TEST(PoolCallersTest, MoreCallersThanThreadsAllFinish) {
  ThreadPool pool(2);
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 20; ++round) pool.Run(7, [&](int, int) { runs.fetch_add(1); });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs.load(), 6 * 20 * 7);
}

// One thread each needs no workers, so nobody waits for anybody.
TEST(PoolCallersTest, CallsOfOneThreadRunBesideEachOther) {
  ThreadPool single(1), pool(3);
  for (ThreadPool* shared : {&single, &pool}) {
    std::atomic<int> missing{2};
    const auto meet = [&] {
      shared->Run(
          1,
          [&](int, int) {
            missing.fetch_sub(1);
            while (missing.load() > 0) std::this_thread::yield();
          },
          1);
    };
    std::thread other(meet);
    meet();
    other.join();
  }
}

// A single task may hold a whole product, which has jobs of its own.
TEST(PoolCallersTest, AJobWithinASingleTaskHasTheWorkers) {
  ThreadPool pool(3);
  for (int round = 0; round < 10; ++round) pool.Run(1, [&](int, int) { MeetAllThreads(pool); });
}

TEST(MeasuringAloneTest, OthersWaitUntilItEnds) {
  ThreadPool pool(2, kForEver);
  for (const int tasks : {1, 8}) {
    std::atomic<bool> calling{false};
    std::atomic<int> runs{0};
    MeasuringAlone alone(pool);
    std::thread other([&] {
      calling = true;
      pool.Run(tasks, [&](int, int) { runs.fetch_add(1); });
    });
    while (!calling) std::this_thread::yield();
    for (int round = 0; round < 20; ++round) {
      MeetAllThreads(pool);  // the one who measures is not kept out
      YieldOften();
      EXPECT_EQ(runs.load(), 0);
    }
    EXPECT_TRUE(alone.End());
    other.join();
    EXPECT_EQ(runs.load(), tasks);
  }
}

TEST(MeasuringAloneTest, BeginsWhenTheOthersAreDone) {
  ThreadPool pool(2, kForEver);
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (const int tasks : {1, 4}) {
    callers.emplace_back([&, tasks] {
      while (!stop) {
        pool.Run(tasks, [&](int, int) {
          inside.fetch_add(1);
          std::this_thread::yield();
          inside.fetch_sub(1);
        });
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    MeasuringAlone alone(pool);
    for (int look = 0; look < 10; ++look) {
      EXPECT_EQ(inside.load(), 0);
      std::this_thread::yield();
    }
    EXPECT_TRUE(alone.End());
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

// A tuner's samples follow each other at once.
TEST(MeasuringAloneTest, CallersGetInBetweenTwoMeasurements) {
  ThreadPool pool(2, kForEver);
  std::atomic<bool> done{false}, disturbed{false};
  std::thread tuner([&] {
    while (!done) {
      MeasuringAlone alone(pool);
      if (!alone.End()) disturbed = true;
    }
  });
  for (int round = 0; round < 20; ++round) pool.Run(4, [](int, int) {});
  done = true;
  tuner.join();
  EXPECT_FALSE(disturbed);
}

TEST(MeasuringAloneTest, ThreadsMeasureInTurn) {
  ThreadPool pool(2, kForEver);
  std::atomic<int> measuring{0};
  std::atomic<bool> both{false};
  const auto measure = [&] {
    for (int round = 0; round < 20; ++round) {
      MeasuringAlone alone(pool);
      if (measuring.fetch_add(1) != 0) both = true;
      MeetAllThreads(pool);
      measuring.fetch_sub(1);
    }
  };
  std::thread other(measure);
  measure();
  other.join();
  EXPECT_FALSE(both);
}

// A kernel that waits for a thread of its own, which runs a product, is no deadlock; that the time
// is not that of one caller alone is told.
TEST(MeasuringAloneTest, ACallerWhoseTurnDoesNotComeGoesOnAndIsTold) {
  ThreadPool pool(2, kAtOnce);
  for (const int tasks : {1, 8}) {
    MeasuringAlone alone(pool);
    std::thread other([&] { pool.Run(tasks, [](int, int) {}); });
    other.join();
    EXPECT_FALSE(alone.End());
  }
  MeasuringAlone next(pool);
  MeetAllThreads(pool);
  EXPECT_TRUE(next.End());
}

TEST(MeasuringAloneTest, WithinACallOrAMeasurementItDoesNothing) {
  ThreadPool pool(2, kForEver);
  pool.Run(1, [&](int, int) {
    MeasuringAlone alone(pool);
    std::thread other([&] { pool.Run(8, [](int, int) {}); });
    other.join();
  });
  MeasuringAlone outer(pool);
  {
    MeasuringAlone inner(pool);
    EXPECT_TRUE(inner.End());
  }
  std::atomic<int> runs{0};
  std::thread other([&] { pool.Run(1, [&](int, int) { runs.fetch_add(1); }); });
  YieldOften();
  EXPECT_EQ(runs.load(), 0);
  EXPECT_TRUE(outer.End());
  other.join();
}

class HostCallersTest : public testing::Test {
 protected:
  HostCallersTest() { EXPECT_TRUE(SetHostThreads(3).ok()); }
  ~HostCallersTest() override { EXPECT_TRUE(SetHostThreads(threads_).ok()); }

 private:
  const int threads_ = HostThreads();
};

// What the tuner and the benchmarks time with.
TEST_F(HostCallersTest, NothingElseRunsWhileALaunchIsTimed) {
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      HostPool().Run(4, [&](int, int) {
        inside.fetch_add(1);
        std::this_thread::yield();
        inside.fetch_sub(1);
      });
    }
  });
  const auto launch = [&] {
    for (int look = 0; look < 10; ++look) {
      if (inside.load() != 0) return Status(StatusCode::kWrongResult, "another caller ran");
      std::this_thread::yield();
    }
    return OkStatus();
  };
  Runtime& runtime = GetRuntime(HostDevice());
  const auto replay = runtime.Record([&](cudaStream_t) { return launch(); });
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(runtime.TimeUs(launch).ok());
    EXPECT_TRUE((*replay)->TimeUs(2).ok());
  }
  stop = true;
  other.join();
}

TEST_F(HostCallersTest, AForkWhileOthersWaitAndMeasureIsSafe) {
  if (kForkNeedsQuietThreads) GTEST_SKIP() << "the sanitizer's allocator is not made for this";
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([&] {
      while (!stop) HostPool().Run(4, [](int, int) { std::this_thread::yield(); });
    });
  }
  callers.emplace_back([&] {
    while (!stop) MeasuringAlone alone(HostPool());
  });
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      MeetAllThreads(HostPool());
      MeasuringAlone alone(HostPool());
      _exit(alone.End() ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << round;
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace culet
