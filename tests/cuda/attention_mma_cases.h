// Attention on tensor cores, over caches of 16 bits, against the reference in double.
#pragma once

#include <algorithm>

#include "attention_mma_fixture.h"

namespace culet {

// As ragged as it gets: prompts with and without a past, single rows, a sequence without rows,
// padding.
inline PagedBatch Ragged() {
  return {.lengths = {131, 40, 77, 1, 9, 300},
          .tokens = {1, 40, 37, 1, 0, 1},
          .padding = 3,
          .table_cols = 20,
          .block = 16};
}

constexpr AttentionCase kBfloat16Case{8, 2, 128, 0, true, DataType::kBfloat16, DataType::kBfloat16};

constexpr AttentionCase kMmaCases[] = {
    {8, 2, 128, 0, true, DataType::kBfloat16},
    {4, 4, 64, 0, true, DataType::kFloat16},
    {6, 2, 80, 37, true, DataType::kBfloat16},
    {10, 2, 96, 0, true, DataType::kFloat16, DataType::kBfloat16},
    {7, 1, 256, 0, true, DataType::kBfloat16, DataType::kBfloat16},
    {2, 1, 256, 20, true, DataType::kFloat16},
    {16, 1, 128, 100, true, DataType::kFloat16},
    {16, 2, 64, 0, false, DataType::kBfloat16},
    {40, 1, 40, 0, true, DataType::kBfloat16},
    {9, 3, 8, 3, true, DataType::kFloat16},
    {8, 2, 128, 0, true, DataType::kFloat8_e4m3},
    {6, 2, 80, 37, true, DataType::kFloat8_e4m3, DataType::kBfloat16},
    {10, 5, 96, 0, true, DataType::kFloat8_e4m3},
    {6, 3, 256, 100, true, DataType::kFloat8_e4m3, DataType::kBfloat16},
    {40, 1, 48, 0, false, DataType::kFloat8_e4m3},
    {8, 8, 64, 0, true, DataType::kFloat8_e4m3},
    {4, 2, 16, 5, true, DataType::kFloat8_e4m3},
    // Rows of its heads are no whole pieces of 16 bytes.
    {4, 2, 24, 0, true, DataType::kFloat8_e4m3}};

TEST_F(CudaAttentionMma, RaggedBatch) {
  for (const AttentionCase& c : kMmaCases) Expect(c, Ragged(), "ragged");
}

// Prompts whose ends lie around the ends of tiles, alone and behind keys.
TEST_F(CudaAttentionMma, PromptsOfAnyLength) {
  for (const AttentionCase& c : {kBfloat16Case, kMmaCases[1], kMmaCases[2]}) {
    for (const std::int32_t tokens : {2, 15, 16, 17, 63, 64, 65, 127, 128, 129}) {
      Expect(c, {.lengths = {tokens}, .tokens = {tokens}, .table_cols = 9, .block = 16},
             std::to_string(tokens) + " tokens");
    }
    for (const std::int32_t tokens : {2, 33}) {
      Expect(c, {.lengths = {tokens + 75}, .tokens = {tokens}, .table_cols = 14},
             std::to_string(tokens) + " tokens behind 75");
    }
  }
}

// Few rows see many keys, so that splits of the keys are merged: single rows, of one sequence and
// of several, and a short prompt.
TEST_F(CudaAttentionMma, ManyKeys) {
  for (const AttentionCase& c : {kBfloat16Case, kMmaCases[6], kMmaCases[4]}) {
    for (const std::int32_t length : {1, 15, 16, 17, 63, 64, 65, 129, 700, 3001}) {
      Expect(c, {.lengths = {length}, .tokens = {1}, .table_cols = 200, .block = 16},
             std::to_string(length) + " keys");
    }
    Expect(c, {.lengths = {900, 5, 2500}, .tokens = {1, 1, 1}, .table_cols = 160, .block = 16},
           "three rows");
    Expect(c, {.lengths = {2100}, .tokens = {5}, .table_cols = 140, .block = 16}, "five rows");
    Expect(c, {.lengths = {1100, 1500}, .tokens = {1, 3}, .table_cols = 100, .block = 16},
           "a row and three");
  }
}

// What changes the scores of a head, or the keys that it sees: single rows, prompts, splits.
TEST_F(CudaAttentionMma, SinksCapsAndChunks) {
  for (AttentionCase c : kMmaCases) {
    if (!c.causal) continue;
    for (int what = 0; what < 4; ++what) {
      c.sinks = what == 0 || what == 3 ? kStored[c.heads % 3] : DataType::kNull;
      c.softcap = what == 1 || what == 3 ? 2.0f : 0;
      c.chunk = what >= 2 ? 90 : 0;
      const std::string name = "case " + std::to_string(what);
      Expect(c, Ragged(), name);
      Expect(c, {.lengths = {900, 5}, .tokens = {1, 1}, .table_cols = 60, .block = 16},
             name + ", rows");
      Expect(c, {.lengths = {1300}, .tokens = {4}, .table_cols = 90, .block = 16},
             name + ", four rows");
    }
  }
}

// The batches of one graph differ in content alone: rows of a graph for single tokens may belong to
// one sequence, a prompt's graph may hold single rows.
TEST_F(CudaAttentionMma, OneGraphServesEveryMix) {
  Expect(kBfloat16Case, {.lengths = {30, 50, 4}, .tokens = {0, 3, 0}}, "one of three sequences");
  Expect(kBfloat16Case, {.lengths = {30, 50, 4}, .tokens = {0, 2, 1}}, "two and one");
  Expect(kBfloat16Case, {.lengths = {30}, .tokens = {1}, .padding = 20}, "one row and padding");
  Expect(kBfloat16Case, {.lengths = {30, 8}, .tokens = {1, 1}, .padding = 70}, "two and padding");
  Expect(kBfloat16Case, {.lengths = {3, 8}, .tokens = {0, 0}, .padding = 5}, "padding alone");
}

TEST_F(CudaAttentionMma, TwoRunsGiveTheSameBits) {
  for (const PagedBatch& batch :
       {PagedBatch{.lengths = {317}, .tokens = {1}}, PagedBatch{.lengths = {300}, .tokens = {9}}}) {
    Build(kBfloat16Case, batch);
    GraphCopy copy(Graph(), test_.dispatch->memory());
    const auto first = copy.Run(*test_.dispatch);
    EXPECT_EQ(copy.Run(*test_.dispatch), first);
  }
}

// A block that is not in the cache spoils the rows that see it and no other.
TEST_F(CudaAttentionMma, MissingBlockIsNaN) {
  struct Missing {
    PagedBatch batch;
    int at;
  };
  for (const double block : {-1.0, 1e6}) {
    for (const Missing& c : {Missing{{.lengths = {200}, .tokens = {1}}, 20},
                             Missing{{.lengths = {131, 60}, .tokens = {1, 60}}, 40 + 5},
                             Missing{{.lengths = {131, 60}, .tokens = {1, 60}}, 3},
                             Missing{{.lengths = {1000}, .tokens = {3}, .table_cols = 130}, 124}}) {
      Build(kBfloat16Case, c.batch);
      const auto missing = static_cast<std::int32_t>(block);
      std::memcpy(table_.bytes.data() + c.at * 4, &missing, 4);
      ExpectReference(Graph(), "block " + std::to_string(missing), BoundOf(kBfloat16Case));
    }
  }
}

// A NaN or an infinity of the cache reaches the rows that see it and no other, though their
// neighbours are computed with them.
TEST_F(CudaAttentionMma, NaNReachesThoseWhoSeeIt) {
  for (const bool of_keys : {true, false}) {
    for (const float value : {kNaN, kInfinity}) {
      if (of_keys && value == kInfinity) continue;  // the reference's maximum is infinite, too
      for (const int window : {0, 20}) {
        AttentionCase c = kBfloat16Case;
        c.window = window;
        Build(c, {.lengths = {50, 90, 70}, .tokens = {1, 90, 20}});
        // Key 45 of the second and key 60 of the third sequence.
        for (const int at : {40 + 45 / 8, 80 + 60 / 8}) {
          std::int32_t block = 0;
          std::memcpy(&block, table_.bytes.data() + at * 4, 4);
          const std::int64_t row = std::int64_t{block} * 8 + (at < 80 ? 45 % 8 : 60 % 8);
          (of_keys ? k_ : v_).Set(row * 2 * 128 + 128 + 77, value);
        }
        ExpectReference(Graph(), of_keys ? "of a key" : "of a value", BoundOf(c));
      }
    }
  }
}

TEST_F(CudaAttentionMma, WildInputs) {
  const AttentionCase& c = kMmaCases[2];
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
    ExpectReference(Graph(), "wild input " + std::to_string(what), BoundOf(c));
  }
  // Sequences of one row, as far as the batch goes.
  for (int what = 0; what < 3; ++what) {
    Build(c, {.lengths = {50, 20, 9}, .tokens = {1, 4, 1}});
    if (what != 1) set(starts_, 0, -3);
    if (what != 0) set(starts_, 3, kFar);
    ExpectReference(Graph(), "wild ends " + std::to_string(what), BoundOf(c));
  }
}

