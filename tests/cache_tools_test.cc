// Layers below the user's cache, tools for cache files, and the record of untuned problems.
#include "culet/cache_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cache_fixture.h"
#include "culet/cache_layers.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/untuned.h"
#include "gemm/cache_record.h"

namespace culet {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::int64_t kOld = 1'600'000'000, kNew = 1'700'000'000;

class CacheToolsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CULET_TUNED", folder_.path().c_str(), 1);
    setenv("CULET_SITE_CACHE", (folder_ / "site.jsonl").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("CULET_TUNED");
    unsetenv("CULET_SITE_CACHE");
    unsetenv("CULET_RECORD");
  }

  DispatchCache NewCache() { return DispatchCache({&fast_, &slow_}, kTestDevice); }

  std::string Write(const std::string& name,
                    const std::vector<std::pair<GemmDesc, LaunchSpec>>& entries,
                    const std::string& device = kTestDevice) {
    DispatchCache cache({&fast_, &slow_}, device);
    for (const auto& [desc, spec] : entries) EXPECT_TRUE(cache.Insert(desc, spec));
    const std::string path = folder_ / name;
    EXPECT_TRUE(CacheFile(path).Save(cache).ok());
    return path;
  }

  static std::string TextOf(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
  IdleKernel fast_{"test/fast"}, slow_{"test/slow"};
};

TEST_F(CacheToolsTest, TheUsersChoiceBeatsTheSitesAndThatTheShippedOneWhicheverIsNewer) {
  Write(TableName(kTestDevice), {{Problem(1), Measured(fast_, 10, kNew)},
                                 {Problem(2), Measured(fast_, 10, kNew)},
                                 {Problem(3), Measured(fast_, 10, kNew)}});
  Write("site.jsonl",
        {{Problem(2), Measured(slow_, 20, kOld)}, {Problem(3), Measured(slow_, 20, kOld)}});
  const std::string user = Write("user.jsonl", {{Problem(3), Measured(slow_, 30, kOld)}});
  for (const bool user_first : {false, true}) {
    DispatchCache cache = NewCache();
    if (user_first) {
      ASSERT_TRUE(CacheFile(user).Load(cache).ok());
    }
    const auto loaded = LoadLowerLayers(cache);
    ASSERT_THAT(loaded, SizeIs(2));
    EXPECT_TRUE(loaded[0].status.ok());
    EXPECT_EQ(loaded[0].file.layer, CacheLayer::kShipped);
    EXPECT_EQ(loaded[1].file.layer, CacheLayer::kSite);
    if (!user_first) {
      ASSERT_TRUE(CacheFile(user).Load(cache).ok());
    }
    EXPECT_EQ(cache.Find(Problem(1))->time_us, 10);
    EXPECT_EQ(cache.Find(Problem(2))->time_us, 20);
    EXPECT_EQ(cache.Find(Problem(3))->time_us, 30);
    EXPECT_EQ(cache.LayerOf(Problem(1)), CacheLayer::kShipped);
    EXPECT_EQ(cache.LayerOf(Problem(2)), CacheLayer::kSite);
    EXPECT_EQ(cache.LayerOf(Problem(3)), CacheLayer::kUser);
    EXPECT_EQ(cache.LayerOf(Problem(4)), std::nullopt);
  }
}

TEST_F(CacheToolsTest, ASoundShippedChoiceBeatsANoisyOneOfTheUsers) {
  Write(TableName(kTestDevice), {{Problem(1), Measured(fast_, 10, kOld)}});
  DispatchCache cache = NewCache();
  LoadLowerLayers(cache);
  LaunchSpec noisy = Measured(slow_, 5, kNew);
  noisy.spread_us = 50;
  EXPECT_FALSE(cache.Insert(Problem(1), noisy));
  EXPECT_TRUE(cache.Insert(Problem(1), Measured(slow_, 5, kOld - 1)));
}

TEST_F(CacheToolsTest, LowerLayersAreNotCopiedIntoTheUsersFile) {
  Write(TableName(kTestDevice), {{Problem(1), Measured(fast_, 10)}});
  DispatchCache cache = NewCache();
  LoadLowerLayers(cache);
  const std::string path = folder_ / "user.jsonl";
  ASSERT_TRUE(CacheFile(path).Save(cache).ok());
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  cache.Insert(Problem(2), Measured(slow_, 20));
  ASSERT_TRUE(CacheFile(path).Save(cache).ok());
  EXPECT_THAT(*CacheFile(path).List(), ElementsAre(Field(&CacheFile::Record::time_us, 20)));
  EXPECT_THAT(cache.Entries(), SizeIs(2));
  EXPECT_THAT(cache.Entries(CacheLayer::kUser), SizeIs(1));
}

TEST_F(CacheToolsTest, ATableOfAnotherDeviceIsNotOpened) {
  Write(TableName("cuda/900/132sm"), {{Problem(1), Measured(fast_, 10)}}, "cuda/900/132sm");
  DispatchCache cache = NewCache();
  EXPECT_THAT(LoadLowerLayers(cache), IsEmpty());
  EXPECT_EQ(TableName("cuda/900/132sm"), "cuda_900_132sm.jsonl");
  const auto layers = LowerLayers("cuda/900/132sm");
  ASSERT_THAT(layers, SizeIs(2));
  EXPECT_TRUE(layers[0].exists);
  EXPECT_FALSE(layers[1].exists);
}

TEST_F(CacheToolsTest, ADamagedTableLeavesTheSitesFile) {
  std::ofstream(folder_ / TableName(kTestDevice)) << "no cache";
  Write("site.jsonl", {{Problem(2), Measured(slow_, 20)}});
  DispatchCache cache = NewCache();
  const auto loaded = LoadLowerLayers(cache);
  ASSERT_THAT(loaded, SizeIs(2));
  EXPECT_EQ(loaded[0].status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(loaded[1].status.ok());
  EXPECT_EQ(cache.size(), 1u);
}

TEST_F(CacheToolsTest, LayersCanBeSwitchedOff) {
  Write(TableName(kTestDevice), {{Problem(1), Measured(fast_, 10)}});
  Write("site.jsonl", {{Problem(2), Measured(slow_, 20)}});
  setenv("CULET_TUNED", "off", 1);
  EXPECT_THAT(LowerLayers(kTestDevice), SizeIs(1));
  setenv("CULET_SITE_CACHE", "off", 1);
  EXPECT_THAT(LowerLayers(kTestDevice), IsEmpty());
}

// The whole way: a table for this machine's own device class serves an engine's choice.
TEST_F(CacheToolsTest, AShippedTableForThisCpuServesAndExplainsItself) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const GemmDesc desc = *MakeDesc(Format::kF32, 4, 64, 64, 0);
  const auto candidates = gemm->Candidates(desc);
  ASSERT_GT(candidates.size(), 1u);
  LaunchSpec shipped = candidates.back();  // what no prediction would choose
  shipped.origin = Origin::kMeasured;
  shipped.time_us = 3;
  shipped.when = kNew;
  DispatchCache table(gemm->registry().kernels());
  ASSERT_TRUE(table.Insert(desc, shipped));
  ASSERT_TRUE(CacheFile(folder_ / TableName(gemm->device().device_class)).Save(table).ok());

  EXPECT_NE(gemm->Choose(desc)->kernel, shipped.kernel);
  ASSERT_THAT(LoadLowerLayers(gemm->cache()), SizeIs(1));
  EXPECT_EQ(gemm->Choose(desc)->kernel, shipped.kernel);
  EXPECT_THAT(gemm->explain(desc)->ToString(), HasSubstr("(measured, shipped with culet)"));
  // It counts as measured: tuning is for what is not known.
  EXPECT_TRUE(gemm->Tune(desc)->from_cache);
  TuneOptions force;
  force.force = true;
  force.tuner.budget_s = 2;
  ASSERT_TRUE(gemm->Tune(desc, force).ok());
  EXPECT_EQ(gemm->cache().LayerOf(desc), CacheLayer::kUser);
}

TEST_F(CacheToolsTest, MergingKeepsTheBetterOfEachAndAllOthers) {
  const std::string a = Write(
      "a.jsonl", {{Problem(1), Measured(fast_, 10, kOld)}, {Problem(2), Measured(fast_, 10)}});
  const std::string b = Write(
      "b.jsonl", {{Problem(1), Measured(slow_, 12, kNew)}, {Problem(3), Measured(slow_, 30)}});
  const std::string other = Write("c.jsonl", {{Problem(1), Measured(fast_, 99)}}, "cuda/900/132sm");
  std::ofstream(b, std::ios::app) << "rubbish\n";
  const auto report = MergeCaches(std::vector{b, other}, a);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->records, 4);
  EXPECT_EQ(report->added, 2);
  EXPECT_EQ(report->replaced, 1);
  EXPECT_EQ(report->kept, 0);
  EXPECT_EQ(report->damaged, 1);
  DispatchCache cache = NewCache();
  const auto loaded = CacheFile(a).Load(cache);
  EXPECT_EQ(loaded->used, 3);
  EXPECT_EQ(loaded->other_device, 1);
  EXPECT_EQ(cache.Find(Problem(1))->time_us, 12);  // the newer one

