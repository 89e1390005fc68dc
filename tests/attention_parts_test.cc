// Attention with its keys split among threads: against the formula in double precision, and bit for
// bit against the same rows in one batch, where nothing is split and many queries share a tile.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/device.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "kernels/ops/ops.h"

namespace culet {
namespace {

struct Case {
  const char* name;
  int heads, kv_heads, head_dim, window;
  DataType cache;
  bool sinks = false;
};

const Case kCases[] = {
    {"in_place_bf16", 8, 4, 64, 0, DataType::kBfloat16},
    {"in_place_f16", 4, 4, 32, 0, DataType::kFloat16},
    {"in_place_f32", 6, 2, 64, 0, DataType::kFloat32},
    {"padded_bf16", 4, 2, 40, 0, DataType::kBfloat16},
    {"padded_f32", 2, 1, 12, 0, DataType::kFloat32},
    {"many_queries_a_head", 14, 2, 64, 0, DataType::kBfloat16},
    {"more_than_a_task", 80, 2, 32, 0, DataType::kBfloat16},
    {"window_from_a_part_to_the_next", 4, 2, 32, 200, DataType::kBfloat16},
    {"window_inside_a_part", 4, 2, 32, 9, DataType::kFloat32},
    {"sinks", 8, 4, 64, 0, DataType::kBfloat16, true},
};

class AttentionParts : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kBlock = 16, kLength = 700, kRows = 12;
  const Case& c_ = GetParam();
  const int threads_before_ = HostThreads();
  const std::size_t q_cols_ = static_cast<std::size_t>(c_.heads * c_.head_dim);
  const std::size_t kv_cols_ = static_cast<std::size_t>(c_.kv_heads * c_.head_dim);
  std::vector<std::byte> keys_, values_;
  std::vector<float> queries_;
  const std::vector<float> sinks_ = {5, -3, 0.7f, 8, 2, 6.5f, 7, 1};
  std::vector<std::int32_t> table_;

  void SetUp() override {
    ASSERT_TRUE(SetHostThreads(3).ok());
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    table_.resize((kLength + kBlock - 1) / kBlock);
    std::iota(table_.begin(), table_.end(), 1);
    std::ranges::shuffle(table_, random);
    const std::size_t elements = (table_.size() + 2) * kBlock * kv_cols_;
    for (std::vector<std::byte>* cache : {&keys_, &values_}) {
      cache->resize(elements * SizeOf(c_.cache));
      for (std::size_t i = 0; i < elements; ++i) {
        StoreFromDouble(cache->data(), c_.cache, static_cast<std::int64_t>(i), normal(random));
      }
    }
    queries_.resize(kRows * q_cols_);
    for (float& q : queries_) q = normal(random);
  }
  void TearDown() override { EXPECT_TRUE(SetHostThreads(threads_before_).ok()); }

  // Rows [first, first + rows) of the sequence's last kRows, in one launch.
  std::vector<float> Run(int first, int rows) {
    std::vector<float> out(static_cast<std::size_t>(rows) * q_cols_, NAN);
    std::vector<std::int32_t> starts = {0, rows}, lengths = {kLength}, positions;
    for (int r = 0; r < rows; ++r) positions.push_back(kLength - kRows + first + r);
    const auto blocks = static_cast<std::int64_t>(table_.size());
    auto gemm = Gemm::Create();
    const auto dispatch = MakeCpuDispatch(*gemm);
    ComputeGraph graph;
    OpParams params;
    params.attention.heads = c_.heads;
    params.attention.kv_heads = c_.kv_heads;
    params.attention.head_dim = c_.head_dim;
    params.attention.scale = 0.2f;
    params.attention.window = c_.window;
    params.attention.block_size = kBlock;
    if (c_.sinks) {
      params.sinks.data_ptr = ToDevicePtr(sinks_.data());
      params.sinks.type = DataType::kFloat32;
      params.sinks.rows = 1;
      params.sinks.cols = c_.heads;
    }
    const Shape shape{rows, static_cast<std::int64_t>(q_cols_)};
    const Shape cache{(blocks + 2) * kBlock, static_cast<std::int64_t>(kv_cols_)};
    const auto index = [&](const std::vector<std::int32_t>& of, Shape s) {
      return graph.add_leaf(ToDevicePtr(of.data()), s, DataType::kInt32);
    };
    const std::vector<int> inputs = {
        graph.add_leaf(ToDevicePtr(queries_.data() + static_cast<std::size_t>(first) * q_cols_),
                       shape),
        graph.add_leaf(ToDevicePtr(keys_.data()), cache, c_.cache),
        graph.add_leaf(ToDevicePtr(values_.data()), cache, c_.cache),
        index(starts, {2, 1}),
        index(positions, {rows, 1}),
        index(lengths, {1, 1}),
        index(table_, {1, blocks})};
    graph.add_op(TensorOp::kAttention, ToDevicePtr(out.data()), shape, inputs, params);
    const auto result = execute_graph(graph, *dispatch);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return out;
  }

