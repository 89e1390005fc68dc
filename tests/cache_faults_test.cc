// Many processes, killed processes and full disks: nothing that was saved is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/file_lock.h"
#include "cache_fixture.h"

namespace {

// Bytes of files that are written until the process is killed; below 0, all.
long written_until_killed = -1;

}  // namespace

// In the C library's place: a kill inside of a write.
extern "C" ssize_t write(int fd, const void* data, std::size_t bytes) {
  if (written_until_killed < 0) return syscall(SYS_write, fd, data, bytes);
  const std::size_t left = std::min(bytes, static_cast<std::size_t>(written_until_killed));
  if (left > 0 && syscall(SYS_write, fd, data, left) < 0) return -1;
  written_until_killed -= static_cast<long>(left);
  if (written_until_killed == 0) kill(getpid(), SIGKILL);
  return static_cast<ssize_t>(left);
}

namespace culet {
namespace {

namespace fs = std::filesystem;

// `body` in a child process; its return value is the exit status.
pid_t Fork(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a failed assertion must not leave it behind
    _exit(body());                     // not exit: gtest's state is the parent's
  }
  return child;
}

// The exit status, or -1 when a signal ended it.
int Wait(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class CacheFaultsTest : public testing::Test {
 protected:
  DispatchCache NewCache() { return DispatchCache({&kernel_}, kTestDevice); }

  // Inserts problems m = begin.. end - 1 into the file, `batch` at a time, as a tuner would.
  int SaveInBatches(int n, int begin, int end, int batch) {
    const CacheFile file(path_);
    DispatchCache cache = NewCache();
    for (int m = begin; m < end; ++m) {
      if (!cache.Insert(Problem(m, n), Measured(kernel_, m))) return 1;
      if ((m - begin + 1) % batch == 0 && !file.Save(cache).ok()) return 2;
    }
    return 0;
  }

  int CountTemporaries() {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      count += entry.path().string().find(".tmp-") != std::string::npos;
    }
    return count;
  }

  IdleKernel kernel_{"fake/fast"};
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "cache.jsonl";
};

TEST_F(CacheFaultsTest, SixteenProcessesLoseNothing) {
  constexpr int kProcesses = 16, kEntries = 200, kBatch = 20;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    children.push_back(Fork([&] { return SaveInBatches(100 + i, 1, kEntries + 1, kBatch); }));
  }
  // A reader takes no lock and yet always finds a whole file, never an older one.
  std::size_t seen = 0;
  for (int look = 0; look < 4; ++look) {
    DispatchCache reader = NewCache();
    const auto report = CacheFile(path_).Load(reader);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->damaged, 0);
    EXPECT_GE(reader.size(), seen);
    seen = reader.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  for (const pid_t child : children) EXPECT_EQ(Wait(child), 0);

  DispatchCache cache = NewCache();
  const auto report = CacheFile(path_).Load(cache);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->ToString(), "3200 used");
  EXPECT_EQ(cache.size(), 3200u);
  EXPECT_EQ(CountTemporaries(), 0);
}

