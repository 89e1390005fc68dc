// Commands whose results cannot be saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

#include "apps/session.h"
#include "cache_fixture.h"
#include "culet/model.h"

namespace culet::cli {
namespace {

class SaveResultsTest : public testing::Test {
 protected:
  SaveResultsTest() {
    WriteText(path_, "not a cache\n");
    session_.file.emplace(path_);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "cache.jsonl";
  Session session_{*Gemm::Create(), std::nullopt, true, {}};
};

TEST_F(SaveResultsTest, ResultsGoToAFileOfTheirOwn) {
  LaunchSpec spec = Measured(*session_.gemm.registry().Find("cpu_reference"), 10);
  ASSERT_TRUE(session_.gemm.cache().Insert(*MakeDesc(Format::kF32, 1, 32, 64, 0), spec));
  EXPECT_EQ(SaveResults(session_).code(), StatusCode::kDataLoss);
  ASSERT_FALSE(session_.saved_in.empty());
  EXPECT_NE(session_.saved_in, path_);
  EXPECT_TRUE(std::filesystem::exists(session_.saved_in));
  std::filesystem::remove_all(std::filesystem::path(session_.saved_in).parent_path());
}

TEST_F(SaveResultsTest, WithoutResultsNoFileIsNamed) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(SaveResults(session_).code(), StatusCode::kDataLoss);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::Not(testing::HasSubstr("the results are in")));
  EXPECT_EQ(session_.saved_in, "");
}

}  // namespace
}  // namespace culet::cli
