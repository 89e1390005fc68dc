// A file that is there whole or not at all.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/safetensors.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SafetensorsWrite : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              (std::string("culet-write-") +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const char* name) const { return (folder_ / name).string(); }
  std::size_t Files() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  std::string TextOf(const std::string& path) const {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  fs::path folder_;
  std::vector<float> values_ = std::vector<float>(5000, 1.5f);
  std::vector<SafetensorsEntry> entries_ = {{"x", DataType::kFloat32, {50, 100}, values_.data()}};
};

TEST_F(SafetensorsWrite, TheOldFileStaysUntilTheNewOneIsWhole) {
  const std::string path = Path("dump");
  std::ofstream(path) << "old";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  {
    const auto writer = SafetensorsWriter::Open(path);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    EXPECT_EQ(TextOf(path), "old");
  }
  EXPECT_EQ(TextOf(path), "old");
  EXPECT_EQ(Files(), 1u);
  ASSERT_TRUE(WriteSafetensors(path, entries_).ok());
  EXPECT_EQ(Files(), 1u);
  struct stat info {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0640u);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  const SafetensorsTensor* const tensor = file->Find("x");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(std::memcmp(tensor->data, values_.data(), 20000), 0);
}

// A file system that is full, as far as this process can tell.
TEST_F(SafetensorsWrite, AFileThatCannotGrowLeavesNothing) {
  const std::string path = Path("dump");
  std::ofstream(path) << "old";
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteSafetensors(path, entries_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("dump cannot be written: File too large"));
  EXPECT_EQ(TextOf(path), "old");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(SafetensorsWrite, WhatIsNoRegularFileIsWrittenInPlace) {
  const Status full = WriteSafetensors("/dev/full", entries_);
  EXPECT_EQ(full.code(), StatusCode::kIo);
  EXPECT_THAT(full.message(), HasSubstr("/dev/full cannot be written: No space left"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_TRUE(WriteSafetensors("/dev/null", entries_).ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(SafetensorsWrite, APipeThatNobodyReadsIsRefused) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const Status status = WriteSafetensors(path, entries_);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("pipe that nobody reads; start its reader first"));
}

TEST_F(SafetensorsWrite, APipeGetsAllAtItsReadersPace) {
  const std::string path = Path("pipe");
  values_.resize(std::size_t{1} << 20);  // more than a pipe holds
  entries_ = {{"x", DataType::kFloat32, {1 << 20}, values_.data()}};
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  fcntl(reader, F_SETFL, 0);
  Status status;
  std::thread writer([&] { status = WriteSafetensors(path, entries_); });
  std::string text;
  char part[10000];
  // A read of 0 bytes: no writer is there yet, or none any more.
  for (bool begun = false; !begun || text.size() < 8;) {
    const ssize_t got = read(reader, part, sizeof part);
    begun = got > 0;
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
  }
  for (ssize_t got; (got = read(reader, part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  writer.join();
  close(reader);
  EXPECT_TRUE(status.ok()) << status.ToString();
  ASSERT_TRUE(WriteSafetensors(Path("file"), entries_).ok());
  EXPECT_TRUE(text == TextOf(Path("file")));
}

TEST_F(SafetensorsWrite, AReaderThatWaitsCanBeGivenUp) {
  const std::string path = Path("pipe");
  values_.resize(std::size_t{1} << 20);
  entries_ = {{"x", DataType::kFloat32, {1 << 20}, values_.data()}};
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  int asked = 0;
  auto writer = SafetensorsWriter::Open(path, [&] { return ++asked == 3; });
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  const Status stopped = writer->Write(entries_);
  EXPECT_EQ(stopped.code(), StatusCode::kFailedPrecondition) << stopped.ToString();
  EXPECT_EQ(asked, 3);
  // One that went away is an error, not the end of the process.
  auto left = SafetensorsWriter::Open(path);
  close(reader);
  ASSERT_TRUE(left.ok());
  const Status broken = left->Write(entries_);
  EXPECT_EQ(broken.code(), StatusCode::kIo);
  EXPECT_THAT(broken.message(), HasSubstr("pipe cannot be written: Broken pipe"));
}

TEST_F(SafetensorsWrite, ALinkStaysALink) {
  std::ofstream(Path("target")) << "old";
  fs::create_symlink("target", folder_ / "link");
  ASSERT_TRUE(WriteSafetensors(Path("link"), entries_).ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(SafetensorsFile::Open(Path("target")).ok());
  EXPECT_EQ(Files(), 2u);
}

TEST_F(SafetensorsWrite, ALinkToNoFileYetMakesThatFile) {
  fs::create_symlink("target", folder_ / "link");
  ASSERT_TRUE(WriteSafetensors(Path("link"), entries_).ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_TRUE(SafetensorsFile::Open(Path("target")).ok());
  EXPECT_EQ(Files(), 2u);
}

// What the process prints must not land in the file.
TEST_F(SafetensorsWrite, AClosedStandardStreamStaysClosed) {
  const int input = dup(STDIN_FILENO);
  close(STDIN_FILENO);
  for (const std::string& path : {Path("dump"), std::string("/dev/null")}) {
    const auto writer = SafetensorsWriter::Open(path);
    EXPECT_TRUE(writer.ok()) << path;
    EXPECT_EQ(fcntl(STDIN_FILENO, F_GETFD), -1) << path;
  }
  if (input >= 0) {
    dup2(input, STDIN_FILENO);
    close(input);
  }
}

TEST_F(SafetensorsWrite, WhereNothingCanBeMadeOpenSaysSo) {
  for (const std::string& path : {Path("no/dump"), folder_.string()}) {
    const auto writer = SafetensorsWriter::Open(path);
    ASSERT_FALSE(writer.ok()) << path;
    EXPECT_EQ(writer.status().code(), StatusCode::kIo);
    EXPECT_THAT(writer.status().message(), HasSubstr(path + " cannot be written: "));
  }
  EXPECT_EQ(Files(), 0u);
}

}  // namespace
}  // namespace culet
