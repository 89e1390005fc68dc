// What the kernel of prompts on warpgroup products takes from numbers alone: its boxes of keys, the
// order of its ring, the order of its work, and when it is chosen. The kernel itself needs a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "kernels/cuda_ops/attention_plan.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

// A box lies in one block of the cache, tiles are whole boxes, and a box ends with a group of eight
// rows.
TEST(WgmmaBox, DividesBlocksAndTiles) {
  for (int block = 1; block <= 512; ++block) {
    const int box = WgmmaBox(block);
    const bool divides = block % 64 == 0 || block == 8 || block == 16 || block == 32;
    EXPECT_EQ(box > 0, divides) << block;
    if (box == 0) continue;
    EXPECT_EQ(block % box, 0) << block;
    EXPECT_EQ(kMostBox % box, 0) << block;
    EXPECT_EQ(box % kLeastBox, 0) << block;
    for (const int dim : {64, 128, 256}) EXPECT_EQ(WgmmaKeys(dim) % box, 0);
  }
  EXPECT_EQ(WgmmaBox(0), kMostBox);
}

// Consumers take the first keys, then the next ones and the values of those before, then the last
// values; each slot is somebody's.
TEST(WgmmaRing, HasWhatConsumersWantInTheirOrder) {
  for (int tiles = 1; tiles <= 20; ++tiles) {
    std::vector<int> wanted = {WgmmaKeySlot(0, tiles)};
    for (int i = 1; i < tiles; ++i) {
      wanted.push_back(WgmmaKeySlot(i, tiles));
      wanted.push_back(WgmmaValueSlot(i - 1, tiles));
    }
    wanted.push_back(WgmmaValueSlot(tiles - 1, tiles));
    for (int slot = 0; slot < 2 * tiles; ++slot) {
      EXPECT_EQ(wanted[static_cast<std::size_t>(slot)], slot) << tiles;
    }
    EXPECT_EQ(WgmmaKeySlot(tiles, tiles), 2 * tiles);
    EXPECT_EQ(WgmmaValueSlot(tiles, tiles), 2 * tiles);
  }
}

// All work is taken once, and of work that becomes less no block has much more than another.
TEST(WgmmaTurns, AreEvenAndComplete) {
  for (const int blocks : {1, 2, 7, 132}) {
    for (const std::int64_t all : {1, 6, 131, 132, 133, 512, 2048}) {
      std::set<std::int64_t> taken;
      std::vector<std::int64_t> sums(static_cast<std::size_t>(blocks));
      for (int block = 0; block < blocks; ++block) {
        for (std::int64_t round = 0; round * blocks < all; ++round) {
          const std::int64_t index = WgmmaTurn(round, block, blocks);
          if (index >= all) continue;
          EXPECT_TRUE(taken.insert(index).second);
          sums[static_cast<std::size_t>(block)] += all - index;
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(taken.size()), all);
      const auto [least, most] = std::minmax_element(sums.begin(), sums.end());
      EXPECT_LE(*most - *least, all) << blocks << " blocks";
      if (all % (2 * blocks) == 0) EXPECT_EQ(*most, *least) << blocks << " blocks";
    }
  }
}

AttentionShape PromptOf(std::int64_t rows, std::int64_t keys) {
  AttentionShape shape;
  shape.params = {.heads = 32, .kv_heads = 8, .head_dim = 128, .scale = 1, .block_size = 16};
  shape.kv_type = DataType::kBfloat16;
  shape.rows = rows;
  shape.most_keys = keys;
  return shape;
}

TEST(WgmmaPlan, TakesPromptsWhereTheGpuCan) {
  constexpr int kMultiprocessors = 132;
  const auto plan = [&](const AttentionShape& shape, bool exact, bool wgmma) {
    return PlanAttention(shape, exact, kMultiprocessors, true, wgmma);
  };
  const AttentionPlan prompt = plan(PromptOf(512, 512), false, true);
  EXPECT_TRUE(prompt.has_tiles && prompt.wgmma);
  EXPECT_EQ(prompt.wgmma_blocks, kMultiprocessors);
  EXPECT_FALSE(plan(PromptOf(512, 512), false, false).wgmma);
  EXPECT_FALSE(plan(PromptOf(512, 512), true, true).wgmma);
  EXPECT_FALSE(plan(PromptOf(1, 512), false, true).has_tiles);
  AttentionShape odd = PromptOf(512, 512);
  odd.params.block_size = 20;
  EXPECT_FALSE(plan(odd, false, true).wgmma);
  EXPECT_TRUE(plan(odd, false, true).has_tiles);
}

// Codes take the same kernels, where a row of a head is whole pieces of 16 bytes.
TEST(WgmmaPlan, TakesCodesOfHeadsInWholePieces) {
  AttentionShape codes = PromptOf(512, 512);
  codes.kv_type = DataType::kFloat8_e4m3;
  EXPECT_TRUE(PlanAttention(codes, false, 132, true, true).wgmma);
  EXPECT_FALSE(PlanAttention(codes, true, 132, true, true).tensor_cores);
  for (const int dim : {8, 24, 72, 80}) {
    codes.params.head_dim = dim;
    EXPECT_EQ(PlanAttention(codes, false, 132, true, true).tensor_cores, dim == 80) << dim;
  }
}

// Few queries behind many keys share them among blocks; whole tiles only where a split saves more
// than its sum costs.
TEST(WgmmaPlan, SplitsWhatPaysForItsSum) {
  for (const bool wgmma : {false, true}) {
    const auto splits = [&](std::int64_t rows, std::int64_t keys) {
      return PlanAttention(PromptOf(rows, keys), false, 132, true, wgmma).tiles.most;
    };
    EXPECT_EQ(splits(512, 512), 1);
    EXPECT_EQ(splits(8192, 8192), 1);
    EXPECT_EQ(splits(5, 2048), 8);
    EXPECT_GT(splits(64, 8192), 4);
  }
}

}  // namespace
}  // namespace culet::cuda_ops
