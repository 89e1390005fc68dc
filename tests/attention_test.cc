// Attention against its formula, written down once more: no code is shared with either dispatch,
// not even the rule which keys a row sees.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

namespace culet {
namespace {

// `added` tokens of a sequence that has `length` then.
struct Sequence {
  int length, added;
};

struct Case {
  const char* name;
  int heads, kv_heads, head_dim, window, block_size;
  DataType cache;
  std::vector<Sequence> sequences;
  bool causal = true;
  int chunk = 0;
  float softcap = 0;
  DataType sinks = DataType::kNull;
  int value_dim = 0;  // values are so many elements of the keys
};

const std::vector<Sequence> kRagged = {{9, 9}, {130, 1}, {41, 5}, {1, 1}, {64, 32}};

const Case kCases[] = {
    {"plain", 4, 4, 16, 0, 16, DataType::kFloat32, kRagged},
    {"own_key_only", 4, 2, 16, 1, 16, DataType::kFloat32, kRagged},
    {"window_5", 6, 2, 24, 5, 4, DataType::kFloat32, kRagged},
    {"window_32", 6, 2, 24, 32, 8, DataType::kFloat32, kRagged},
    {"window_33", 8, 1, 40, 33, 3, DataType::kBfloat16, kRagged},
    {"window_of_all", 3, 1, 12, 130, 16, DataType::kFloat16, kRagged},
    {"blocks_of_1", 14, 2, 64, 0, 1, DataType::kFloat16, kRagged},
    {"around_256", 4, 2, 32, 0, 16, DataType::kFloat32, {{255, 2}, {256, 1}, {257, 1}, {258, 7}}},
    {"around_1024", 4, 2, 32, 0, 32, DataType::kBfloat16, {{1025, 3}, {1024, 1}, {1023, 1}}},
    {"window_past_1024", 4, 1, 32, 257, 64, DataType::kFloat32, {{1030, 12}, {300, 1}}},
    {"both_ways", 4, 2, 16, 0, 16, DataType::kFloat32, kRagged, false},
    {"codes", 6, 3, 40, 0, 16, DataType::kFloat8_e4m3, kRagged},
    {"codes_of_odd_heads", 10, 2, 7, 33, 3, DataType::kFloat8_e4m3, kRagged},
    {"latent", 16, 1, 72, 0, 16, DataType::kBfloat16, kRagged, true, 0, 0, DataType::kNull, 48},
    {"latent_of_one_head", 1, 1, 96, 0, 8, DataType::kFloat16, kRagged, true, 0, 0, DataType::kNull,
     64},
    {"latent_past_1024",
     5,
     1,
     39,
     0,
     32,
     DataType::kFloat32,
     {{1025, 3}, {300, 1}},
     true,
     0,
     0,
     DataType::kNull,
     33},
    {"latents_with_a_window", 6, 2, 64, 37, 8, DataType::kFloat32, kRagged, true, 0, 0,
     DataType::kNull, 63},
    {"latent_of_deepseek", 7, 1, 576, 0, 64, DataType::kBfloat16, kRagged, true, 0, 0,
     DataType::kNull, 512},
    {"codes_past_1024", 8, 1, 64, 0, 32, DataType::kFloat8_e4m3, {{1025, 3}, {300, 1}}},
    {"chunks_of_16", 6, 2, 24, 0, 4, DataType::kFloat32, kRagged, true, 16},
    {"chunk_and_window", 4, 2, 16, 7, 4, DataType::kBfloat16, kRagged, true, 10},
    {"chunks_of_1024", 4, 1, 32, 0, 64, DataType::kFloat32, {{1030, 12}, {1024, 2}}, true, 1024},
    {"sinks", 6, 2, 24, 0, 4, DataType::kFloat32, kRagged, true, 0, 0, DataType::kFloat32},
    {"sinks_and_window", 8, 1, 64, 5, 4, DataType::kBfloat16, kRagged, true, 0, 0,
     DataType::kBfloat16},
    {"sinks_past_1024",
     4,
     2,
     32,
     0,
     32,
     DataType::kFloat16,
     {{1025, 3}, {300, 1}},
     true,
     0,
     0,
     DataType::kFloat16},
    {"cap_and_sinks", 4, 2, 16, 9, 16, DataType::kFloat32, kRagged, true, 8, 1.5f,
     DataType::kFloat32},
};

class Attention : public testing::TestWithParam<Case> {
 protected:
  const Case& c_ = GetParam();
  const std::size_t d_ = static_cast<std::size_t>(c_.head_dim);
  const std::size_t q_cols_ = static_cast<std::size_t>(c_.heads) * d_;
  const std::size_t kv_cols_ = static_cast<std::size_t>(c_.kv_heads) * d_;
  const std::size_t out_d_ = c_.value_dim > 0 ? static_cast<std::size_t>(c_.value_dim) : d_;
  const std::size_t out_cols_ = static_cast<std::size_t>(c_.heads) * out_d_;
  std::mt19937 random_{7};

