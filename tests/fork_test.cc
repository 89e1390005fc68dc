// A process forked while other threads use the engine: the child finds every lock free.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "asan.h"
#include "base/made_once.h"
#include "culet/gemm.h"
#include "culet/model.h"

namespace culet {
namespace {

GemmDesc Problem(int m) { return *MakeDesc(Format::kF32, m, 32, 64, /*arch=*/0); }

// The exit status of a child that runs `body`; -1 when it hung and was ended.
template <class Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // its default action ends the process
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Fork, TheChildUsesTheEngineThatOtherThreadsHeld) {
  if (kForkNeedsQuietThreads) GTEST_SKIP() << "the sanitizer's allocator is not made for this";
  Gemm gemm = *Gemm::Create();
  LaunchSpec spec;
  spec.kernel = gemm.registry().Find("cpu_reference");  // takes every m
  ASSERT_NE(spec.kernel, nullptr);
  spec.origin = Origin::kMeasured;
  spec.time_us = 1;
  // Many entries, so that copying them holds the lock for long.
  for (int m = 1; m <= 20'000; ++m) ASSERT_TRUE(gemm.cache().Insert(Problem(m), spec));

  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) EXPECT_EQ(gemm.cache().Entries().size(), 20'000u);
  });
  std::thread chooser([&] {
    for (int m = 100'000; !stop; ++m) {
      EXPECT_TRUE(gemm.Choose(Problem(m % 1000 + 100'000)).ok());
    }
  });
  int good = 0;
  constexpr int kChildren = 20;
  for (int i = 0; i < kChildren; ++i) {
    const int status = InChild([&] {
      LaunchSpec better = spec;
      better.when = 1;
      if (!gemm.cache().Insert(Problem(7), better)) return 1;
      if (gemm.cache().Entries().size() != 20'000) return 2;
      return gemm.Choose(Problem(200'000)).ok() ? 0 : 3;
    });
    good += status == 0;
    if (status != 0) break;  // each hang takes seconds
  }
  stop = true;
  reader.join();
  chooser.join();
  EXPECT_EQ(good, kChildren);
}

TEST(Fork, TheChildMakesWhatAnotherThreadIsMaking) {
  static constinit std::atomic<const int*> place = nullptr;
  const auto make = [] { return std::make_unique<const int>(7); };
  std::atomic<bool> making = false, go_on = false;
  std::thread maker([&] {
    const int& made = MadeOnce(place, [&] {
      making = true;
      making.notify_one();
      go_on.wait(false);
      return std::make_unique<const int>(3);
    });
    EXPECT_EQ(made, 7) << "the first that was made counts";
  });
  making.wait(false);
  EXPECT_EQ(InChild([&] { return MadeOnce(place, make); }), 7);
  EXPECT_EQ(place.load(), nullptr);
  EXPECT_EQ(MadeOnce(place, make), 7);
  go_on = true;
  go_on.notify_one();
  maker.join();
  delete place.exchange(nullptr);
}

TEST(Fork, EnginesComeAndGoAround) {
  for (int i = 0; i < 3; ++i) {
    const Gemm a = *Gemm::Create();
    const Gemm b = *Gemm::Create();
    EXPECT_EQ(InChild([] { return Gemm::Create()->Choose(Problem(1)).ok() ? 0 : 1; }), 0);
  }
}

}  // namespace
}  // namespace culet
