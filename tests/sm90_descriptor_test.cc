// Hopper's descriptor, tensor-map and tile-order arithmetic, without a GPU.
#include "sm90/descriptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "kernels/sm90/product/operand_map.h"
#include "sm90/scheduler.h"

namespace culet::sm90 {
namespace {

static_assert(WgmmaDescriptor128(0) == 0x4000004000010000ull);
static_assert((WgmmaDescriptor128(0x8000) & 0x3FFF) == 0x800);
static_assert(WgmmaDescriptorStep(kWgmmaKBytes) == 2);
// Start, leading offset (to the next 64 elements), stride (to the next 8 of k), 128-byte swizzle.
static_assert(WgmmaDescriptorTransposed128(0x8000, 0x4000) == 0x4000004004000800ull);
static_assert(EmptyArrivals(8, 2) == 16 && FullArrivals(2) == 3);

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

// The rows of B in the order in which a box brings them; -1 beyond an axis, where TMA gives zeros.
std::vector<int> RowsOfBox(const TensorMapPlan& plan, std::uint64_t first,
                           std::uint64_t row_bytes) {
  std::vector<int> rows;
  for (std::uint64_t block = 0; block < plan.box_blocks; ++block)
    for (std::uint64_t slice = 0; slice < plan.box_depth; ++slice)
      for (std::uint64_t row = first; row < first + plan.box_outer; ++row) {
        const std::uint64_t at =
            row * plan.pitch_bytes + slice * plan.depth_bytes + block * plan.block_bytes;
        const bool inside = row < plan.outer && slice < plan.depth && block < plan.blocks;
        rows.push_back(inside ? static_cast<int>(at / row_bytes) : -1);
      }
  return rows;
}

// wgmma gives lane q of a quad columns 2q and 2q + 1 of each eight.
TEST(LanesPlan, GivesALaneColumnsOfDSideBySide) {
  constexpr int kK = 256, kLd = 272, kColumns = 160;  // of B: the last box is not whole
  for (const int up_row : {0, kColumns / 2}) {
    const TensorMapPlan plan = LanesPlan(kK, kColumns, kLd, 1, up_row);
    ASSERT_EQ(WhyNotTensorMap(plan), nullptr);
    ASSERT_EQ(BoxBytes(plan), static_cast<std::uint32_t>(kLaneBox * 128));
    for (int column = 0; column < kColumns; column += kLaneBox) {
      const std::vector<int> rows = RowsOfBox(plan, static_cast<std::uint64_t>(column / 16), kLd);
      ASSERT_EQ(rows.size(), static_cast<std::size_t>(kLaneBox));
      for (int lane = 0; lane < 4; ++lane) {
        const int first = column / 2 + lane * kLaneColumns;  // of D
        std::set<int> gates, ups;
        for (int i = 0; i < kLaneBox; ++i) {
          const int row = rows[static_cast<std::size_t>(i)];
          if (i % 8 / 2 != lane || row < 0) continue;
          const bool up = i >= kLaneBox / 2;
          EXPECT_EQ(up, up_row != 0 ? row >= up_row : row / 8 % 2 == 1);
          const int of_d = up_row != 0 ? row % up_row : row / 16 * 8 + row % 8;
          (up ? ups : gates).insert(of_d);
          // As the kernels take it that sums lie: ColumnOfValue in block_config.cuh.
          EXPECT_EQ(of_d, first + i % 2 * 8 + i % (kLaneBox / 2) / 8);
        }
        const int there = std::clamp(kColumns / 2 - first, 0, kLaneColumns);
        EXPECT_EQ(gates.size(), static_cast<std::size_t>(there));
        EXPECT_EQ(gates, ups);
      }
    }
  }
}

TEST(Divisor, DividesAsDivisionDoes) {
  constexpr int kMost = 0x7FFFFFFF;
  for (int d : {1, 2, 3, 5, 7, 16, 17, 132, 641, 65535, 65536, 65537, 1 << 30, (1 << 30) + 1,
                kMost - 1, kMost}) {
    const Divisor divisor(d);
    std::vector<int> values = {0, 1, 2, 1000, kMost - 1, kMost};
    for (std::int64_t multiple : {1, 2, 3, 1000, kMost / d})  // where the quotient steps
      for (int delta : {-1, 0, 1})
        if (const std::int64_t n = multiple * d + delta; n >= 0 && n <= kMost)
          values.push_back(static_cast<int>(n));
    for (int n : values) EXPECT_EQ(divisor.Quotient(n), n / d) << n << " / " << d;
  }
}

TEST(TileOrder, SweepsSupergroupsRowsFirst) {
  for (const auto& [tiles_m, tiles_n] :
       {std::pair{13, 7}, {1, 1}, {1, 7}, {13, 1}, {132, 1}, {17, 3}, {4097, 33}}) {
    for (int group : {1, 3, 4, 8, 13, 64}) {
      const TileOrder order(tiles_m, tiles_n, group);
      EXPECT_EQ(order.sweeps_once(), group >= tiles_m);
      int index = 0, wrong = 0;
      for (int first = 0; first < tiles_m; first += group)
        for (int n = 0; n < tiles_n; ++n)
          for (int m = first; m < std::min(tiles_m, first + group); ++m, ++index) {
            int tile_m = -1, tile_n = -1;
            order.At(index, tile_m, tile_n);
            wrong += tile_m != m || tile_n != n;
          }
      EXPECT_EQ(wrong, 0) << tiles_m << " x " << tiles_n << " in groups of " << group;
      EXPECT_EQ(index, order.count());
    }
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
