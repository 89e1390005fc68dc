#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

#include "culet/device.h"

namespace culet {
namespace {

using std::chrono::milliseconds;

// Every task waits until all threads are in one. When they never are, ctest ends the test: a clock
// here would call a slow machine wrong.
bool AllThreadsTakePart(ThreadPool& pool) {
  std::atomic<int> missing{pool.threads()};
  pool.Run(pool.threads(), [&](int, int) {
    missing.fetch_sub(1);
    while (missing.load() > 0) std::this_thread::yield();
  });
  return true;
}

TEST(ThreadPoolTest, EveryTaskRunsOnceOnAValidThread) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      std::atomic<bool> valid{true};
      pool.Run(tasks, [&](int task, int thread) {
        runs[static_cast<std::size_t>(task)].fetch_add(1);
        if (thread < 0 || thread >= threads) valid = false;
      });
      EXPECT_TRUE(valid);
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1);
    }
  }
}

// A thread that takes a task takes a later one than it had before.
TEST(ThreadPoolTest, TasksAreHandedOutInOrder) {
  ThreadPool pool(4);
  std::vector<int> last(4, -1);
  std::atomic<bool> ordered{true};
  pool.Run(10000, [&](int task, int thread) {
    int& mine = last[static_cast<std::size_t>(thread)];
    if (task <= mine) ordered = false;
    mine = task;
  });
  EXPECT_TRUE(ordered);
}

TEST(ThreadPoolTest, WritesOfTheBodiesAreSeenByTheCaller) {
  ThreadPool pool(4);
  std::vector<int> plain(64);
  for (int round = 0; round < 2000; ++round) {
    pool.Run(64, [&](int task, int) { plain[static_cast<std::size_t>(task)] = round; });
    ASSERT_TRUE(std::ranges::all_of(plain, [&](int value) { return value == round; }));
  }
}

// Two threads of one number at a time would share a thread's scratch memory.
TEST(ThreadPoolTest, ThreadNumbersAreExclusive) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> exclusive{true};
  for (int round = 0; round < 200; ++round) {
    pool.Run(50, [&](int, int thread) {
      auto& mine = inside[static_cast<std::size_t>(thread)];
      if (mine.fetch_add(1) != 0) exclusive = false;
      std::this_thread::yield();
      mine.fetch_sub(1);
    });
  }
  EXPECT_TRUE(exclusive);
}

TEST(ThreadPoolTest, MaxThreadsIsALimit) {
  ThreadPool pool(4);
  for (const int limit : {1, 2, 3}) {
    std::atomic<int> inside{0}, most{0}, highest{0};
    for (int round = 0; round < 50; ++round) {
      pool.Run(
          40,
          [&](int, int thread) {
            const int now = inside.fetch_add(1) + 1;
            int seen = most.load();
            while (seen < now && !most.compare_exchange_weak(seen, now)) {
            }
            seen = highest.load();
            while (seen < thread && !highest.compare_exchange_weak(seen, thread)) {
            }
            std::this_thread::yield();
            inside.fetch_sub(1);
          },
          limit);
    }
    EXPECT_LE(most.load(), limit);
    EXPECT_LT(highest.load(), limit);
  }
}

TEST(ThreadPoolTest, ANestedCallRunsOnItsOwnThread) {
  ThreadPool pool(3), other(3);
  std::atomic<int> runs{0};
  std::atomic<bool> own{true};
  pool.Run(6, [&](int, int) {
    const auto self = std::this_thread::get_id();
    for (ThreadPool* nested : {&pool, &other}) {
      nested->Run(50, [&](int, int thread) {
        runs.fetch_add(1);
        if (thread != 0 || std::this_thread::get_id() != self) own = false;
        std::this_thread::yield();
      });
    }
  });
  EXPECT_EQ(runs.load(), 600);
  EXPECT_TRUE(own);
}

TEST(ThreadPoolTest, ConcurrentCallersAllFinish) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> runs{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) pool.Run(7, [&](int, int) { runs.fetch_add(1); });
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(runs.load(), 4 * 500 * 7);
}