// Scores that overflow without their maximum, keys that weigh nothing, and NaN.
TEST_F(CudaAttentionMma, ScoresOfAnySize) {
  for (const std::int32_t tokens : {1, 2}) {
    const AttentionCase c{4, 2, 64, 0, true, DataType::kBfloat16, DataType::kBfloat16};
    Build(c, {.lengths = {60, 30}, .tokens = {1, tokens}});
    for (std::int64_t i = 0; i < 64; ++i) q_.Set(i, 300), q_.Set(256 + i, -300);
    q_.Set(tokens * 256 + 70, kNaN);
    ExpectReference(Graph(), "large scores", BoundOf(c));
  }
}

// Without a cache: the batch's own rows, as one sequence or as several.
TEST_F(CudaAttentionMma, TheBatchsOwnKeys) {
  for (const bool several : {false, true}) {
    const DataType type = DataType::kBfloat16;
    const Matrix q(type, 37, 6 * 32, 24), k(type, 37, 2 * 32, 25), v(type, 37, 2 * 32, 26);
    const Matrix starts = Indices({0, 5, 5, 36});
    ComputeGraph graph;
    std::vector<int> inputs = {q.AsLeaf(graph), k.AsLeaf(graph), v.AsLeaf(graph)};
    if (several) inputs.push_back(starts.AsLeaf(graph));
    OpParams params;
    params.attention = {.heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.2f};
    graph.add_op(TensorOp::kAttention, 0, {37, 6 * 32}, inputs, params, "", type);
    ExpectReference(graph, several ? "several" : "one", 6e-3);
  }
}

// Starts before the first row and behind the last one are theirs.
TEST_F(CudaAttentionMma, WildStartsOfTheBatchsOwnKeys) {
  for (const DataType cache : {DataType::kBfloat16, DataType::kFloat32}) {
    for (const bool alone : {false, true}) {
      const std::int64_t rows = alone ? 3 : 37;
      const Matrix q(DataType::kBfloat16, rows, 6 * 32, 24);
      const Matrix k(cache, rows, 2 * 32, 25), v(cache, rows, 2 * 32, 26);
      const Matrix starts = alone ? Indices({-4, 1, 2, kFar}) : Indices({-4, 9, 9, kFar});
      ComputeGraph graph;
      const std::vector<int> inputs = {q.AsLeaf(graph), k.AsLeaf(graph), v.AsLeaf(graph),
                                       starts.AsLeaf(graph)};
      OpParams params;
      params.attention = {.heads = 6, .kv_heads = 2, .head_dim = 32, .scale = 0.2f};
      graph.add_op(TensorOp::kAttention, 0, {rows, 6 * 32}, inputs, params, "",
                   DataType::kBfloat16);
      ExpectReference(graph, alone ? "rows alone" : "rows together", 6e-3);
    }
  }
}

}  // namespace culet
