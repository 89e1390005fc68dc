// Sizes of workspaces at the end of what a number holds.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "culet/problem.h"

namespace culet {
namespace {

constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();

TEST(WorkspaceSize, TotalDoesNotWrap) {
  EXPECT_EQ((WorkspaceSize{0, 0, 0}.total()), 256u);
  EXPECT_EQ((WorkspaceSize{1, 257, 0}.total()), 256u + 256 + 512);
  for (const std::size_t large : {kMost, kMost - 100, kMost - 255}) {
    EXPECT_EQ((WorkspaceSize{large, 0, 0}.total()), kMost);
    EXPECT_EQ((WorkspaceSize{0, large, 0}.total()), kMost);
    EXPECT_EQ((WorkspaceSize{0, 0, large}.total()), kMost);
  }
  EXPECT_EQ((WorkspaceSize{kMost / 2, kMost / 2, kMost / 2}.total()), kMost);
}

TEST(InitWorkspace, RefusesWhatNoBufferHolds) {
  alignas(256) std::array<std::byte, 1024> buffer{};
  for (const WorkspaceSize& size : {WorkspaceSize{kMost, 0, 0}, WorkspaceSize{0, kMost - 255, 0},
                                    WorkspaceSize{kMost / 2, kMost / 2, kMost / 2}}) {
    EXPECT_EQ(InitWorkspace(size, buffer.data(), buffer.size()).status().code(),
              StatusCode::kResourceExhausted);
    EXPECT_EQ(InitWorkspace(size, buffer.data(), kMost).status().code(),
              StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace culet