TEST_F(CacheFaultsTest, ThreadsOfOneProcessLoseNothing) {
  std::vector<std::thread> threads;
  std::vector<int> results(4, -1);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { results[i] = SaveInBatches(100 + i, 1, 41, 4); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(results, testing::Each(0));
  DispatchCache cache = NewCache();
  EXPECT_EQ(CacheFile(path_).Load(cache)->ToString(), "160 used");
}

// A child saves entry after entry and reports each Save that returned; it is killed at a random
// moment. All that was reported must be there, and the file must be whole.
TEST_F(CacheFaultsTest, KilledWritersLoseNothing) {
  constexpr int kKills = 100;
  std::mt19937 random(11);
  int acknowledged = 0;  // entries m = 1 .. acknowledged are saved
  for (int round = 0; round < kKills; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = Fork([&] {
      close(pipe_ends[0]);
      for (int m = acknowledged + 1;; ++m) {
        if (SaveInBatches(64, m, m + 1, 1) != 0) return 1;
        if (write(pipe_ends[1], &m, sizeof m) != sizeof m) return 2;
      }
    });
    close(pipe_ends[1]);
    // At least one Save a round, then somewhere within the next ones.
    int saved = 0;
    ASSERT_EQ(read(pipe_ends[0], &saved, sizeof saved), static_cast<ssize_t>(sizeof saved));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 12'000));
    kill(child, SIGKILL);
    ASSERT_EQ(Wait(child), -1) << "the child failed by itself";
    do {
      acknowledged = saved;
    } while (read(pipe_ends[0], &saved, sizeof saved) == static_cast<ssize_t>(sizeof saved));
    close(pipe_ends[0]);

    DispatchCache cache = NewCache();
    const auto report = CacheFile(path_).Load(cache);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    ASSERT_EQ(report->damaged, 0);
    ASSERT_GE(report->used, acknowledged);
    ASSERT_LE(report->used, acknowledged + 1);  // saved, but killed before it could say so
    for (int m = 1; m <= acknowledged; ++m) ASSERT_TRUE(cache.Find(Problem(m, 64))) << m;
    acknowledged = report->used;
    ASSERT_LE(CountTemporaries(), 1) << "leftovers pile up";
  }
  EXPECT_EQ(SaveInBatches(64, 100'000, 100'001, 1), 0);
  EXPECT_EQ(CountTemporaries(), 0);
}

// The child is killed in the middle of its write, at every place in turn.
TEST_F(CacheFaultsTest, AWriterKilledInsideASaveLosesNothing) {
  ASSERT_EQ(SaveInBatches(64, 1, 21, 20), 0);
  const std::string before = ReadText(path_);
  for (const std::size_t written : {std::size_t{0}, std::size_t{1}, before.size() / 2,
                                    before.size() - 1, before.size(), before.size() + 20}) {
    const pid_t child = Fork([&] {
      written_until_killed = static_cast<long>(written);
      return 10 + SaveInBatches(64, 1000, 1001, 1);
    });
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
    EXPECT_EQ(CountTemporaries(), 1);  // it was writing
    EXPECT_EQ(ReadText(path_), before);
  }
  EXPECT_EQ(SaveInBatches(64, 1000, 1001, 1), 0) << "the next Save works, and clears up";
  EXPECT_EQ(CountTemporaries(), 0);
  DispatchCache cache = NewCache();
  EXPECT_EQ(CacheFile(path_).Load(cache)->used, 21);
}

// A limit of the file's size (ulimit -f) sends SIGXFSZ, whose default ends the process. A save must
// not die of it, nor change what the process does about that signal.
TEST_F(CacheFaultsTest, AFileThatMayNotGrowLeavesTheOldOne) {
  ASSERT_EQ(SaveInBatches(64, 1, 21, 20), 0);
  const std::string before = ReadText(path_);
  for (const auto handler : {SIG_DFL, SIG_IGN}) {
    for (const bool blocked : {false, true}) {
      EXPECT_EQ(Wait(Fork([&] {
                  std::signal(SIGXFSZ, handler);
                  sigset_t set, after;
                  sigemptyset(&set);
                  sigaddset(&set, SIGXFSZ);
                  if (blocked) pthread_sigmask(SIG_BLOCK, &set, nullptr);
                  const rlimit limit = {before.size() + 100, before.size() + 100};
                  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
                  DispatchCache cache = NewCache();
                  cache.Insert(Problem(1000), Measured(kernel_, 1));
                  const Result<int> saved = CacheFile(path_).Save(cache);
                  if (saved.ok()) return 2;
                  if (saved.status().code() != StatusCode::kIo) return 3;
                  if (saved.status().message().find("File too large") == std::string::npos) {
                    return 4;
                  }
                  pthread_sigmask(SIG_BLOCK, nullptr, &after);
                  if ((sigismember(&after, SIGXFSZ) == 1) != blocked) return 5;
                  sigpending(&after);
                  if (sigismember(&after, SIGXFSZ) != 0) return 6;
                  return std::signal(SIGXFSZ, SIG_DFL) == handler ? 0 : 7;
                })),
                0)
          << (handler == SIG_DFL ? "default" : "ignored") << ", blocked: " << blocked;
      EXPECT_EQ(ReadText(path_), before);
      EXPECT_EQ(CountTemporaries(), 0);
    }
  }
  EXPECT_EQ(SaveInBatches(64, 1000, 1001, 1), 0) << "the next Save works again";
}

TEST_F(CacheFaultsTest, TheLockDiesWithItsHolder) {
  using std::chrono::milliseconds;
  const std::string lock_path = path_ + ".lock";
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t holder = Fork([&] {
    const auto lock = FileLock::Acquire(lock_path, milliseconds(0));
    if (!lock.ok() || write(pipe_ends[1], "x", 1) != 1) return 1;
    pause();
    return 0;
  });
  char locked = 0;
  ASSERT_EQ(read(pipe_ends[0], &locked, 1), 1);
  const Status held = FileLock::Acquire(lock_path, milliseconds(30)).status();
  EXPECT_EQ(held.code(), StatusCode::kIo);
  EXPECT_THAT(held.message(), testing::HasSubstr(lock_path));
  kill(holder, SIGKILL);
  Wait(holder);
  EXPECT_TRUE(FileLock::Acquire(lock_path, milliseconds(0)).ok());
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST_F(CacheFaultsTest, AForkedChildDoesNotKeepTheLock) {
  using std::chrono::milliseconds;
  const std::string lock_path = path_ + ".lock";
  pid_t child = -1;
  {
    const auto lock = FileLock::Acquire(lock_path, milliseconds(0));
    ASSERT_TRUE(lock.ok());
    EXPECT_FALSE(FileLock::Acquire(lock_path, milliseconds(0)).ok()) << "locks between threads too";
    child = Fork([] {
      pause();
      return 0;
    });
  }
  EXPECT_TRUE(FileLock::Acquire(lock_path, milliseconds(0)).ok());
  kill(child, SIGKILL);
  Wait(child);
}

}  // namespace
}  // namespace culet
