// Hopper's descriptor, swizzle, tensor-map and tile-order arithmetic, without a GPU.
#include "sm90/descriptor.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "sm90/scheduler.h"

namespace culet::sm90 {
namespace {

static_assert(WgmmaDescriptor128(0) == 0x4000004000010000ull);
static_assert((WgmmaDescriptor128(0x8000) & 0x3FFF) == 0x800);
static_assert(WgmmaDescriptorStep(kWgmmaFp8KBytes) == 2);
static_assert(EmptyArrivals(8, 2) == 16 && FullArrivals(2) == 3);

TEST(Swizzle, IsAPermutationOfTheTileAndKeepsChunksWhole) {
  for (SwizzleMode mode :
       {SwizzleMode::k128Bytes, SwizzleMode::k64Bytes, SwizzleMode::k32Bytes, SwizzleMode::kNone}) {
    const std::uint32_t width = SwizzleBytes(mode);
    std::set<std::uint32_t> seen;
    for (std::uint32_t row = 0; row < 16; ++row)
      for (std::uint32_t byte = 0; byte < width; ++byte) {
        const std::uint32_t offset = SwizzledOffset(mode, row, byte);
        EXPECT_LT(offset, 16 * width);
        EXPECT_EQ(offset % 16, byte % 16);
        seen.insert(offset);
      }
    EXPECT_EQ(seen.size(), 16 * width);
  }
}

TEST(Swizzle, EightRowsOfOneColumnUseAllBanks) {
  std::set<std::uint32_t> chunks;
  for (std::uint32_t row = 0; row < 8; ++row)
    chunks.insert(SwizzledOffset(SwizzleMode::k128Bytes, row, 48) / 16 % 8);
  EXPECT_EQ(chunks.size(), 8u);
}

TEST(TensorMapPlan, SaysWhatTmaRefuses) {
  TensorMapPlan plan;
  plan.inner = 272, plan.outer = 7, plan.pitch_bytes = 272;
  plan.box_inner = 128, plan.box_outer = 256;
  EXPECT_EQ(WhyNotTensorMap(plan), nullptr);
  EXPECT_EQ(BoxBytes(plan), 32768u);
  plan.pitch_bytes = 280;
  EXPECT_NE(WhyNotTensorMap(plan), nullptr);
  plan.pitch_bytes = 272, plan.box_outer = 257;
  EXPECT_NE(WhyNotTensorMap(plan), nullptr);
  plan.box_outer = 16, plan.element_bytes = 2;
  EXPECT_NE(WhyNotTensorMap(plan), nullptr) << "a row of 256 bytes does not fit the swizzle";
  plan.box_inner = 64;
  EXPECT_EQ(WhyNotTensorMap(plan), nullptr);
  plan.outer = 0;
  EXPECT_NE(WhyNotTensorMap(plan), nullptr);
}

TEST(TileOrder, VisitsEveryTileOnce) {
  for (bool along_n : {false, true})
    for (int group : {1, 3, 8, 64}) {
      TileOrder order;
      order.tiles_m = 13, order.tiles_n = 7, order.group = group, order.along_n = along_n;
      std::set<std::pair<int, int>> seen;
      for (int i = 0; i < order.count(); ++i) {
        int m = -1, n = -1;
        order.At(i, m, n);
        EXPECT_TRUE(m >= 0 && m < 13 && n >= 0 && n < 7);
        seen.insert({m, n});
      }
      EXPECT_EQ(seen.size(), 91u);
    }
}

TEST(SplitRange, CoversAllBlocksInOrder) {
  for (int blocks : {1, 4, 56, 57})
    for (int parts : {1, 2, 3, 4}) {
      int at = 0;
      for (int part = 0; part < parts; ++part) {
        int begin = -1, end = -1;
        SplitRange(blocks, parts, part, begin, end);
        EXPECT_EQ(begin, at);
        EXPECT_LE(end - begin, (blocks + parts - 1) / parts);
        at = end;
      }
      EXPECT_EQ(at, blocks);
    }
}

}  // namespace
}  // namespace culet::sm90