  const std::string before = TextOf(a);
  EXPECT_EQ(MergeCaches(std::vector{b, other}, a)->kept, 3);
  EXPECT_EQ(TextOf(a), before);
}

TEST_F(CacheToolsTest, MergingGivesTheSameTextInAnyOrder) {
  const std::string a = Write("a.jsonl", {{Problem(1), Measured(fast_, 10, kNew)}});
  const std::string b = Write("b.jsonl", {{Problem(1), Measured(slow_, 9, kNew)}});
  ASSERT_TRUE(MergeCaches(std::vector{a, b}, folder_ / "ab.jsonl").ok());
  ASSERT_TRUE(MergeCaches(std::vector{b, a}, folder_ / "ba.jsonl").ok());
  EXPECT_EQ(TextOf(folder_ / "ab.jsonl"), TextOf(folder_ / "ba.jsonl"));
  EXPECT_THAT(TextOf(folder_ / "ab.jsonl"), HasSubstr("test/slow"));  // of one second the faster
}

TEST_F(CacheToolsTest, MergingRefusesWhatIsMissingOrNoCacheAndWritesNothing) {
  const std::string a = Write("a.jsonl", {{Problem(1), Measured(fast_, 10)}});
  const std::string before = TextOf(a);
  EXPECT_EQ(MergeCaches(std::vector{folder_ / "none.jsonl"}, a).status().code(),
            StatusCode::kNotFound);
  std::ofstream(folder_ / "text.txt") << "hello\n";
  EXPECT_EQ(MergeCaches(std::vector{folder_ / "text.txt"}, a).status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(MergeCaches(std::vector{a}, folder_ / "text.txt").status().code(),
            StatusCode::kDataLoss);
  EXPECT_EQ(TextOf(a), before);
  EXPECT_EQ(TextOf(folder_ / "text.txt"), "hello\n");
}

TEST_F(CacheToolsTest, DiffNamesEachKindOfDifference) {
  const std::string a = Write("a.jsonl", {{Problem(1), Measured(fast_, 10)},
                                          {Problem(2), Measured(fast_, 10)},
                                          {Problem(3), Measured(fast_, 10)},
                                          {Problem(4), Measured(fast_, 10)}});
  const std::string b = Write("b.jsonl", {{Problem(1), Measured(fast_, 10)},
                                          {Problem(2), Measured(slow_, 10)},
                                          {Problem(3), Measured(fast_, 11)},
                                          {Problem(5), Measured(fast_, 10)}});
  using Kind = CacheDifference::Kind;
  const auto differences = DiffCaches(a, b);
  ASSERT_TRUE(differences.ok());
  std::vector<Kind> kinds;
  for (const CacheDifference& difference : *differences) kinds.push_back(difference.kind);
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(Kind::kOtherLaunch, Kind::kOtherTime,
                                                     Kind::kOnlyInFirst, Kind::kOnlyInSecond));
  EXPECT_THAT(*DiffCaches(a, a), IsEmpty());
  EXPECT_EQ(DiffCaches(a, folder_ / "none").status().code(), StatusCode::kNotFound);
}

