// What CacheFile does with files of every kind, in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cache_fixture.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class CacheFileTest : public testing::Test {
 protected:
  DispatchCache NewCache() { return DispatchCache({&fast_, &small_}, kTestDevice); }

  // Writes a file of `count` records with m = 1, 2, ...
  void SaveRecords(const std::string& path, int count) {
    DispatchCache cache = NewCache();
    for (int m = 1; m <= count; ++m) ASSERT_TRUE(cache.Insert(Problem(m), Measured(fast_, m)));
    const Result<int> saved = CacheFile(path).Save(cache);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    ASSERT_EQ(*saved, count);
  }

  ImportReport LoadReport(const std::string& path) {
    DispatchCache cache = NewCache();
    const Result<ImportReport> report = CacheFile(path).Load(cache);
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? *report : ImportReport();
  }

  // The file must be refused with `code` and a message that names it, and stay as it is.
  void ExpectRefused(const std::string& path, StatusCode code) {
    DispatchCache cache = NewCache();
    cache.Insert(Problem(1), Measured(fast_, 1));
    std::error_code ignored;
    const bool is_file = fs::is_regular_file(path, ignored);
    const std::string before = is_file ? ReadText(path) : "";
    const CacheFile file(path);
    for (const Status& status :
         {file.Load(cache).status(), file.Save(cache).status(), file.List().status()}) {
      EXPECT_EQ(status.code(), code) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr(path));
    }
    EXPECT_EQ(fs::is_regular_file(path, ignored), is_file);
    EXPECT_FALSE(fs::exists(path + ".lock", ignored)) << "litter beside what is not ours";
    EXPECT_EQ(is_file ? ReadText(path) : "", before);
  }

  std::vector<std::string> FolderEntries() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  IdleKernel fast_{"fake/fast"};
  IdleKernel small_{"fake/small", 64};
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "cache.jsonl";
};

TEST_F(CacheFileTest, SavedEntriesLoad) {
  SaveRecords(path_, 20);
  DispatchCache cache = NewCache();
  const auto report = CacheFile(path_).Load(cache);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->ToString(), "20 used");
  EXPECT_EQ(cache.Find(Problem(7))->time_us, 7);
  EXPECT_THAT(FolderEntries(), testing::UnorderedElementsAre("cache.jsonl", "cache.jsonl.lock"));
}

TEST_F(CacheFileTest, AMissingFileIsAnEmptyCache) {
  EXPECT_EQ(LoadReport(path_).ToString(), "0 used");
  EXPECT_EQ(CacheFile(path_).List().status().code(), StatusCode::kNotFound);
  const DispatchCache empty = NewCache();
  EXPECT_EQ(*CacheFile(path_).Save(empty), 0);
  EXPECT_FALSE(fs::exists(path_)) << "there was nothing to write";
}

TEST_F(CacheFileTest, MissingFoldersAreMade) {
  SaveRecords(folder_ / "a/b/cache.jsonl", 1);
  EXPECT_EQ(LoadReport(folder_ / "a/b/cache.jsonl").used, 1);
}

TEST_F(CacheFileTest, AnEmptyPathIsNoFile) {
  DispatchCache cache = NewCache();
  cache.Insert(Problem(1), Measured(fast_, 1));
  EXPECT_EQ(*CacheFile("").Save(cache), 0);
  EXPECT_EQ(CacheFile("").Load(cache)->used, 0);
  EXPECT_EQ(CacheFile("").List().status().code(), StatusCode::kNotFound);
}

TEST_F(CacheFileTest, EmptyAndBlankFilesAreCaches) {
  for (const char* text : {"", "\n", "\r\n \n"}) {
    WriteText(path_, text);
    EXPECT_EQ(LoadReport(path_).ToString(), "0 used");
    SaveRecords(path_, 3);
    EXPECT_EQ(LoadReport(path_).used, 3);
  }
}

TEST_F(CacheFileTest, FilesThatAreNotOursAreNeverTouched) {
  const std::vector<std::string> texts = {"int main() {}\n",
                                          "{}\n",
                                          "{\"format\":",
                                          std::string("\x7f"
                                                      "ELF\0\0\0\1\n",
                                                      9),
                                          "[1,2,3]",
                                          std::string(100'000, '{'),
                                          std::string(3, '\0')};
  for (const std::string& text : texts) {
    WriteText(path_, text);
    ExpectRefused(path_, StatusCode::kDataLoss);
  }
}

TEST_F(CacheFileTest, NewerVersionsAreNeverTouched) {
  WriteText(path_, "{\"format\":\"culet-dispatch-cache\",\"version\":2,\"more\":[]}\n{}\n");
  ExpectRefused(path_, StatusCode::kUnsupported);
}

TEST_F(CacheFileTest, FoldersDevicesAndPipesAreRefused) {
  ExpectRefused(folder_.path(), StatusCode::kDataLoss);
  ExpectRefused("/dev/null", StatusCode::kDataLoss);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0666), 0);
  ExpectRefused(folder_ / "pipe", StatusCode::kDataLoss);  // and must not hang
  WriteText(path_, "");
  ExpectRefused(path_ + "/below-a-file", StatusCode::kIo);
}

