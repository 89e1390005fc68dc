#include "culet/dispatch_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "cache_fixture.h"
#include "gemm/desc_fields.h"

namespace culet {
namespace {

class DispatchCacheTest : public testing::Test {
 protected:
  IdleKernel fast_{"fake/fast"};
  IdleKernel small_{"fake/small", 64};
  DispatchCache cache_{{&fast_, &small_}, kTestDevice};
};

TEST_F(DispatchCacheTest, FindIsExact) {
  const LaunchSpec spec = Measured(fast_, 12.5);
  EXPECT_TRUE(cache_.Insert(Problem(16), spec));
  ASSERT_TRUE(cache_.Find(Problem(16)));
  EXPECT_TRUE(SameSpec(*cache_.Find(Problem(16)), spec));
  EXPECT_FALSE(cache_.Find(Problem(15)));
  EXPECT_FALSE(cache_.Find(Problem(17)));
  EXPECT_FALSE(cache_.Find(Problem(16, 4097)));
}

// A field that the key forgets lets two problems share one entry: that is a wrong launch.
TEST_F(DispatchCacheTest, EveryFieldOfAProblemIsInTheKey) {
  const GemmDesc base = Problem(16);
  ASSERT_TRUE(cache_.Insert(base, Measured(fast_, 1)));
  GemmDesc changed = base;
  int fields = 0;
  const auto check = [&](const char* name) {
    ++fields;
    EXPECT_FALSE(cache_.Find(changed)) << name;
    EXPECT_FALSE(std::string(name) != "m" && cache_.LowerBound(changed)) << name;
    changed = base;
  };
  VisitFields(changed, [&]<class T>(const char* name, T& value, const auto&...) {
    if constexpr (std::is_same_v<T, bool>) {
      value = !value;
    } else {
      value = static_cast<T>(static_cast<int>(value) == 1 ? 2 : 1);
      // Below the base's m there is nothing.
    }
    check(name);
  });
  EXPECT_EQ(fields, 77);
}

TEST_F(DispatchCacheTest, LargeValuesDoNotRunIntoEachOther) {
  constexpr int kMax = std::numeric_limits<int>::max();
  GemmDesc a = Problem(1), b = Problem(1);
  a.n = kMax, a.k = 1;
  b.n = 1, b.k = kMax;
  EXPECT_TRUE(cache_.Insert(a, Measured(fast_, 1)));
  EXPECT_TRUE(cache_.Insert(b, Measured(fast_, 2)));
  EXPECT_EQ(cache_.Find(a)->time_us, 1);
  EXPECT_EQ(cache_.Find(b)->time_us, 2);
  a.m = kMax;
  EXPECT_EQ(cache_.LowerBound(a)->time_us, 1);
}

TEST_F(DispatchCacheTest, LowerBoundIsTheClosestAtOrBelow) {
  for (const int m : {8, 64, 256}) cache_.Insert(Problem(m), Measured(fast_, m));
  EXPECT_FALSE(cache_.LowerBound(Problem(7)));  // TurboMind would answer with m = 8
  EXPECT_EQ(cache_.LowerBound(Problem(8))->time_us, 8);
  EXPECT_EQ(cache_.LowerBound(Problem(63))->time_us, 8);
  EXPECT_EQ(cache_.LowerBound(Problem(64))->time_us, 64);
  EXPECT_EQ(cache_.LowerBound(Problem(255))->time_us, 64);
  EXPECT_EQ(cache_.LowerBound(Problem(100'000))->time_us, 256);
  EXPECT_FALSE(cache_.LowerBound(Problem(100, 4095)));
  EXPECT_FALSE(cache_.LowerBound(Problem(100, 4097)));
}

TEST_F(DispatchCacheTest, LowerBoundFollowsTheBatchDimension) {
  GemmDesc desc = Problem(512, 16);
  desc.batch_dim = 1;
  ASSERT_TRUE(cache_.Insert(desc, Measured(fast_, 16)));
  GemmDesc query = desc;
  query.n = 20;
  EXPECT_EQ(cache_.LowerBound(query)->time_us, 16);
  query.n = 15;
  EXPECT_FALSE(cache_.LowerBound(query));
  query = desc;
  query.m = 600;  // not the batch dimension here
  EXPECT_FALSE(cache_.LowerBound(query));
}

TEST_F(DispatchCacheTest, NeighboursEncloseTheQuery) {
  for (const int m : {8, 64}) cache_.Insert(Problem(m), Measured(fast_, m));
  cache_.Insert(Problem(8, 4097), Measured(fast_, 1));
  cache_.Insert(Problem(8, 4095), Measured(fast_, 1));
  auto between = cache_.FindNeighbours(Problem(20));
  ASSERT_TRUE(between.below && between.above);
  EXPECT_EQ(between.below->first, Problem(8));
  EXPECT_EQ(between.above->first, Problem(64));
  auto exact = cache_.FindNeighbours(Problem(64));
  ASSERT_TRUE(exact.below && exact.above);
  EXPECT_EQ(exact.below->first, Problem(64));
  EXPECT_EQ(exact.above->first, Problem(64));
  auto above_all = cache_.FindNeighbours(Problem(65));
  EXPECT_TRUE(above_all.below && !above_all.above);
  auto below_all = cache_.FindNeighbours(Problem(7));
  EXPECT_TRUE(!below_all.below && below_all.above);
}

TEST_F(DispatchCacheTest, LowerBoundAgreesWithASearchOfAllEntries) {
  std::mt19937 random(1);
  std::vector<GemmDesc> all;
  for (int i = 0; i < 2000; ++i) {
    GemmDesc desc = Problem(1 + random() % 500, 1 + random() % 3, 1 + random() % 3);
    desc.d.type = random() % 2 ? DataType::kFloat32 : DataType::kBfloat16;
    if (cache_.Insert(desc, Measured(fast_, desc.m))) all.push_back(desc);
  }
  for (int i = 0; i < 2000; ++i) {
    GemmDesc query = Problem(1 + random() % 600, 1 + random() % 4, 1 + random() % 3);
    int best = 0;
    for (GemmDesc entry : all) {
      const int m = entry.m;
      entry.m = query.m;
      if (entry == query && m <= query.m) best = std::max(best, m);
    }
    const auto found = cache_.LowerBound(query);
    ASSERT_EQ(found ? found->time_us : 0, best) << ToString(query);
  }
}

TEST_F(DispatchCacheTest, MeasuredBeatsPredictedAndNewerBeatsOlder) {
  const GemmDesc desc = Problem(16);
  LaunchSpec predicted = Measured(fast_, 1, 2'000'000'000);
  predicted.origin = Origin::kPredicted;
  EXPECT_TRUE(cache_.Insert(desc, predicted));
  EXPECT_FALSE(cache_.Insert(desc, predicted)) << "nothing changed";
  const LaunchSpec old = Measured(fast_, 20, 1000);
  EXPECT_TRUE(cache_.Insert(desc, old)) << "a measurement replaces a prediction";
  EXPECT_FALSE(cache_.Insert(desc, predicted)) << "but not the other way round";
  EXPECT_TRUE(cache_.Insert(desc, Measured(small_, 30, 1001))) << "newer, although slower";
  EXPECT_FALSE(cache_.Insert(desc, old));
  EXPECT_TRUE(cache_.Insert(desc, Measured(fast_, 29, 1001))) << "same second: the faster";
  EXPECT_FALSE(cache_.Insert(desc, Measured(small_, 30, 1001)));
  EXPECT_EQ(cache_.Find(desc)->kernel, &fast_);
  EXPECT_EQ(cache_.size(), 1u);
}

TEST_F(DispatchCacheTest, TheResultDoesNotDependOnTheOrderOfInserts) {
  std::vector<LaunchSpec> specs;
  for (int i = 0; i < 24; ++i) {
    LaunchSpec spec = Measured(i & 1 ? fast_ : small_, 5 + (i & 2), 100 + (i & 4));
    spec.splits = 1 + i / 8;
    specs.push_back(spec);
  }
  std::mt19937 random(2);
  std::optional<LaunchSpec> first;
  for (int round = 0; round < 50; ++round) {
    DispatchCache cache({&fast_, &small_}, kTestDevice);
    std::ranges::shuffle(specs, random);
    for (const LaunchSpec& spec : specs) cache.Insert(Problem(16), spec);
    if (!first) first = cache.Find(Problem(16));
    ASSERT_TRUE(SameSpec(*cache.Find(Problem(16)), *first));
  }
}

TEST_F(DispatchCacheTest, InsertRefusesWhatCannotBeLaunchedOrRecorded) {
  IdleKernel stranger("fake/stranger"), namesake("fake/fast");
  const auto refused = [&](const GemmDesc& desc, const LaunchSpec& spec) {
    return !cache_.Insert(desc, spec) && cache_.size() == 0;
  };
  const GemmDesc desc = Problem(16);
  EXPECT_TRUE(refused(desc, LaunchSpec{}));
  EXPECT_TRUE(refused(desc, Measured(stranger, 1)));
  EXPECT_TRUE(refused(desc, Measured(namesake, 1))) << "another object with a known id";
  EXPECT_TRUE(refused(Problem(65), Measured(small_, 1))) << "the kernel refuses m = 65";
  for (const double time :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(refused(desc, Measured(fast_, time)));
  }
  for (const auto& [swizzle, splits] :
       std::vector<std::pair<int, int>>{{-7, 1}, {4, 1}, {1 << 30, 1}, {0, 0}, {0, -7}, {0, 9}}) {
    LaunchSpec spec = Measured(fast_, 1);
    spec.swizzle = swizzle;
    spec.splits = splits;
    EXPECT_TRUE(refused(desc, spec)) << swizzle << ' ' << splits;
  }
  EXPECT_TRUE(refused(desc, Measured(fast_, 1, -1)));
  EXPECT_TRUE(refused(Problem(0), Measured(fast_, 1)));
  GemmDesc odd = desc;
  odd.a.align = 3;
  EXPECT_TRUE(refused(odd, Measured(fast_, 1)));
  odd = desc;
  odd.c.order = static_cast<Order>(77);
  EXPECT_TRUE(refused(odd, Measured(fast_, 1)));
}

TEST_F(DispatchCacheTest, EraseAndGeneration) {
  const auto start = cache_.generation();
  cache_.Insert(Problem(16), Measured(fast_, 5));
  const auto inserted = cache_.generation();
  EXPECT_GT(inserted, start);
  cache_.Insert(Problem(16), Measured(fast_, 5));
  EXPECT_EQ(cache_.generation(), inserted) << "nothing changed";
  cache_.Insert(Problem(16), Measured(fast_, 5, 1'800'000'000));
  EXPECT_GT(cache_.generation(), inserted);
  const auto replaced = cache_.generation();
  EXPECT_TRUE(cache_.Erase(Problem(16)));
  EXPECT_GT(cache_.generation(), replaced);
  EXPECT_FALSE(cache_.Erase(Problem(16)));
  EXPECT_FALSE(cache_.Find(Problem(16)));
}

TEST_F(DispatchCacheTest, AddedKernelsAreKnown) {
  IdleKernel late("fake/late"), namesake("fake/fast");
  EXPECT_EQ(cache_.FindKernel("fake/late"), nullptr);
  cache_.AddKernel(&late);
  cache_.AddKernel(&namesake);
  cache_.AddKernel(nullptr);
  EXPECT_EQ(cache_.FindKernel("fake/late"), &late);
  EXPECT_EQ(cache_.FindKernel("fake/fast"), &fast_) << "the first of two with one id";
  EXPECT_TRUE(cache_.Insert(Problem(16), Measured(late, 1)));
}

TEST_F(DispatchCacheTest, ExportedTextImportsAsTheSameEntries) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 300; ++i) {
    LaunchSpec spec = Measured(fast_, std::ldexp(static_cast<double>(random()), -40 + i % 80));
    spec.spread_us = 1.0 / (3 + i);
    spec.baseline_us = std::numeric_limits<double>::denorm_min() * i;
    spec.swizzle = i % 4;
    spec.splits = 1 + i % 8;
    spec.when = static_cast<std::int64_t>(random() % 4'000'000'000);
    ASSERT_TRUE(cache_.Insert(Problem(1 + i), spec));
  }
  std::stringstream text;
  EXPECT_EQ(cache_.Export(text), 300);
  DispatchCache copy({&fast_, &small_}, kTestDevice);
  ImportReport report;
  EXPECT_EQ(copy.Import(text, &report), 300);
  EXPECT_EQ(report.ToString(), "300 used");
  ASSERT_EQ(copy.size(), 300u);
  for (const auto& [desc, spec] : cache_.Entries()) {
    ASSERT_TRUE(copy.Find(desc));
    EXPECT_TRUE(SameSpec(*copy.Find(desc), spec)) << ToString(desc);  // doubles bit by bit
  }
}

TEST_F(DispatchCacheTest, ExportDoesNotDependOnTheOrderOfInserts) {
  DispatchCache reversed({&fast_, &small_}, kTestDevice);
  const std::vector<int> sizes = {1, 2, 9, 10, 16, 100, 128, 1000};
  for (const int m : sizes) cache_.Insert(Problem(m), Measured(fast_, m));
  for (auto m = sizes.rbegin(); m != sizes.rend(); ++m) {
    reversed.Insert(Problem(*m), Measured(fast_, *m));
  }
  std::stringstream a, b;
  cache_.Export(a);
  reversed.Export(b);
  EXPECT_EQ(a.str(), b.str());
  const auto lines = Lines(a.str());
  ASSERT_EQ(lines.size(), sizes.size() + 1);
  for (std::size_t i = 0; i < sizes.size(); ++i) {  // as people count: 2 before 16 before 128
    EXPECT_THAT(lines[i + 1], testing::HasSubstr("\"m\":" + std::to_string(sizes[i]) + ","));
  }
}

TEST_F(DispatchCacheTest, ImportFollowsInsertsRules) {
  cache_.Insert(Problem(1), Measured(fast_, 5, 1000));
  cache_.Insert(Problem(2), Measured(fast_, 5, 1000));
  cache_.Insert(Problem(3), Measured(fast_, 5, 1000));
  std::stringstream text;
  cache_.Export(text);
  DispatchCache other({&fast_, &small_}, kTestDevice);
  other.Insert(Problem(1), Measured(fast_, 7, 2000));  // newer
  other.Insert(Problem(2), Measured(fast_, 7, 500));   // older
  ImportReport report;
  EXPECT_EQ(other.Import(text, &report), 2);
  EXPECT_EQ(report.used, 2);
  EXPECT_EQ(report.outdated, 1);
  EXPECT_EQ(other.Find(Problem(1))->time_us, 7);
  EXPECT_EQ(other.Find(Problem(2))->time_us, 5);
}

TEST_F(DispatchCacheTest, ImportCountsWhatItCannotUseByReason) {
  IdleKernel gone("fake/gone");
  DispatchCache elsewhere({&fast_, &small_, &gone}, "cuda/900/132sm");
  elsewhere.Insert(Problem(1), Measured(fast_, 1));
  DispatchCache here({&fast_, &small_, &gone}, kTestDevice);
  here.Insert(Problem(2), Measured(gone, 1));
  here.Insert(Problem(40), Measured(small_, 1));
  here.Insert(Problem(3), Measured(fast_, 1));
  std::stringstream text;
  elsewhere.Export(text);
  here.Export(text);  // texts may be concatenated
  text << "{\"not\":\"a record\"}\n\n";

  IdleKernel smaller("fake/small", 32);
  DispatchCache cache({&fast_, &smaller}, kTestDevice);
  ImportReport report;
  EXPECT_EQ(cache.Import(text, &report), 1);
  EXPECT_EQ(report.used, 1);
  EXPECT_EQ(report.other_device, 1);
  EXPECT_EQ(report.unknown_kernel, 1);
  EXPECT_EQ(report.infeasible, 1);
  EXPECT_EQ(report.damaged, 1);
  EXPECT_EQ(report.first_damaged_line, 7);
  EXPECT_EQ(report.ToString(),
            "1 used, 1 of another device class, 1 of unknown kernels, 1 that the kernel refuses "
            "today, 1 damaged (line 7)");
  EXPECT_EQ(cache.size(), 1u);
}

TEST_F(DispatchCacheTest, StreamsThatAreNoCacheAreRefusedWhole) {
  for (const std::string& text :
       {std::string("not a cache\n"), std::string("{}\n"),
        std::string("\x7f"
                    "ELF\0\1\2",
                    7),
        std::string("{\"format\":\"culet-dispatch-cache\"}\n"),
        std::string("{\"format\":\"culet-dispatch-cache\",\"version\":-1}\n"),
        std::string("{\"format\":\"culet-dispatch-cache\",\"version\":\"1\"}\n"),
        std::string("{\"format\":\"culet-dispatch-cache\",\"version\":99}\n"),
        std::string(1 << 20, '[')}) {
    std::istringstream stream(text);
    ImportReport report;
    EXPECT_EQ(cache_.Import(stream, &report), 0);
    EXPECT_FALSE(report.header_error.empty()) << text.substr(0, 60);
    EXPECT_THAT(report.ToString(), testing::StartsWith("not read: "));
  }
  std::ifstream missing("/nonexistent/cache");
  ImportReport report;
  EXPECT_EQ(cache_.Import(missing, &report), 0);
  EXPECT_FALSE(report.header_error.empty());
  for (const char* blank : {"", "\n", " \r\n\n"}) {
    std::istringstream stream(blank);
    EXPECT_EQ(cache_.Import(stream, &report), 0);
    EXPECT_EQ(report.ToString(), "0 used");
  }
}

TEST_F(DispatchCacheTest, AFailedStreamIsReported) {
  cache_.Insert(Problem(16), Measured(fast_, 1));
  std::ofstream closed;
  EXPECT_EQ(cache_.Export(closed), -1);
}

TEST_F(DispatchCacheTest, AnIdThatIsNotTextNeitherThrowsNorMatches) {
  IdleKernel odd("fake/\xff\"\\\n");
  DispatchCache cache({&odd}, kTestDevice);
  ASSERT_TRUE(cache.Insert(Problem(16), Measured(odd, 1)));
  std::stringstream text;
  EXPECT_EQ(cache.Export(text), 1);
  DispatchCache copy({&odd}, kTestDevice);
  ImportReport report;
  EXPECT_EQ(copy.Import(text, &report), 0);
  EXPECT_EQ(report.unknown_kernel, 1);
}

// The seed's example, as written.
TEST(DispatchCacheSeedTest, UsageExample) {
  namespace turbomind = culet;
  using turbomind::DispatchCache;
  IdleKernel kernel("fake/fast");
  std::vector<turbomind::Kernel*> kernels = {&kernel};
  std::stringstream file_stream;
  const turbomind::GemmDesc desc = Problem(16);
  turbomind::LaunchSpec measured_spec;
  measured_spec.kernel = &kernel;
  bool hit = false;
  {
    DispatchCache cache(kernels);
    cache.Import(file_stream);  // Load previous tuning results
    if (auto spec = cache.Find(desc)) {
      hit = true;
    } else {
      // Tune and insert
      cache.Insert(desc, measured_spec);
    }
    cache.Export(file_stream);  // Persist results
  }
  EXPECT_FALSE(hit);
  DispatchCache cache(kernels);
  EXPECT_EQ(cache.Import(file_stream), 1);
  EXPECT_TRUE(cache.Find(desc));
  EXPECT_EQ(cache.device_class(), turbomind::HostDevice().device_class);
}

TEST_F(DispatchCacheTest, ReadersAndWritersAtOnce) {
  constexpr int kThreads = 4, kEntries = 200;
  std::atomic<int> missing = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEntries; ++i) {
        const GemmDesc desc = Problem(1 + i, 1 + t);
        cache_.Insert(desc, Measured(fast_, 1));
        if (!cache_.Find(desc) || !cache_.LowerBound(desc)) ++missing;
        if (i % 64 == 0) {
          std::stringstream text;
          cache_.Export(text);
          cache_.Import(text);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missing, 0);
  EXPECT_EQ(cache_.size(), static_cast<std::size_t>(kThreads * kEntries));
}

}  // namespace
}  // namespace culet
