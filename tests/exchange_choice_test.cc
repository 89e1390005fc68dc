// How ranks' sums are made: the best of what was measured, and where it is kept.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "culet/dispatch_cache.h"
#include "culet/exchange_choice.h"

namespace culet {
namespace {

constexpr std::int64_t kKilo = 1024;

TEST(ExchangeChoice, IsTheFastestOfEachSize) {
  const std::vector<ExchangeTimes> times = {{64 * kKilo, 3, 5, 7},
                                            {128 * kKilo, 4, 5, 7},
                                            {256 * kKilo, 7, 6, 8},
                                            {512 * kKilo, -1, 9, 12},
                                            {1024 * kKilo, -1, 20, 16}};
  EXPECT_EQ(ChooseExchange(times, DataType::kFloat32),
            (ExchangeChoice{DataType::kFloat32, 128 * kKilo, 512 * kKilo, true}));
  // One size that is measured wrong moves nothing.
  std::vector<ExchangeTimes> noisy = times;
  noisy[0].push = 5.1;
  EXPECT_EQ(ChooseExchange(noisy, DataType::kBfloat16),
            (ExchangeChoice{DataType::kBfloat16, 128 * kKilo, 512 * kKilo, true}));
}

TEST(ExchangeChoice, WithoutNcclLargeSumsAreTwoShots) {
  const std::vector<ExchangeTimes> times = {{64 * kKilo, 3, 5}, {128 * kKilo, 8, 5}};
  const ExchangeChoice choice = ChooseExchange(times, DataType::kFloat32);
  EXPECT_EQ(choice.push_bytes, 64 * kKilo);
}

TEST(ExchangeChoice, SaysWhatItIs) {
  EXPECT_EQ(ToString(UsualExchange(2)), "float32, a push to 8 MiB, then NCCL (not measured)");
  EXPECT_EQ(ToString(ExchangeChoice{DataType::kBfloat16, 384 * kKilo, 64 << 20, true}),
            "bfloat16, a push to 384 KiB, two shots to 64 MiB, then NCCL (measured)");
  EXPECT_EQ(UsualExchange(4).push_bytes, 1024 * kKilo);
  EXPECT_EQ(UsualExchange(8).push_bytes, 256 * kKilo);
  EXPECT_EQ(UsualExchange(100).push_bytes, 16 * kKilo);
}

class KeptChoice : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("culet-exchange-" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    path_ = (folder_ / "dispatch.jsonl").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(KeptChoice, OfItsMachineNumberAndType) {
  const ExchangeChoice two{DataType::kFloat32, 4 << 20, 64 << 20, true};
  const ExchangeChoice four{DataType::kFloat32, 1 << 20, 32 << 20, true};
  const ExchangeChoice half{DataType::kBfloat16, 2 << 20, 0, true};
  EXPECT_FALSE(FindExchange(path_, "cuda/a", 2, DataType::kFloat32));
  ASSERT_TRUE(SaveExchange(path_, "cuda/a", 2, four).ok());
  ASSERT_TRUE(SaveExchange(path_, "cuda/a", 4, four).ok());
  ASSERT_TRUE(SaveExchange(path_, "cuda/a", 2, half).ok());
  ASSERT_TRUE(SaveExchange(path_, "cuda/a", 2, two).ok());  // in the place of the first
  EXPECT_EQ(FindExchange(path_, "cuda/a", 2, DataType::kFloat32), two);
  EXPECT_EQ(FindExchange(path_, "cuda/a", 4, DataType::kFloat32), four);
  EXPECT_EQ(FindExchange(path_, "cuda/a", 2, DataType::kBfloat16), half);
  EXPECT_FALSE(FindExchange(path_, "cuda/b", 2, DataType::kFloat32));
  EXPECT_FALSE(FindExchange(path_, "cuda/a", 3, DataType::kFloat32));
  EXPECT_FALSE(FindExchange("", "cuda/a", 2, DataType::kFloat32));

  // Kernels' records stand beside it, and neither is in the other's way.
  DispatchCache cache({}, "cuda/a");
  const auto report = CacheFile(path_).Load(cache);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->other_version + report->damaged + report->used, 0) << report->ToString();
  EXPECT_EQ(*CacheFile(path_).Save(cache), 3);
  EXPECT_EQ(FindExchange(path_, "cuda/a", 2, DataType::kFloat32), two);
  EXPECT_TRUE(CacheFile(path_).List()->empty());
}

TEST_F(KeptChoice, DamageIsNoChoice) {
  ASSERT_TRUE(SaveExchange(path_, "cuda/a", 2, {DataType::kFloat32, 4 << 20, 64 << 20, true}).ok());
  std::string text;
  {
    std::ifstream file(path_);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  text.replace(text.find("4194304"), 7, "9999999");
  std::ofstream(path_) << text;
  EXPECT_FALSE(FindExchange(path_, "cuda/a", 2, DataType::kFloat32));
  std::ofstream(path_) << "another file\n";
  EXPECT_FALSE(FindExchange(path_, "cuda/a", 2, DataType::kFloat32));
  EXPECT_EQ(SaveExchange(path_, "cuda/a", 2, {}).code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace culet
