// How decoding splits keys: plans of GPUs that this machine is not, and kernels that read early,
// with each number of stages and splits, give one result.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/float_types.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

AttentionShape ShapeOf(std::int64_t batch, std::int64_t keys) {
  AttentionShape shape;
  shape.params = {.heads = 32, .kv_heads = 8, .head_dim = 128, .scale = 0.1f, .block_size = 16};
  shape.kv_type = DataType::kBfloat16;
  shape.rows = shape.sequences = batch;
  shape.most_keys = keys;
  return shape;
}

TEST(DecodePlan, FitsEveryDevice) {
  for (const int multiprocessors : {1, 46, 108, 132, 148}) {
    for (const bool clusters : {false, true}) {
      for (const std::int64_t batch : {1, 3, 8, 64, 200}) {
        for (const std::int64_t keys : {16, 512, 1040, 4096, 32768, 131072}) {
          const AttentionPlan plan =
              PlanAttention(ShapeOf(batch, keys), false, multiprocessors, clusters, clusters);
          const AttentionSplits& how = plan.decode;
          ASSERT_TRUE(plan.has_decode && !plan.has_tiles);
          EXPECT_LE(1, how.even);
          EXPECT_LE(how.even, how.most);
          EXPECT_LE(how.most, kMostSplits);
          EXPECT_EQ(how.most % how.cluster, 0);
          EXPECT_TRUE(how.stages == 2 || (how.stages == 3 && clusters));
          EXPECT_TRUE(clusters || how.cluster == 1);
          if (how.most > 1) {
            EXPECT_EQ(plan.workspace_bytes,
                      static_cast<std::size_t>(batch * 32 * how.most * (128 + 2) * 4));
          }
          EXPECT_EQ(plan.state_bytes, static_cast<std::size_t>(batch * 8 * how.cluster * 4));
        }
      }
    }
  }
}

// Waves of 132 multiprocessors: few keys go to a cluster, many to one wave of blocks, and blocks
// that stream long have three stages.
TEST(DecodePlan, FillsWaves) {
  const auto plan = [](std::int64_t batch, std::int64_t keys) {
    return PlanAttention(ShapeOf(batch, keys), false, 132, true, true).decode;
  };
  EXPECT_EQ(plan(1, 512).cluster, 8);
  EXPECT_EQ(plan(1, 1040).cluster, 1);
  EXPECT_EQ(plan(1, 32768).stages, 3);
  EXPECT_EQ(plan(64, 4096).even, 1);
  EXPECT_EQ(plan(64, 4096).stages, 3);
  EXPECT_EQ(plan(8, 32768).even, 4);
  EXPECT_EQ(plan(8, 4096).even, 4);
  EXPECT_EQ(plan(8, 4096).stages, 3);
  EXPECT_EQ(plan(4, 2048).stages, 2);
  EXPECT_EQ(plan(64, 512).even, 1);
  EXPECT_EQ(plan(64, 512).stages, 3);
  // A block a multiprocessor at most, where that is enough.
  EXPECT_EQ(plan(4, 512).cluster, 4);
  EXPECT_EQ(plan(4, 512).stages, 2);
  EXPECT_EQ(plan(4, 1024).cluster, 4);
  EXPECT_EQ(plan(4, 1024).stages, 3);
  EXPECT_EQ(plan(8, 512).cluster, 2);
  EXPECT_EQ(plan(8, 512).most, 2);
  EXPECT_EQ(plan(8, 512).stages, 3);
  EXPECT_EQ(plan(8, 1024).cluster, 4);
}

// A block without keys takes the place of one that has some: where all rows have as many keys as
// there is room for, no block is without, but where few rows leave places that the next launch is
// not to take yet.
TEST(DecodePlan, HasNoIdleBlocks) {
  for (const std::int64_t batch : {1, 3, 8, 64}) {
    for (const std::int64_t keys : {512, 1024, 1040, 4096, 32768}) {
      const AttentionSplits how =
          PlanAttention(ShapeOf(batch, keys), false, 132, true, true).decode;
      const std::int64_t even = (keys + how.even - 1) / how.even;
      const std::int64_t share = (even + kSplitStep - 1) / kSplitStep * kSplitStep;
      const bool near = how.cluster > 1 && keys <= how.cluster * kKeysNear;
      EXPECT_TRUE(!near || how.most == how.cluster) << batch << " x " << keys;
      if (near || share > how.fine) continue;
      if (batch == 1 && keys > 1024 && keys <= 4096) {
        EXPECT_EQ(how.most, 2 * 132 * 7 / 8 / 8) << keys;
        EXPECT_EQ(how.stages, 3) << keys;
      } else {
        EXPECT_EQ(how.most, how.even) << batch << " x " << keys;
      }
      EXPECT_EQ((keys + share - 1) / share, how.even) << batch << " x " << keys;
    }
  }
}

struct Cache {
  std::vector<std::uint16_t> q, k, v;
  std::vector<std::int32_t> starts, positions, lengths, table;
  std::vector<float> out;
};