TEST_F(CacheToolsTest, CheckSaysOfEachRecordWhatItIsGoodFor) {
  IdleKernel small("test/small");
  DispatchCache writer({&fast_, &slow_, &small}, kTestDevice);
  writer.Insert(Problem(1), Measured(fast_, 10));
  writer.Insert(Problem(64), Measured(small, 10));
  writer.Insert(Problem(3), Measured(slow_, 10));
  const std::string path = folder_ / "a.jsonl";
  ASSERT_TRUE(CacheFile(path).Save(writer).ok());
  std::ofstream(path, std::ios::app) << "rubbish\n";
  Write("a.jsonl", {{Problem(9), Measured(fast_, 10)}}, "cuda/900/132sm");  // merges
  std::ofstream(path, std::ios::app) << "rubbish\n";

  IdleKernel smaller("test/small", 8);
  const DispatchCache reader({&fast_, &smaller}, kTestDevice);
  const auto checked = CheckCache(path, reader);
  ASSERT_TRUE(checked.ok());
  std::map<Usability, std::string> reasons;
  for (const CheckedRecord& record : *checked) reasons[record.usability] = record.reason;
  EXPECT_EQ(reasons[Usability::kUsable], "");
  EXPECT_THAT(reasons[Usability::kOtherDevice], HasSubstr("cuda/900/132sm"));
  EXPECT_THAT(reasons[Usability::kUnknownKernel], HasSubstr("test/slow"));
  EXPECT_EQ(reasons[Usability::kInfeasible], "m is too large");
  EXPECT_THAT(reasons[Usability::kDamaged], HasSubstr("checksum"));
}