TEST_F(CacheFileTest, HugeFilesAreRefused) {
  SaveRecords(path_, 1);
  fs::resize_file(path_, CacheFile::kMaxBytes + 1);  // sparse
  DispatchCache cache = NewCache();
  EXPECT_EQ(CacheFile(path_).Load(cache).status().code(), StatusCode::kDataLoss);
  cache.Insert(Problem(2), Measured(fast_, 1));
  EXPECT_EQ(CacheFile(path_).Save(cache).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(fs::file_size(path_), CacheFile::kMaxBytes + 1);
}

TEST_F(CacheFileTest, HugeLinesAreDamagedAlone) {
  SaveRecords(path_, 2);
  const std::string text = ReadText(path_);
  WriteText(path_, text + std::string(CacheFile::kMaxLineBytes + 1, 'x') + "\n");
  const ImportReport report = LoadReport(path_);
  EXPECT_EQ(report.used, 2);
  EXPECT_EQ(report.damaged, 1);
  EXPECT_EQ(report.first_damaged_line, 4);
}

TEST_F(CacheFileTest, WindowsLineEndsAndAMissingLastOne) {
  SaveRecords(path_, 3);
  const std::string text = ReadText(path_);
  std::string crlf;
  for (const std::string& line : Lines(text)) crlf += line + "\r\n";
  for (const std::string& variant :
       {crlf, crlf.substr(0, crlf.size() - 2), text.substr(0, text.size() - 1)}) {
    WriteText(path_, variant);
    EXPECT_EQ(LoadReport(path_).ToString(), "3 used");
    const DispatchCache empty = NewCache();
    EXPECT_EQ(*CacheFile(path_).Save(empty), 3);
    EXPECT_EQ(ReadText(path_), text);
  }
}

TEST_F(CacheFileTest, WhatCannotBeUsedIsKeptVerbatim) {
  IdleKernel gone("fake/gone");
  DispatchCache elsewhere({&fast_}, "cuda/900/132sm");
  elsewhere.Insert(Problem(1), Measured(fast_, 1));
  DispatchCache wider({&fast_, &gone}, kTestDevice);
  wider.Insert(Problem(2), Measured(gone, 1));
  IdleKernel large("fake/small");  // takes m > 64, unlike small_
  DispatchCache older({&large}, kTestDevice);
  older.Insert(Problem(100), Measured(large, 1));
  for (const DispatchCache* cache : {&elsewhere, &wider, &older}) {
    ASSERT_TRUE(CacheFile(path_).Save(*cache).ok());
  }
  const std::string damaged = "half a rec\x01\xff\t \"";
  WriteText(path_, ReadText(path_) + damaged + "\n");
  const auto before = Lines(ReadText(path_));

  DispatchCache cache = NewCache();
  const auto report = CacheFile(path_).Load(cache);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->ToString(),
            "0 used, 1 of another device class, 1 of unknown kernels, 1 that the kernel refuses "
            "today, 1 damaged (line 5)");
  // New entries for the same problems stand beside them.
  for (const int m : {1, 2, 100}) cache.Insert(Problem(m), Measured(fast_, 5, 1'900'000'000));
  EXPECT_EQ(*CacheFile(path_).Save(cache), 6);
  const auto after = Lines(ReadText(path_));
  for (const std::string& line : before) {
    if (line == damaged) continue;
    EXPECT_THAT(after, Contains(line));
  }
  EXPECT_THAT(after, testing::Not(Contains(damaged)));
  EXPECT_EQ(ReadText(path_ + ".damaged"), damaged + "\n");
  EXPECT_EQ(LoadReport(path_).used, 3);
  DispatchCache again({&fast_, &gone}, kTestDevice);
  EXPECT_EQ(CacheFile(path_).Load(again)->used, 3) << "of m = 2 the newer";
}

TEST_F(CacheFileTest, RecordsOfAnotherVersionAreKept) {
  SaveRecords(path_, 1);
  std::string line = Lines(ReadText(path_))[1];
  line = line.substr(0, line.find(",\"checksum\"")) + ",\"new\":1";
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a, as docs/cache-format.md says
  for (const unsigned char c : line) hash = (hash ^ c) * 1099511628211u;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  line += std::string(",\"checksum\":\"") + digits + "\"}";
  WriteText(path_, Lines(ReadText(path_))[0] + "\n" + line + "\n");

  EXPECT_EQ(LoadReport(path_).ToString(), "0 used, 1 of another version");
  DispatchCache cache = NewCache();
  cache.Insert(Problem(1), Measured(fast_, 1, 1'900'000'000));
  EXPECT_EQ(*CacheFile(path_).Save(cache), 2);
  EXPECT_THAT(Lines(ReadText(path_)), Contains(line));
}

TEST_F(CacheFileTest, MergingFollowsInsertsRules) {
  const auto save = [&](double time, std::int64_t when, Origin origin) {
    DispatchCache cache = NewCache();
    LaunchSpec spec = Measured(fast_, time, when);
    spec.origin = origin;
    cache.Insert(Problem(16), spec);
    EXPECT_EQ(*CacheFile(path_).Save(cache), 1);
    DispatchCache loaded = NewCache();
    EXPECT_EQ(CacheFile(path_).Load(loaded)->used, 1);
    return loaded.Find(Problem(16))->time_us;
  };
  EXPECT_EQ(save(10, 1000, Origin::kPredicted), 10);
  EXPECT_EQ(save(20, 500, Origin::kMeasured), 20);
  EXPECT_EQ(save(9, 2000, Origin::kPredicted), 20);
  EXPECT_EQ(save(9, 400, Origin::kMeasured), 20);
  EXPECT_EQ(save(30, 501, Origin::kMeasured), 30);
}

TEST_F(CacheFileTest, TheTextDependsOnTheEntriesAlone) {
  const std::string other = folder_ / "other.jsonl";
  std::vector<int> sizes = {1, 2, 10, 16, 100, 128};
  for (const int m : sizes) {
    DispatchCache cache = NewCache();
    cache.Insert(Problem(m), Measured(fast_, m));
    ASSERT_TRUE(CacheFile(path_).Save(cache).ok());
  }
  std::ranges::reverse(sizes);
  for (const int m : sizes) {
    DispatchCache cache = NewCache();
    cache.Insert(Problem(m), Measured(fast_, m));
    ASSERT_TRUE(CacheFile(other).Save(cache).ok());
  }
  EXPECT_EQ(ReadText(path_), ReadText(other));
  EXPECT_EQ(Lines(ReadText(path_)).size(), 7u);
}

TEST_F(CacheFileTest, ConcatenatedFilesAreOneCache) {
  SaveRecords(path_, 3);
  const std::string one = ReadText(path_);
  fs::remove(path_);
  DispatchCache cache = NewCache();
  cache.Insert(Problem(50), Measured(fast_, 1));
  ASSERT_TRUE(CacheFile(path_).Save(cache).ok());
  WriteText(path_, ReadText(path_) + one + one);
  EXPECT_EQ(*CacheFile(path_).Save(cache), 4);
  EXPECT_EQ(LoadReport(path_).ToString(), "4 used");
}

TEST_F(CacheFileTest, AnUnchangedFileIsNotWritten) {
  SaveRecords(path_, 3);
  struct stat before {
  }, after{};
  ASSERT_EQ(stat(path_.c_str(), &before), 0);
  SaveRecords(path_, 3);
  ASSERT_EQ(stat(path_.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(CacheFileTest, SymbolicLinksStayAndTheirTargetsAreWritten) {
  fs::create_directory(folder_ / "real");
  fs::create_symlink("real/cache.jsonl", path_);  // relative, and dangling at first
  SaveRecords(path_, 2);
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(LoadReport(folder_ / "real/cache.jsonl").used, 2);
  fs::create_symlink(path_, folder_ / "second");
  SaveRecords(folder_ / "second", 3);
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(LoadReport(path_).used, 3);
  fs::create_symlink("circle", folder_ / "circle");
  ExpectRefused(folder_ / "circle", StatusCode::kIo);
}

TEST_F(CacheFileTest, PermissionsAreKept) {
  SaveRecords(path_, 1);
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  SaveRecords(path_, 2);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST_F(CacheFileTest, WhatKilledWritersLeftIsRemoved) {
  SaveRecords(path_, 1);
  WriteText(path_ + ".tmp-123-456", "half");
  WriteText(path_ + ".tmp", "not ours");
  WriteText(folder_ / "other.jsonl.tmp-1-2", "of another cache");
  SaveRecords(path_, 2);
  EXPECT_THAT(FolderEntries(),
              testing::UnorderedElementsAre("cache.jsonl", "cache.jsonl.lock", "cache.jsonl.tmp",
                                            "other.jsonl.tmp-1-2"));
}

TEST_F(CacheFileTest, RelativePathsWork) {
  const fs::path old = fs::current_path();
  fs::current_path(folder_.path());
  WriteText("plain.jsonl.tmp-1-2", "half");
  SaveRecords("plain.jsonl", 2);
  EXPECT_EQ(LoadReport("plain.jsonl").used, 2);
  EXPECT_FALSE(fs::exists("plain.jsonl.tmp-1-2"));
  fs::current_path(old);
}

TEST_F(CacheFileTest, ListShowsEveryRecord) {
  SaveRecords(path_, 2);
  DispatchCache elsewhere({&small_}, "cuda/900/132sm");
  LaunchSpec spec = Measured(small_, 7.5);
  spec.spread_us = 0.25, spec.baseline_us = 9, spec.swizzle = 2, spec.splits = 3;
  elsewhere.Insert(Problem(5), spec);
  ASSERT_TRUE(CacheFile(path_).Save(elsewhere).ok());
  WriteText(path_, ReadText(path_) + "damaged\n");
  const auto list = CacheFile(path_).List();
  ASSERT_TRUE(list.ok());
  ASSERT_EQ(list->size(), 4u);
  EXPECT_EQ(list->at(0).line, 2);
  EXPECT_EQ(list->at(0).device_class, kTestDevice);
  EXPECT_EQ(list->at(0).problem, ToString(Problem(1)));
  const CacheFile::Record& foreign = list->at(2);
  EXPECT_EQ(foreign.line, 4);
  EXPECT_EQ(foreign.device_class, "cuda/900/132sm");
  EXPECT_EQ(foreign.kernel_id, "fake/small");
  EXPECT_EQ(foreign.desc, Problem(5));
  EXPECT_EQ(foreign.time_us, 7.5);
  EXPECT_EQ(foreign.spread_us, 0.25);
  EXPECT_EQ(foreign.baseline_us, 9);
  EXPECT_EQ(foreign.swizzle, 2);
  EXPECT_EQ(foreign.splits, 3);
  EXPECT_EQ(foreign.when, 1'700'000'000);
  EXPECT_EQ(foreign.origin, Origin::kMeasured);
  EXPECT_FALSE(foreign.library_version.empty());
  EXPECT_EQ(foreign.damage, "");
  EXPECT_EQ(list->at(3).line, 5);
  EXPECT_NE(list->at(3).damage, "");
}

// Bytes flipped and tails cut at random: never a crash, and no record lost but the one that was
// hit.
TEST_F(CacheFileTest, DamageCostsOnlyWhatItHits) {
  constexpr int kRecords = 30;
  SaveRecords(path_, kRecords);
  const std::string sound = ReadText(path_);
  const std::size_t header_size = sound.find('\n') + 1;
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    std::string text = sound;
    const std::size_t at = header_size + random() % (text.size() - header_size);
    const bool cut = round % 4 == 0;
    if (cut) {
      text.resize(at);
    } else {
      text[at] = static_cast<char>(text[at] ^ (1 + random() % 255));
    }
    WriteText(path_, text);
    const auto whole_lines = static_cast<int>(std::ranges::count(text.substr(0, at), '\n')) - 1;
    const ImportReport report = LoadReport(path_);
    // A flipped line end joins two lines; a cut takes what is behind it.
    ASSERT_GE(report.used, cut ? whole_lines : kRecords - 2) << at;
    ASSERT_LE(report.used, cut ? whole_lines + 1 : kRecords) << at;

    DispatchCache cache = NewCache();
    cache.Insert(Problem(1000), Measured(fast_, 1));
    ASSERT_EQ(*CacheFile(path_).Save(cache), report.used + 1);
    const ImportReport again = LoadReport(path_);
    ASSERT_EQ(again.used, report.used + 1);
    ASSERT_EQ(again.damaged, 0);
    ASSERT_EQ(fs::exists(path_ + ".damaged"), report.damaged > 0);
    fs::remove(path_ + ".damaged");
  }
}

TEST_F(CacheFileTest, ADamagedHeaderIsRefusedAndNothingIsLost) {
  SaveRecords(path_, 3);
  const std::string sound = ReadText(path_);
  const std::size_t header_size = sound.find('\n');
  for (std::size_t at = 0; at < header_size; ++at) {
    std::string text = sound;
    text[at] = static_cast<char>(text[at] ^ 0x41);
    WriteText(path_, text);
    DispatchCache cache = NewCache();
    cache.Insert(Problem(50), Measured(fast_, 1));
    const Result<int> saved = CacheFile(path_).Save(cache);
    ASSERT_FALSE(saved.ok()) << at;
    ASSERT_EQ(ReadText(path_), text);
  }
}

TEST_F(CacheFileTest, AFolderThatCannotBeWrittenIsReported) {
  SaveRecords(path_, 2);
  fs::remove(path_ + ".lock");
  const std::string before = ReadText(path_);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0555), 0);
  const int result = AsNobody([&] {
    const std::string folder = folder_.path();
    if (access(folder.c_str(), R_OK | X_OK) != 0 || access(folder.c_str(), W_OK) == 0) {
      return kCannot;
    }
    DispatchCache cache = NewCache();
    if (!CacheFile(path_).Load(cache).ok()) return 1;
    // Nothing new: no need to write.
    if (!CacheFile(path_).Save(cache).ok()) return 2;
    cache.Insert(Problem(50), Measured(fast_, 1));
    const Status status = CacheFile(path_).Save(cache).status();
    if (status.code() != StatusCode::kIo) return 3;
    return status.message().find(path_) != std::string::npos ? 0 : 4;
  });
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  if (result == kCannot) GTEST_SKIP() << "no user here may read this folder and not write it";
  EXPECT_EQ(result, 0);
  EXPECT_EQ(ReadText(path_), before);
  EXPECT_THAT(FolderEntries(), testing::ElementsAre("cache.jsonl"));
}

// The same for any user: no lock can be made.
TEST_F(CacheFileTest, ALockThatCannotBeMadeIsReported) {
  SaveRecords(path_, 2);
  const std::string before = ReadText(path_);
  fs::remove(path_ + ".lock");
  ASSERT_TRUE(fs::create_directory(path_ + ".lock"));
  DispatchCache cache = NewCache();
  ASSERT_TRUE(CacheFile(path_).Load(cache).ok());
  EXPECT_TRUE(CacheFile(path_).Save(cache).ok()) << "nothing new: no need to write";
  cache.Insert(Problem(50), Measured(fast_, 1));
  const Status status = CacheFile(path_).Save(cache).status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), testing::HasSubstr(path_));
  EXPECT_EQ(ReadText(path_), before);
}

TEST_F(CacheFileTest, AFileThatCannotBeReadIsReported) {
  SaveRecords(path_, 2);
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0777), 0);
  const int result = AsNobody([&] {
    if (access(folder_.path().c_str(), R_OK | W_OK | X_OK) != 0) return kCannot;
    if (access(path_.c_str(), R_OK) == 0) return kCannot;
    DispatchCache cache = NewCache();
    if (CacheFile(path_).Load(cache).status().code() != StatusCode::kIo) return 1;
    cache.Insert(Problem(50), Measured(fast_, 1));
    return CacheFile(path_).Save(cache).status().code() == StatusCode::kIo ? 0 : 2;
  });
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  if (result == kCannot) GTEST_SKIP() << "no user here reaches this folder and not this file";
  EXPECT_EQ(result, 0);
  EXPECT_EQ(LoadReport(path_).used, 2);
}

class DefaultPathTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"CULET_CACHE", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      saved_.emplace_back(name,
                          value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> saved_;
};

TEST_F(DefaultPathTest, TheNearestSettingWins) {
  EXPECT_EQ(CacheFile::DefaultPath().status().code(), StatusCode::kNotFound);
  setenv("HOME", "/home/user", 1);
  EXPECT_EQ(*CacheFile::DefaultPath(), "/home/user/.cache/culet/dispatch.jsonl");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(*CacheFile::DefaultPath(), "/home/user/.cache/culet/dispatch.jsonl");
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(*CacheFile::DefaultPath(), "/xdg/culet/dispatch.jsonl");
  setenv("CULET_CACHE", "", 1);
  EXPECT_EQ(*CacheFile::DefaultPath(), "/xdg/culet/dispatch.jsonl");
  setenv("CULET_CACHE", "mine.jsonl", 1);
  EXPECT_EQ(*CacheFile::DefaultPath(), "mine.jsonl");
  setenv("CULET_CACHE", "off", 1);
  EXPECT_EQ(*CacheFile::DefaultPath(), "");
  EXPECT_EQ(*CacheFile::DefaultPath("given.jsonl"), "given.jsonl");
  EXPECT_EQ(*CacheFile::DefaultPath("off"), "");
}

}  // namespace
}  // namespace culet