TEST(DecodeKernel, StagesAndSplitsGiveOneResult) {
  constexpr int kRows = 3, kHeads = 4, kKvHeads = 2, kDim = 64, kBlock = 16, kCols = 145;
  constexpr std::int64_t kCacheRows = kRows * kCols * kBlock;
  Cache c;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<std::uint16_t>& to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) to.push_back(FloatToBfloat16(normal(random)));
  };
  fill(c.q, kRows * kHeads * kDim);
  fill(c.k, kCacheRows * kKvHeads * kDim);
  fill(c.v, kCacheRows * kKvHeads * kDim);
  c.starts = {0, 1, 2, 3};
  c.lengths = {2310, 333, 17};
  for (const std::int32_t length : c.lengths) c.positions.push_back(length - 1);
  for (int i = 0; i < kRows * kCols; ++i) c.table.push_back(i * 7 % (kRows * kCols));
  AttentionArgs args;
  args.params = {.heads = kHeads,
                 .kv_heads = kKvHeads,
                 .head_dim = kDim,
                 .scale = 0.125f,
                 .block_size = kBlock,
                 .single_rows = true};
  args.q = c.q.data(), args.k = c.k.data(), args.v = c.v.data();
  args.q_type = args.kv_type = DataType::kBfloat16;
  args.out_type = DataType::kFloat32;
  args.starts = c.starts.data(), args.positions = c.positions.data();
  args.lengths = c.lengths.data(), args.table = c.table.data();
  args.rows = args.sequences = kRows;
  args.table_cols = kCols, args.key_rows = kCacheRows;
  args.plan.tensor_cores = args.plan.has_decode = true;
  AttentionShape shape = ShapeOf(kRows, kCols * kBlock);
  shape.params = args.params;
  ASSERT_EQ(PrepareAttention(shape, args.plan), cudaSuccess);

  // The definition, in double.
  std::vector<double> expected;
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      const auto at = [&](const std::vector<std::uint16_t>& cache, int key, int dim) {
        const std::int64_t slot =
            c.table[static_cast<std::size_t>(row * kCols + key / kBlock)] * kBlock + key % kBlock;
        return double{Bfloat16ToFloat(cache[static_cast<std::size_t>(
            (slot * kKvHeads + head / (kHeads / kKvHeads)) * kDim + dim)])};
      };
      std::vector<double> value(kDim);
      double total = 0;
      for (int key = 0; key < c.lengths[static_cast<std::size_t>(row)]; ++key) {
        double score = 0;
        for (int d = 0; d < kDim; ++d) {
          score += at(c.k, key, d) *
                   Bfloat16ToFloat(c.q[static_cast<std::size_t>((row * kHeads + head) * kDim + d)]);
        }
        const double weight = std::exp(score * 0.125);
        total += weight;
        for (int d = 0; d < kDim; ++d)
          value[static_cast<std::size_t>(d)] += weight * at(c.v, key, d);
      }
      for (const double v : value) expected.push_back(v / total);
    }
  }
  struct How {
    int most, even, fine, cluster;
  };
  for (const How& how : {How{1, 1, 1 << 30, 1}, How{10, 4, 1 << 30, 1}, How{10, 2, 128, 1},
                         How{8, 8, 1 << 30, 8}, How{10, 10, 1 << 30, 2},
                         // More parts than the last block has on their way at once.
                         How{37, 37, 1 << 30, 1}, How{38, 38, 1 << 30, 2}}) {
    AttentionSplits& splits = args.plan.decode;
    splits.most = how.most, splits.even = how.even, splits.fine = how.fine;
    splits.cluster = how.cluster;
    std::vector<float> first;
    for (const int stages : {2, 3}) {
      for (const bool early : {false, true}) {
        splits.stages = stages;
        args.early = early;
        c.out.assign(expected.size(), std::nanf(""));
        std::vector<float> parts(static_cast<std::size_t>(kRows * kHeads * how.most * (kDim + 2)));
        std::vector<unsigned> counters(static_cast<std::size_t>(kRows * kKvHeads * how.cluster));
        args.out = c.out.data();
        args.workspace = parts.data();
        args.counters = counters.data();
        ASSERT_EQ(Attention(args, LaunchStream(nullptr, true)), cudaSuccess);
        for (std::size_t row = 0; row < kRows; ++row) {  // of many keys they are small
          double error = 0, norm = 0;
          for (std::size_t i = row * kHeads * kDim; i < (row + 1) * kHeads * kDim; ++i) {
            error += std::pow(c.out[i] - expected[i], 2);
            norm += std::pow(expected[i], 2);
          }
          EXPECT_LE(std::sqrt(error), 6e-3 * std::sqrt(norm))
              << "row " << row << ", splits " << how.most << ", stages " << stages;
        }
        if (first.empty()) first = c.out;
        EXPECT_EQ(c.out, first) << "splits " << how.most << ", stages " << stages;
        for (const unsigned counter : counters) EXPECT_EQ(counter, 0u);
      }
    }
  }
}

}  // namespace
}  // namespace culet::cuda_ops
