// What a cache file does with damaged lines and noisy records, and how it waits for its lock.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>

#include "base/file_lock.h"
#include "cache_fixture.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::HasSubstr;

class CacheDamageTest : public testing::Test {
 protected:
  DispatchCache NewCache() { return DispatchCache({&kernel_, &other_}, kTestDevice); }

  void SaveRecord(int m) {
    DispatchCache cache = NewCache();
    ASSERT_TRUE(cache.Insert(Problem(m), Measured(kernel_, 10)));
    const auto saved = CacheFile(path_).Save(cache);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
  }

  ImportReport Load() {
    DispatchCache cache = NewCache();
    const auto report = CacheFile(path_).Load(cache);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? *report : ImportReport();
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "cache.jsonl";
  std::string damaged_ = path_ + ".damaged";
  IdleKernel kernel_{"kernel"}, other_{"other"};
};

TEST_F(CacheDamageTest, DamagedLinesMoveAsideAtTheNextSave) {
  SaveRecord(1);
  WriteText(path_, ReadText(path_) + "no record\n\x01\x02\n");
  EXPECT_EQ(Load().damaged, 2);
  EXPECT_FALSE(fs::exists(damaged_)) << "loading writes nothing";
  SaveRecord(2);
  EXPECT_EQ(Load().damaged, 0);
  EXPECT_EQ(Load().used, 2);
  EXPECT_EQ(ReadText(damaged_), "no record\n\x01\x02\n");
  // Later ones join them.
  WriteText(path_, ReadText(path_) + "again\n");
  SaveRecord(3);
  EXPECT_EQ(ReadText(damaged_), "no record\n\x01\x02\nagain\n");
  EXPECT_EQ(Load().used, 3);
}

TEST_F(CacheDamageTest, TheCopyIsBounded) {
  SaveRecord(1);
  const std::string line(999, 'x');
  std::string text = ReadText(path_);
  for (int i = 0; i < 5000; ++i) text += line + '\n';
  WriteText(path_, text);
  SaveRecord(2);
  EXPECT_LT(fs::file_size(path_), 10'000u);
  const auto kept = fs::file_size(damaged_);
  EXPECT_LE(kept, std::size_t{1} << 20);
  EXPECT_GT(kept, std::size_t{1} << 19);
  WriteText(path_, ReadText(path_) + text);
  SaveRecord(3);
  EXPECT_LE(fs::file_size(damaged_), std::size_t{1} << 20);
  EXPECT_EQ(Load().used, 3);
}

// What is in the copy stays, whoever wrote it, and a larger one is left alone.
TEST_F(CacheDamageTest, ACopyThatExistsIsKept) {
  SaveRecord(1);
  for (const std::string& first :
       {std::string("my own notes\n"), std::string(std::size_t{3} << 20, 'x')}) {
    WriteText(damaged_, first);
    WriteText(path_, ReadText(path_) + "no record\n");
    SaveRecord(2);
    EXPECT_TRUE(ReadText(damaged_).starts_with(first));
    EXPECT_LE(fs::file_size(damaged_), std::max(first.size(), std::size_t{1} << 20));
    EXPECT_EQ(Load().damaged, 0);
  }
}

// The copy is written before the cache, so a full disk may keep the second from being written.
TEST_F(CacheDamageTest, ASaveThatFailsAndIsTriedAgainKeepsTheLinesOnce) {
  DispatchCache cache = NewCache();
  for (int m = 1; m <= 40; ++m) ASSERT_TRUE(cache.Insert(Problem(m), Measured(kernel_, 10)));
  ASSERT_TRUE(CacheFile(path_).Save(cache).ok());
  WriteText(path_, ReadText(path_) + "no record\n");
  ASSERT_TRUE(cache.Insert(Problem(41), Measured(kernel_, 10)));
  ASSERT_GT(fs::file_size(path_), 4000u);
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4000, 4000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    for (int i = 0; i < 3; ++i) {
      if (CacheFile(path_).Save(cache).status().code() != StatusCode::kIo) _exit(2);
    }
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ReadText(damaged_), "no record\n");
  ASSERT_TRUE(CacheFile(path_).Save(cache).ok());
  EXPECT_EQ(ReadText(damaged_), "no record\n");
  EXPECT_EQ(Load().used, 41);
}

TEST_F(CacheDamageTest, ACopyThatCannotBeKeptDoesNotStopTheSave) {
  SaveRecord(1);
  const std::string precious = folder_ / "precious";
  WriteText(precious, "mine");
  fs::create_symlink(precious, damaged_);
  WriteText(path_, ReadText(path_) + "no record\n");
  SaveRecord(2);
  EXPECT_EQ(ReadText(precious), "mine");
  EXPECT_EQ(Load().damaged, 0);
  EXPECT_EQ(Load().used, 2);
}

TEST_F(CacheDamageTest, ANoisyRecordNeverReplacesASoundOne) {
  LaunchSpec noisy = Measured(other_, 10, 2'000'000'000);
  noisy.spread_us = 10.5;
  EXPECT_TRUE(IsNoisy(noisy));
  const LaunchSpec sound = Measured(kernel_, 20, 1'000'000'000);
  DispatchCache cache = NewCache();
  EXPECT_TRUE(cache.Insert(Problem(1), noisy)) << "better than nothing";
  EXPECT_TRUE(cache.Insert(Problem(1), sound)) << "though it is older";
  EXPECT_FALSE(cache.Insert(Problem(1), noisy));
  EXPECT_EQ(cache.Find(Problem(1))->kernel, &kernel_);
  noisy.spread_us = 10;
  EXPECT_FALSE(IsNoisy(noisy));
  EXPECT_TRUE(cache.Insert(Problem(1), noisy));
}

// A child that holds the lock until it is ended.
class Holder {
 public:
  explicit Holder(const std::string& path) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    child_ = fork();
    if (child_ == 0) {
      close(ends[0]);
      const auto lock = FileLock::Acquire(path + ".lock", milliseconds(0));
      if (!lock.ok() || write(ends[1], "x", 1) != 1) _exit(1);
      while (getppid() != 1) sleep(1);
      _exit(0);
    }
    close(ends[1]);
    char ready = 0;
    EXPECT_EQ(read(ends[0], &ready, 1), 1);
    close(ends[0]);
  }
  ~Holder() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  pid_t pid() const { return child_; }

 private:
  pid_t child_ = -1;
};

TEST_F(CacheDamageTest, AWaitForTheLockIsToldAndCanBeGivenUp) {
  SaveRecord(1);
  const Holder holder(path_);
  DispatchCache cache = NewCache();
  ASSERT_TRUE(cache.Insert(Problem(2), Measured(kernel_, 10)));
  CacheFile::SaveOptions options;
  std::string told;
  double waited_s = 0;
  options.on_wait = [&](const std::string& who, double seconds) {
    told = who;
    waited_s = seconds;
    return false;
  };
  const Status given_up = CacheFile(path_).Save(cache, options).status();
  EXPECT_EQ(given_up.code(), StatusCode::kIo);
  EXPECT_THAT(given_up.message(), HasSubstr(path_ + ".lock"));
  EXPECT_GE(waited_s, 1);
  const std::string pid = std::to_string(holder.pid());
  EXPECT_THAT(told, testing::AnyOf(HasSubstr("process " + pid), "another process"));
  EXPECT_EQ(CacheFile(path_).CheckSave(options).code(), StatusCode::kIo);

  options = {.on_wait = nullptr, .timeout_s = 0.05};
  EXPECT_EQ(CacheFile(path_).Save(cache, options).status().code(), StatusCode::kIo);
  EXPECT_EQ(CacheFile(path_).CheckSave(options).code(), StatusCode::kIo);
}

TEST_F(CacheDamageTest, CheckSaveLeavesNothingButTheLock) {
  EXPECT_TRUE(CacheFile(path_).CheckSave({}).ok());
  EXPECT_FALSE(fs::exists(path_));
  SaveRecord(1);
  const std::string text = ReadText(path_);
  EXPECT_TRUE(CacheFile(path_).CheckSave({}).ok());
  EXPECT_EQ(ReadText(path_), text);
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    EXPECT_THAT(entry.path().filename().string(),
                testing::AnyOf("cache.jsonl", "cache.jsonl.lock"));
  }
  EXPECT_TRUE(CacheFile("").CheckSave({}).ok());
  WriteText(path_, "not a cache\n");
  EXPECT_EQ(CacheFile(path_).CheckSave({}).code(), StatusCode::kDataLoss);
}

TEST_F(CacheDamageTest, AReadOnlyFolderIsCalledSo) {
  SaveRecord(1);
  fs::remove(path_ + ".lock");
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  const auto called_so = [](const Status& status) {
    return status.message().find("Permission denied") != std::string::npos;
  };
  const int result = AsNobody([&] {
    const char* const folder = folder_.path().c_str();
    if (access(folder, R_OK | X_OK) != 0 || access(folder, W_OK) == 0) return kCannot;
    if (!called_so(CacheFile(path_).CheckSave({}))) return 1;
    DispatchCache cache = NewCache();
    cache.Insert(Problem(2), Measured(kernel_, 10));
    return called_so(CacheFile(path_).Save(cache).status()) ? 0 : 2;
  });
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  if (result == kCannot) GTEST_SKIP() << "no user here may read this folder and not write it";
  EXPECT_EQ(result, 0);
}

// With stderr closed, the next file that is opened must not take its number.
TEST_F(CacheDamageTest, NoFileBecomesAStandardStream) {
  SaveRecord(1);
  const int saved = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  const auto lock = FileLock::Acquire(path_ + ".lock", milliseconds(0));
  const bool taken = fcntl(STDERR_FILENO, F_GETFD) >= 0;
  dup2(saved, STDERR_FILENO);
  close(saved);
  EXPECT_TRUE(lock.ok());
  EXPECT_FALSE(taken);
}

}  // namespace
}  // namespace culet