  // `count` normal values that `type` holds exactly.
  std::vector<double> Values(std::size_t count, DataType type) {
    std::normal_distribution<float> normal;
    std::vector<double> values(count);
    for (double& value : values) value = RoundTo(type, normal(random_));
    return values;
  }

  // Those of a cache: codes are times the scales of their heads.
  std::vector<double> Cached(std::size_t count, DataType type, const std::vector<float>& scales) {
    std::vector<double> values = Values(count, type);
    for (std::size_t i = 0; i < count && type == DataType::kFloat8_e4m3; ++i) {
      values[i] *= scales[i % kv_cols_ / d_];
    }
    return values;
  }

  // One row: the softmax of its products with the keys that it sees, times their values.
  std::vector<double> Expected(const double* q, const std::vector<double>& keys,
                               const std::vector<double>& values, int length, int position) {
    std::vector<double> out(out_cols_, 0.0);
    for (std::size_t head = 0; head < static_cast<std::size_t>(c_.heads); ++head) {
      const std::size_t shared_by = static_cast<std::size_t>(c_.heads / c_.kv_heads);
      const std::size_t at = head / shared_by * d_;
      double sum = c_.sinks == DataType::kNull ? 0 : std::exp(sinks_[head]);
      for (int j = 0; j < length; ++j) {
        if (c_.causal && j > position) continue;
        if (c_.window > 0 && position - j >= c_.window) continue;
        if (c_.chunk > 0 && j / c_.chunk != position / c_.chunk) continue;
        const std::size_t row = static_cast<std::size_t>(j) * kv_cols_ + at;
        double product = 0;
        for (std::size_t i = 0; i < d_; ++i) product += q[head * d_ + i] * keys[row + i];
        double score = product / std::sqrt(static_cast<double>(c_.head_dim));
        if (c_.softcap > 0) score = c_.softcap * std::tanh(score / c_.softcap);
        const double weight = std::exp(score);
        sum += weight;
        for (std::size_t i = 0; i < out_d_; ++i) out[head * out_d_ + i] += weight * values[row + i];
      }
      for (std::size_t i = 0; i < out_d_; ++i) out[head * out_d_ + i] /= sum;
    }
    return out;
  }

  // The batch: queries, per sequence its keys and values, and what is expected.
  void MakeBatch(DataType cache, const std::vector<Sequence>& sequences) {
    for (const Sequence& s : sequences) {
      const std::size_t count = static_cast<std::size_t>(s.length) * kv_cols_;
      keys_.push_back(Cached(count, cache, k_scales_));
      values_.push_back(c_.value_dim > 0 ? keys_.back() : Cached(count, cache, v_scales_));
      starts_.push_back(starts_.back() + s.added);
      lengths_.push_back(s.length);
      for (int i = s.length - s.added; i < s.length; ++i) {
        positions_.push_back(i);
        const std::vector<double> q = Values(q_cols_, DataType::kFloat32);
        queries_.insert(queries_.end(), q.begin(), q.end());
        const std::vector<double> row =
            Expected(q.data(), keys_.back(), values_.back(), s.length, i);
        expected_.insert(expected_.end(), row.begin(), row.end());
      }
    }
  }

