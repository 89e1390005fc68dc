// Attention of the CUDA dispatch against the reference: ragged batches over a paged cache, single
// rows whose keys are split, and the batch's own keys.
#pragma once

#include "cases.h"

namespace culet {

struct AttentionCase {
  int heads, kv_heads, head_dim;
  int window = 0;
  bool causal = true;
  DataType cache = DataType::kFloat32;
  DataType value = DataType::kFloat32;
};

// Every head size of real models, some of none; groups from 1 to 40; all types.
constexpr AttentionCase kAttentionCases[] = {
    {16, 8, 128, 0, true, DataType::kBfloat16},
    {4, 4, 24, 0, true, DataType::kFloat32},
    {6, 2, 80, 37, true, DataType::kFloat16},
    {40, 1, 64, 0, true, DataType::kFloat32},
    {5, 1, 20, 0, false, DataType::kBfloat16},
    {8, 1, 96, 0, true, DataType::kBfloat16, DataType::kBfloat16},
    {16, 1, 128, 100, true, DataType::kFloat16},
    {4, 1, 256, 0, true, DataType::kBfloat16},
    {7, 1, 256, 0, true, DataType::kFloat32, DataType::kBfloat16},
    {9, 3, 7, 3, true, DataType::kBfloat16}};

/// A batch over a paged cache whose blocks are shuffled.
struct PagedBatch {
  static constexpr int kBlock = 8;
  std::vector<std::int32_t> lengths;  // of keys, one a sequence
  std::vector<std::int32_t> tokens;   // new ones, at the ends of the sequences
  int padding = 0;                    // rows that belong to no sequence
  int table_cols = 40;
};

class CudaAttention : public CudaGraphs {
 protected:
  void Build(const AttentionCase& c, const PagedBatch& batch) {
    const std::int64_t kv_cols = c.kv_heads * c.head_dim;
    std::vector<std::int32_t> starts = {0}, positions, table;
    int blocks = 3;  // that nobody uses
    for (std::size_t s = 0; s < batch.lengths.size(); ++s) {
      for (std::int32_t i = 0; i < batch.tokens[s]; ++i) {
        positions.push_back(batch.lengths[s] - batch.tokens[s] + i);
      }
      starts.push_back(static_cast<std::int32_t>(positions.size()));
      blocks += (batch.lengths[s] + PagedBatch::kBlock - 1) / PagedBatch::kBlock;
    }
    positions.resize(positions.size() + static_cast<std::size_t>(batch.padding), 0);
    const std::int64_t rows = static_cast<std::int64_t>(positions.size());
    const std::int64_t slots = std::int64_t{blocks} * PagedBatch::kBlock;
    table.assign(batch.lengths.size() * static_cast<std::size_t>(batch.table_cols), -1);
    q_ = Matrix(c.value, rows, c.heads * c.head_dim, 21);
    // What no row may see is NaN.
    const std::vector<float> nan(static_cast<std::size_t>(slots * kv_cols), kNaN);
    k_ = v_ = Matrix(c.cache, slots, kv_cols, nan);
    const std::vector<float> keys = Normal(slots * kv_cols, 22),
                             values = Normal(slots * kv_cols, 23);
    int next = 0;
    for (std::size_t s = 0; s < batch.lengths.size(); ++s) {
      for (std::int32_t j = 0; j < batch.lengths[s]; ++j) {
        std::int32_t& block = table[s * static_cast<std::size_t>(batch.table_cols) +
                                    static_cast<std::size_t>(j / PagedBatch::kBlock)];
        if (block < 0) block = static_cast<std::int32_t>((next++ * std::int64_t{29} + 2) % blocks);
        for (std::int64_t i = 0; i < kv_cols; ++i) {
          const std::int64_t at =
              (block * PagedBatch::kBlock + j % PagedBatch::kBlock) * kv_cols + i;
          k_.Set(at, keys[static_cast<std::size_t>(at)]);
          v_.Set(at, values[static_cast<std::size_t>(at)]);
        }
      }
    }
    starts_ = Indices(starts);
    positions_ = Indices(positions);
    lengths_ = Indices(batch.lengths);
    table_ = Matrix(static_cast<std::int64_t>(batch.lengths.size()), batch.table_cols, table);
    params_.attention = {.heads = c.heads,
                         .kv_heads = c.kv_heads,
                         .head_dim = c.head_dim,
                         .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
                         .causal = c.causal,
                         .window = c.window,
                         .block_size = PagedBatch::kBlock};
    type_ = c.value;
  }

  ComputeGraph Graph() const {
    ComputeGraph graph;
    std::vector<int> inputs;
    for (const Matrix* input : {&q_, &k_, &v_, &starts_, &positions_, &lengths_, &table_}) {
      inputs.push_back(input->AsLeaf(graph));
    }
    graph.add_op(TensorOp::kAttention, 0, {q_.rows, q_.cols}, inputs, params_, "", type_);
    return graph;
  }

