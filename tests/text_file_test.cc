// Small text files, whatever their size is said to be.
#include "model/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "cache_fixture.h"

namespace culet {
namespace {

TEST(ReadTextFile, ReadsToTheEndWhateverTheSizeSays) {
  // The kernel's files have size 0.
  const auto text = ReadTextFile("/proc/self/status", 1 << 20);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_THAT(*text, testing::HasSubstr("Pid:"));
  EXPECT_EQ(ReadTextFile("/proc/self/status", 10).status().code(), StatusCode::kIo);
}

TEST(ReadTextFile, Errors) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  EXPECT_EQ(ReadTextFile(path, 10).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadTextFile(folder.path(), 10).status().code(), StatusCode::kIo);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadTextFile(path, 10).status().code(), StatusCode::kIo) << "must not block";
}

}  // namespace
}  // namespace culet