  AttentionParams Params() const {
    AttentionParams params;
    params.heads = c_.heads;
    params.kv_heads = c_.kv_heads;
    params.head_dim = c_.head_dim;
    params.value_dim = c_.value_dim;
    params.scale = 1 / std::sqrt(static_cast<float>(c_.head_dim));
    params.causal = c_.causal;
    params.window = c_.window;
    params.chunk = c_.chunk;
    params.softcap = c_.softcap;
    return params;
  }

  int Index(ComputeGraph& graph, const std::vector<std::int32_t>& data, std::size_t cols = 1) {
    const auto rows = static_cast<std::int64_t>(data.size() / cols);
    return graph.add_leaf(ToDevicePtr(data.data()), {rows, static_cast<std::int64_t>(cols)},
                          DataType::kInt32);
  }

  // Each sequence's rows of `from`, its blocks anywhere in the cache; what is no row is NaN.
  std::vector<std::byte> Cache(const std::vector<std::vector<double>>& from,
                               const std::vector<float>& scales) {
    const auto slots = static_cast<std::size_t>(blocks_ * c_.block_size);
    std::vector<std::byte> cache(slots * kv_cols_ * SizeOf(c_.cache));
    for (std::size_t i = 0; i < slots * kv_cols_; ++i) {
      StoreFromDouble(cache.data(), c_.cache, static_cast<std::int64_t>(i), NAN);
    }
    for (std::size_t s = 0; s < from.size(); ++s) {
      for (int j = 0; j < lengths_[s]; ++j) {
        const int block = table_[s * table_cols_ + static_cast<std::size_t>(j / c_.block_size)];
        const auto slot = static_cast<std::size_t>(block * c_.block_size + j % c_.block_size);
        for (std::size_t i = 0; i < kv_cols_; ++i) {
          StoreFromDouble(cache.data(), c_.cache, static_cast<std::int64_t>(slot * kv_cols_ + i),
                          from[s][static_cast<std::size_t>(j) * kv_cols_ + i] /
                              (c_.cache == DataType::kFloat8_e4m3 ? scales[i / d_] : 1));
        }
      }
    }
    return cache;
  }

  void MakeTable() {
    const int longest = *std::ranges::max_element(lengths_);
    table_cols_ = static_cast<std::size_t>((longest + c_.block_size - 1) / c_.block_size);
    table_.assign(lengths_.size() * table_cols_, -1);
    int used = 0;
    for (const int length : lengths_) used += (length + c_.block_size - 1) / c_.block_size;
    blocks_ = used + 3;
    std::vector<std::int32_t> order(static_cast<std::size_t>(blocks_));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random_);
    auto next = order.begin();
    for (std::size_t s = 0; s < lengths_.size(); ++s) {
      for (int b = 0; b * c_.block_size < lengths_[s]; ++b) {
        table_[s * table_cols_ + static_cast<std::size_t>(b)] = *next++;
      }
    }
  }

  // Runs the node that `inputs` adds on both dispatches.
  template <class AddInputs>
  void Check(const AttentionParams& attention, AddInputs inputs) {
    const std::vector<float> q(queries_.begin(), queries_.end());
    const auto rows = static_cast<std::int64_t>(q.size() / q_cols_);
    auto gemm = Gemm::Create();
    ASSERT_TRUE(gemm.ok());
    const auto cpu = MakeCpuDispatch(*gemm), reference = MakeReferenceDispatch();
    for (KernelDispatch* dispatch : {cpu.get(), reference.get()}) {
      const char* const which = dispatch == cpu.get() ? "CPU" : "reference";
      constexpr std::size_t kGuard = 64;
      const std::size_t count = static_cast<std::size_t>(rows) * out_cols_;
      std::vector<float> out(count + kGuard, -7);
      ComputeGraph graph;
      OpParams params;
      params.attention = attention;
      std::vector<std::byte> sinks(sinks_.size() * sizeof(float));
      if (c_.sinks != DataType::kNull) {
        params.sinks.data_ptr = ToDevicePtr(sinks.data());
        params.sinks.type = c_.sinks;
        params.sinks.rows = 1;
        params.sinks.cols = c_.heads;
        for (int h = 0; h < c_.heads; ++h) {
          StoreFromDouble(sinks.data(), c_.sinks, h, sinks_[static_cast<std::size_t>(h)]);
        }
      }
      const Shape shape{rows, static_cast<std::int64_t>(out_cols_)};
      std::vector<int> all = {
          graph.add_leaf(ToDevicePtr(q.data()), {rows, static_cast<std::int64_t>(q_cols_)})};
      for (const int input : inputs(graph)) all.push_back(input);
      graph.add_op(TensorOp::kAttention, ToDevicePtr(out.data()), shape, all, params);
      const auto result = execute_graph(graph, *dispatch);
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
        double error = 0, norm = 0;
        for (std::size_t i = row * out_cols_; i < (row + 1) * out_cols_; ++i) {
          error += std::pow(out[i] - expected_[i], 2);
          norm += std::pow(expected_[i], 2);
        }
        EXPECT_LE(std::sqrt(error / norm), 1e-6) << which << ", row " << row;
      }
      for (std::size_t i = count; i < out.size(); ++i) ASSERT_EQ(out[i], -7) << which;
    }
  }