  static std::string NameOf(const AttentionCase& c) {
    return std::to_string(c.heads) + " heads, " + std::to_string(c.kv_heads) + " of keys, of " +
           std::to_string(c.head_dim) + ", " + ToString(c.cache);
  }

  Matrix q_ = Indices({0}), k_ = q_, v_ = q_, starts_ = q_, positions_ = q_, lengths_ = q_,
         table_ = q_;
  OpParams params_;
  DataType type_ = DataType::kFloat32;
};

// One sequence decodes after 131 keys, one is a prompt of 40 tokens, one adds 7 tokens to 70, one
// has one key; two rows are padding.
TEST_F(CudaAttention, RaggedBatch) {
  for (const AttentionCase& c : kAttentionCases) {
    Build(c, {.lengths = {131, 40, 77, 1}, .tokens = {1, 40, 7, 1}, .padding = 2});
    ExpectReference(Graph(), NameOf(c));
  }
}

// A row alone: its keys are split, its splits merged.
TEST_F(CudaAttention, OneRow) {
  for (const AttentionCase& c : kAttentionCases) {
    for (const std::int32_t length : {1, 31, 32, 33, 200, 317}) {
      Build(c, {.lengths = {length}, .tokens = {1}});
      ExpectReference(Graph(), NameOf(c) + ", " + std::to_string(length) + " keys");
    }
  }
}

TEST_F(CudaAttention, TwoRunsGiveTheSameBits) {
  Build(kAttentionCases[0], {.lengths = {317}, .tokens = {1}});
  GraphCopy copy(Graph(), test_.dispatch->memory());
  const auto first = copy.Run(*test_.dispatch);
  EXPECT_EQ(copy.Run(*test_.dispatch), first);
}

// A block that is not in the cache spoils the rows that see it and no other.
TEST_F(CudaAttention, MissingBlockIsNaN) {
  for (const bool alone : {false, true}) {
    for (const double block : {-1.0, 1e6}) {
      const AttentionCase& c = kAttentionCases[0];
      Build(c, alone ? PagedBatch{.lengths = {200}, .tokens = {1}}
                     : PagedBatch{.lengths = {131, 40}, .tokens = {1, 40}});
      const auto missing = static_cast<std::int32_t>(block);
      const int at = alone ? 20 : 40 + 2;
      std::memcpy(table_.bytes.data() + at * 4, &missing, 4);
      ExpectReference(Graph(), "block " + std::to_string(missing));
    }
  }
}

// Lengths, starts and positions that fit nothing.
TEST_F(CudaAttention, WildInputs) {
  const AttentionCase& c = kAttentionCases[2];
  const auto set = [](Matrix& matrix, int at, std::int32_t value) {
    std::memcpy(matrix.bytes.data() + at * 4, &value, 4);
  };
  for (int what = 0; what < 6; ++what) {
    Build(c, {.lengths = {50, 20, 9}, .tokens = {3, 4, 1}, .padding = 1});
    if (what == 0) set(lengths_, 0, 0);
    if (what == 1) set(lengths_, 1, -5), set(lengths_, 0, 30);
    if (what == 2) set(starts_, 0, 2);
    if (what == 3) set(positions_, 1, -1);
    if (what == 4) set(starts_, 3, kFar);
    if (what == 5) set(positions_, 3, 7);
    ExpectReference(Graph(), "wild input " + std::to_string(what));
  }
}

// Scores that overflow without their maximum, keys that weigh nothing, and NaN.
TEST_F(CudaAttention, ScoresOfAnySize) {
  const AttentionCase c{.heads = 4, .kv_heads = 2, .head_dim = 64};
  Build(c, {.lengths = {60, 30}, .tokens = {1, 2}});
  for (std::int64_t i = 0; i < 64; ++i) q_.Set(i, 300), q_.Set(256 + i, -300);
  q_.Set(2 * 256 + 70, kNaN);
  ExpectReference(Graph(), "large scores", 1e-5);
}

// Without a cache: the batch's own rows, as one sequence or as several.
TEST_F(CudaAttention, TheBatchsOwnKeys) {
  for (const DataType type : kValues) {
    for (const bool several : {false, true}) {
      const Matrix q(type, 37, 6 * 32, 24), k(type, 37, 2 * 32, 25), v(type, 37, 2 * 32, 26);
      const Matrix starts = Indices({0, 5, 5, 36});
      ComputeGraph graph;
      std::vector<int> inputs = {q.AsLeaf(graph), k.AsLeaf(graph), v.AsLeaf(graph)};
      if (several) inputs.push_back(starts.AsLeaf(graph));
      OpParams params;
      params.attention = {.heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.2f};
      graph.add_op(TensorOp::kAttention, 0, {37, 6 * 32}, inputs, params, "", type);
      ExpectReference(graph, several ? "several" : "one");
    }
  }
}

}  // namespace culet