TEST_F(CacheToolsTest, PruningRemovesWhatIsAskedForAndWhatNobodyCanRead) {
  const std::string path =
      Write("a.jsonl", {{Problem(1), Measured(fast_, 10)}, {Problem(2), Measured(slow_, 10)}});
  std::ofstream(path, std::ios::app) << "rubbish\n";
  const std::string before = TextOf(path);
  const DispatchCache reader({&fast_}, kTestDevice);
  const auto unknown = [](const CheckedRecord& record) {
    return record.usability == Usability::kUnknownKernel;
  };
  const auto dry = PruneCache(path, reader, unknown, /*dry_run=*/true);
  ASSERT_TRUE(dry.ok());
  EXPECT_THAT(dry->removed, SizeIs(2));
  EXPECT_EQ(dry->kept, 1);
  EXPECT_EQ(TextOf(path), before);
  ASSERT_TRUE(PruneCache(path, reader, unknown, false).ok());
  EXPECT_THAT(*CacheFile(path).List(),
              ElementsAre(Field(&CacheFile::Record::kernel_id, "test/fast")));
  const std::string pruned = TextOf(path);
  EXPECT_THAT(PruneCache(path, reader, unknown, false)->removed, IsEmpty());
  EXPECT_EQ(TextOf(path), pruned);
}