// Whether the workers spin, sleep, or are about to: each call brings all of them.
TEST(ThreadPoolTest, NoWakeUpIsLost) {
  ThreadPool pool(3);
  for (int round = 0; round < 300; ++round) {
    if (round % 3 == 1) std::this_thread::sleep_for(std::chrono::microseconds(7 * (round % 40)));
    if (round % 100 == 2) std::this_thread::sleep_for(milliseconds(5));
    ASSERT_TRUE(AllThreadsTakePart(pool)) << "round " << round;
  }
}

TEST(ThreadPoolTest, EndsWhetherItsWorkersSpinOrSleep) {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(3);
    if (round % 2 != 0) pool.Run(3, [](int, int) {});
    if (round % 10 == 0) std::this_thread::sleep_for(milliseconds(2));
  }
}

TEST(ThreadPoolTest, WhatABodyThrowsComesOutAndTheNextCallIsAsUsual) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> begun{0};
      const auto body = [&](int task, int) {
        ++begun;
        if (task == round % 7) throw std::runtime_error("no paper");
      };
      EXPECT_THROW(pool.Run(100000, body), std::runtime_error);
      EXPECT_LT(begun, 100000);
      std::atomic<int> runs{0};
      pool.Run(100, [&](int, int) { ++runs; });
      EXPECT_EQ(runs, 100);
    }
    // Nobody is taken to be inside still.
    EXPECT_TRUE(MeasuringAlone(pool).begun());
  }
}

// Signals to the process go to its own threads; a handler of faults, such as Python's, sees those
// of the pool's threads, too.
TEST(ThreadPoolTest, FaultsReachTheirHandlers) {
  ThreadPool pool(3);
  std::atomic<int> open{0}, shut{0};
  const auto look = [&](int, int thread) {
    if (thread == 0) {  // the caller, who leaves some to the others
      std::this_thread::sleep_for(milliseconds(1));
      return;
    }
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    for (const int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) {
      open += sigismember(&blocked, fault) == 0;
    }
    for (const int other : {SIGINT, SIGTERM, SIGALRM}) shut += sigismember(&blocked, other) == 1;
  };
  while (open == 0 && shut == 0) pool.Run(8, look);
  EXPECT_EQ(open % 4, 0);
  EXPECT_EQ(open / 4, shut / 3);
}

class HostPoolTest : public testing::Test {
 protected:
  HostPoolTest() : threads_(HostThreads()) {}
  ~HostPoolTest() override { EXPECT_TRUE(SetHostThreads(threads_).ok()); }

  // Runs `body` in a child, which ends with this process; whether it returned true.
  template <class F>
  static bool InChild(F&& body) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      _exit(body() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  int threads_;
};

TEST_F(HostPoolTest, FollowsSetHostThreads) {
  for (const int threads : {3, 1, 2}) {
    ASSERT_TRUE(SetHostThreads(threads).ok());
    EXPECT_EQ(HostPool().threads(), threads);
    EXPECT_TRUE(AllThreadsTakePart(HostPool()));
  }
  EXPECT_EQ(&HostPool(), &HostPool());
}

TEST_F(HostPoolTest, AChildAfterForkHasWorkersOfItsOwn) {
  ASSERT_TRUE(SetHostThreads(3).ok());
  ASSERT_TRUE(AllThreadsTakePart(HostPool()));
  EXPECT_TRUE(InChild([] {
    return HostPool().threads() == 3 && AllThreadsTakePart(HostPool()) &&
           InChild([] { return AllThreadsTakePart(HostPool()); });
  }));
  EXPECT_TRUE(AllThreadsTakePart(HostPool()));
}

TEST_F(HostPoolTest, AForkInTheMiddleOfAJobIsSafe) {
  ASSERT_TRUE(SetHostThreads(3).ok());
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) HostPool().Run(8, [](int, int) { std::this_thread::yield(); });
  });
  for (int round = 0; round < 10; ++round) {
    EXPECT_TRUE(InChild([] { return AllThreadsTakePart(HostPool()); })) << round;
  }
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace culet