  // Exact in 16 bits; the first is far below, one far above the scores.
  std::vector<double> sinks_ = {-60, 0.5, 2.25, -1, 0, 30, 1.5, 3};
  std::vector<float> k_scales_ = {0.3f, 1.7f, 0.02f}, v_scales_ = {0.1f, 5, 1.3f};
  std::vector<std::vector<double>> keys_, values_;  // one a sequence: (length, kv_cols)
  std::vector<double> queries_, expected_;
  std::vector<std::int32_t> starts_ = {0}, lengths_, positions_, table_;
  std::size_t table_cols_ = 0;
  int blocks_ = 0;
};

TEST_P(Attention, PagedCaches) {
  MakeBatch(c_.cache, c_.sequences);
  MakeTable();
  const std::vector<std::byte> k = Cache(keys_, k_scales_), v = Cache(values_, v_scales_);
  AttentionParams params = Params();
  params.block_size = c_.block_size;
  Check(params, [&](ComputeGraph& graph) {
    const Shape cache{std::int64_t{blocks_} * c_.block_size, static_cast<std::int64_t>(kv_cols_)};
    std::vector<int> inputs = {graph.add_leaf(ToDevicePtr(k.data()), cache, c_.cache),
                               graph.add_leaf(ToDevicePtr(v.data()), cache, c_.cache),
                               Index(graph, starts_),
                               Index(graph, positions_),
                               Index(graph, lengths_),
                               Index(graph, table_, table_cols_)};
    if (c_.value_dim > 0) inputs[1] = inputs[0];
    for (const std::vector<float>* scales : {&k_scales_, &v_scales_}) {
      if (c_.cache != DataType::kFloat8_e4m3) break;
      inputs.push_back(graph.add_leaf(ToDevicePtr(scales->data()), {1, c_.kv_heads}));
    }
    return inputs;
  });
}

// Keys and values are the batch's own rows; of several sequences, or of one without q_starts.
TEST_P(Attention, RowsOfTheBatch) {
  for (const bool one : {false, true}) {
    queries_.clear(), expected_.clear(), keys_.clear(), values_.clear(), starts_ = {0};
    MakeBatch(DataType::kFloat32, one ? std::vector<Sequence>{{71, 71}}
                                      : std::vector<Sequence>{{9, 9}, {1, 1}, {67, 67}});
    std::vector<float> k, v;
    for (const auto& rows : keys_) k.insert(k.end(), rows.begin(), rows.end());
    for (const auto& rows : values_) v.insert(v.end(), rows.begin(), rows.end());
    Check(Params(), [&](ComputeGraph& graph) {
      const Shape shape{starts_.back(), static_cast<std::int64_t>(kv_cols_)};
      std::vector<int> inputs = {graph.add_leaf(ToDevicePtr(k.data()), shape),
                                 graph.add_leaf(ToDevicePtr(v.data()), shape)};
      if (c_.value_dim > 0) inputs[1] = inputs[0];
      if (!one) inputs.push_back(Index(graph, starts_));
      return inputs;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(All, Attention, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace culet