TEST_F(CacheToolsTest, UntunedProblemsAreWrittenDownOnceAnEngineAndReadBack) {
  const std::string path = folder_ / "new/untuned.jsonl";
  const GemmDesc desc = *MakeDesc(Format::kF32, 4, 64, 64, 0);
  const GemmDesc tuned = *MakeDesc(Format::kF32, 8, 64, 64, 0);
  for (int engine = 0; engine < 2; ++engine) {
    auto gemm = Gemm::Create({.record = path});
    ASSERT_TRUE(gemm.ok());
    LaunchSpec known = *gemm->Choose(desc);
    known.origin = Origin::kMeasured;
    known.time_us = 1;
    ASSERT_TRUE(gemm->cache().Insert(tuned, known));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(gemm->Choose(desc).ok());
      ASSERT_TRUE(gemm->Choose(tuned).ok());
    }
    EXPECT_EQ(gemm->coverage().problems, 2);
    EXPECT_EQ(gemm->coverage().measured, 1);
  }
  const auto file = ReadUntuned(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_THAT(file->problems, SizeIs(1));
  EXPECT_EQ(file->problems[0].desc, desc);
  EXPECT_EQ(file->problems[0].times, 2);
  EXPECT_EQ(file->problems[0].device_class, HostDevice().device_class);
}

TEST_F(CacheToolsTest, TheEnvironmentNamesTheRecordAndAFailingOneDoesNotDisturb) {
  const std::string path = folder_ / "untuned.jsonl";
  setenv("CULET_RECORD", path.c_str(), 1);
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm->Choose(*MakeDesc(Format::kF32, 4, 64, 64, 0)).ok());
  EXPECT_THAT(ReadUntuned(path)->problems, SizeIs(1));
  auto off = Gemm::Create({.record = "off"});
  ASSERT_TRUE(off->Choose(*MakeDesc(Format::kF32, 5, 64, 64, 0)).ok());
  EXPECT_THAT(ReadUntuned(path)->problems, SizeIs(1));
  auto nowhere = Gemm::Create({.record = "/proc/none/untuned.jsonl"});
  EXPECT_TRUE(nowhere->Choose(*MakeDesc(Format::kF32, 6, 64, 64, 0)).ok());
}

TEST_F(CacheToolsTest, ProcessesAppendWholeLines) {
  const std::string path = folder_ / "untuned.jsonl";
  constexpr int kProcesses = 4, kProblems = 50;
  for (int p = 0; p < kProcesses; ++p) {
    if (fork() != 0) continue;
    auto gemm = Gemm::Create({.record = path});
    for (int m = 1; m <= kProblems; ++m) {
      static_cast<void>(gemm->Choose(*MakeDesc(Format::kF32, m, 64, 64, 0)).ok());
    }
    _exit(0);
  }
  for (int p = 0; p < kProcesses; ++p) wait(nullptr);
  const auto file = ReadUntuned(path);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->problems, SizeIs(kProblems));
  EXPECT_EQ(file->unreadable, 0);
  for (const UntunedProblem& problem : file->problems) EXPECT_EQ(problem.times, kProcesses);
}

TEST_F(CacheToolsTest, AFileOfUntunedProblemsIsToldFromOthers) {
  EXPECT_EQ(ReadUntuned(folder_ / "none").status().code(), StatusCode::kNotFound);
  const std::string cache = Write("a.jsonl", {{Problem(1), Measured(fast_, 10)}});
  EXPECT_EQ(ReadUntuned(cache).status().code(), StatusCode::kDataLoss);
  const std::string path = folder_ / "untuned.jsonl";
  auto gemm = Gemm::Create({.record = path});
  ASSERT_TRUE(gemm->Choose(*MakeDesc(Format::kF32, 4, 64, 64, 0)).ok());
  std::ofstream(path, std::ios::app) << "rubbish\n"
                                     << "{\"device\":\"cpu\"}\n";
  EXPECT_EQ(ReadUntuned(path)->unreadable, 2);
  EXPECT_THAT(ReadUntuned(path)->problems, SizeIs(1));
}

}  // namespace
}  // namespace culet
