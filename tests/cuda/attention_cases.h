// Attention of the CUDA dispatch against the reference: ragged batches over a paged cache, single
// rows whose keys are split, and the batch's own keys.
#pragma once

#include "attention_batch.h"

namespace culet {

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
    {9, 3, 7, 3, true, DataType::kBfloat16},
    {16, 4, 128, 0, true, DataType::kFloat8_e4m3},
    {6, 3, 24, 37, true, DataType::kFloat8_e4m3, DataType::kBfloat16},
    {5, 1, 20, 0, false, DataType::kFloat8_e4m3}};

// One sequence decodes after 131 keys, one is a prompt of 40 tokens, one adds 7 tokens to 70, one
// has one key; two rows are padding.
TEST_F(CudaAttention, RaggedBatch) {
  for (const AttentionCase& c : kAttentionCases) {
    Build(c, {.lengths = {131, 40, 77, 1}, .tokens = {1, 40, 7, 1}, .padding = 2});
    ExpectReference(Graph(), NameOf(c));
  }
}

// What changes the scores of a head, or the keys that it sees, by lanes of FP32.
TEST_F(CudaAttention, SinksCapsAndChunks) {
  for (AttentionCase c : kAttentionCases) {
    if (!c.causal) continue;
    for (int what = 0; what < 4; ++what) {
      c.sinks = what == 0 || what == 3 ? kStored[c.heads % 3] : DataType::kNull;
      c.softcap = what == 1 || what == 3 ? 0.8f : 0;
      c.chunk = what >= 2 ? 24 : 0;
      const std::string name = NameOf(c) + ", case " + std::to_string(what);
      Build(c, {.lengths = {131, 40, 77, 1}, .tokens = {1, 40, 7, 1}, .padding = 2});
      ExpectReference(Graph(), name);
      Build(c, {.lengths = {317}, .tokens = {1}});
      ExpectReference(Graph(), name + ", one row");
    }
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