  double At(const std::vector<std::byte>& cache, int key, std::size_t col) const {
    const std::size_t slot = static_cast<std::size_t>(
        table_[static_cast<std::size_t>(key / kBlock)] * kBlock + key % kBlock);
    return LoadAsDouble(cache.data(), c_.cache, static_cast<std::int64_t>(slot * kv_cols_ + col));
  }

  std::vector<double> Expected(int row) const {
    std::vector<double> out(q_cols_, 0.0);
    const int position = kLength - kRows + row;
    const int first = c_.window > 0 ? std::max(0, position + 1 - c_.window) : 0;
    const auto d = static_cast<std::size_t>(c_.head_dim);
    for (std::size_t head = 0; head < static_cast<std::size_t>(c_.heads); ++head) {
      const std::size_t kv = head / static_cast<std::size_t>(c_.heads / c_.kv_heads) * d;
      double sum = c_.sinks ? std::exp(static_cast<double>(sinks_[head])) : 0;
      for (int key = first; key <= position; ++key) {
        double score = 0;
        for (std::size_t i = 0; i < d; ++i) {
          score += static_cast<double>(
                       queries_[static_cast<std::size_t>(row) * q_cols_ + head * d + i]) *
                   At(keys_, key, kv + i);
        }
        const double weight = std::exp(score * static_cast<double>(0.2f));
        sum += weight;
        for (std::size_t i = 0; i < d; ++i) out[head * d + i] += weight * At(values_, key, kv + i);
      }
      for (std::size_t i = 0; i < d; ++i) out[head * d + i] /= sum;
    }
    return out;
  }
};

TEST_P(AttentionParts, SplitOrNotTheBitsAreTheSameAndRight) {
  const std::vector<float> together = Run(0, kRows);
  for (const auto& [first, rows] : {std::pair{0, 1}, {kRows - 1, 1}, {3, 4}, {2, 8}}) {
    const std::vector<float> split = Run(first, rows);
    ASSERT_EQ(std::memcmp(split.data(), together.data() + static_cast<std::size_t>(first) * q_cols_,
                          split.size() * sizeof(float)),
              0)
        << rows << " rows from " << first;
  }
  ASSERT_TRUE(SetHostThreads(1).ok());
  const std::vector<float> one_thread = Run(kRows - 1, 1);
  ASSERT_TRUE(std::equal(one_thread.begin(), one_thread.end(),
                         together.end() - static_cast<std::ptrdiff_t>(q_cols_)));
  for (int row = 0; row < kRows; ++row) {
    const std::vector<double> expected = Expected(row);
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < q_cols_; ++i) {
      error += std::pow(together[static_cast<std::size_t>(row) * q_cols_ + i] - expected[i], 2);
      norm += std::pow(expected[i], 2);
    }
    EXPECT_LE(std::sqrt(error / norm), 1e-6) << "row " << row;
  }
}

// A block outside the cache is NaN for the rows that see it, whoever works on it.
TEST_P(AttentionParts, ABlockOutsideTheCacheIsNan) {
  table_[20] = -1;  // keys 320 to 335
  const std::vector<float> out = Run(kRows - 1, 1);
  const bool seen = c_.window == 0;
  for (const float x : out) ASSERT_EQ(std::isnan(x), seen);
}

// A cache with room for very many keys holds few at first: they are split as in a small cache, and
// no thread gives its own memory for it.
TEST(AttentionWorkspaceTest, RoomForMoreKeysIsNeverLess) {
  AttentionParams params;
  params.heads = 64;
  params.kv_heads = 8;
  params.head_dim = 128;
  for (const std::int64_t rows : {1, 4, 8, 9}) {
    std::size_t before = 0;
    for (std::int64_t keys = 1; keys <= std::int64_t{1} << 22; keys *= 2) {
      const std::size_t floats = ops::AttentionWorkspace(params, rows, keys);
      EXPECT_GE(floats, before) << rows << " rows, " << keys << " keys";
      before = floats;
    }
    // Bounded all the same.
    EXPECT_EQ(before, ops::AttentionWorkspace(params, rows, std::int64_t{1} << 24));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionParts, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace culet
