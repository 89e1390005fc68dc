// Attention on tensor cores over caches of E4M3 with a scale a head, against the reference in
// double; the writes to such caches, and both in one launch.
#pragma once

#include "attention_mma_fixture.h"

namespace culet {

constexpr AttentionCase kCodesCase{8, 2, 128, 0, true, DataType::kFloat8_e4m3, DataType::kBfloat16};
constexpr AttentionCase kMoreCodes[] = {
    kCodesCase,
    {4, 4, 64, 0, true, DataType::kFloat8_e4m3},
    {6, 2, 80, 37, true, DataType::kFloat8_e4m3, DataType::kBfloat16},
    {7, 1, 256, 0, true, DataType::kFloat8_e4m3}};

// Prompts whose ends lie around the ends of tiles, alone and behind keys.
TEST_F(CudaAttentionMma, CodesOfPromptsOfAnyLength) {
  for (const AttentionCase& c : kMoreCodes) {
    for (const std::int32_t tokens : {2, 16, 17, 63, 65, 129}) {
      Expect(c, {.lengths = {tokens}, .tokens = {tokens}, .table_cols = 9, .block = 16},
             std::to_string(tokens) + " tokens");
    }
    Expect(c, {.lengths = {108}, .tokens = {33}, .table_cols = 14}, "33 tokens behind 75");
  }
}

// Prompts of many tiles, whose kernel on Hopper is another one.
TEST_F(CudaAttentionMma, CodesOfPromptsOfSeveralTiles) {
  constexpr AttentionCase kCases[] = {
      {4, 1, 128, 0, true, DataType::kFloat8_e4m3, DataType::kBfloat16},
      {2, 2, 64, 150, true, DataType::kFloat8_e4m3},
      {5, 1, 80, 0, true, DataType::kFloat8_e4m3},
      {2, 1, 96, 70, true, DataType::kFloat8_e4m3},
      {2, 1, 256, 90, true, DataType::kFloat8_e4m3, DataType::kBfloat16}};
  for (const AttentionCase& c : kCases) {
    Expect(c, {.lengths = {333}, .tokens = {333}, .table_cols = 24, .block = 16}, "333 tokens");
    Expect(c,
           {.lengths = {290, 5, 140, 61},
            .tokens = {129, 5, 1, 60},
            .padding = 3,
            .table_cols = 20,
            .block = 16},
           "several sequences");
  }
  for (const int block : {1, 8, 24, 64, 192}) {
    Expect(
        kCases[0],
        {.lengths = {201, 150}, .tokens = {201, 40}, .table_cols = 210 / block + 2, .block = block},
        "blocks of " + std::to_string(block));
  }
  Expect(kCases[0], {.lengths = {2640}, .tokens = {40}, .table_cols = 168, .block = 16},
         "40 tokens behind 2600");
}

// Few rows see many keys: splits of the keys are merged.
TEST_F(CudaAttentionMma, ManyCodes) {
  for (const AttentionCase& c : kMoreCodes) {
    for (const std::int32_t length : {1, 15, 16, 17, 65, 700, 3001}) {
      Expect(c, {.lengths = {length}, .tokens = {1}, .table_cols = 200, .block = 16},
             std::to_string(length) + " keys");
    }
    Expect(c, {.lengths = {900, 5, 2500}, .tokens = {1, 1, 1}, .table_cols = 160, .block = 16},
           "three rows");
    Expect(c, {.lengths = {2100}, .tokens = {5}, .table_cols = 140, .block = 16}, "five rows");
  }
}

TEST_F(CudaAttentionMma, CodesGiveTheSameBitsTwice) {
  for (const PagedBatch& batch :
       {PagedBatch{.lengths = {317}, .tokens = {1}}, PagedBatch{.lengths = {300}, .tokens = {9}}}) {
    Build(kCodesCase, batch);
    GraphCopy copy(Graph(), test_.dispatch->memory());
    const auto first = copy.Run(*test_.dispatch);
    EXPECT_EQ(copy.Run(*test_.dispatch), first);
  }
}

// A block that is not in the cache spoils the rows that see it and no other.
TEST_F(CudaAttentionMma, MissingBlockOfCodesIsNaN) {
  for (const int alone : {0, 1}) {
    Build(kCodesCase, alone != 0 ? PagedBatch{.lengths = {200}, .tokens = {1}}
                                 : PagedBatch{.lengths = {131, 60}, .tokens = {1, 60}});
    const std::int32_t missing = -1;
    std::memcpy(table_.bytes.data() + (alone != 0 ? 20 : 40 + 5) * 4, &missing, 4);
    ExpectReference(Graph(), "a missing block", BoundOf(kCodesCase));
  }
  for (const int at : {0, 5, 17, 18}) {
    Build(kCodesCase, {.lengths = {300}, .tokens = {300}, .table_cols = 19, .block = 16});
    const std::int32_t missing = 1000000;
    std::memcpy(table_.bytes.data() + at * 4, &missing, 4);
    ExpectReference(Graph(), "block " + std::to_string(at), BoundOf(kCodesCase));
  }
}

// A NaN of the cache reaches the rows that see it and no other.
TEST_F(CudaAttentionMma, NaNAmongCodesReachesThoseWhoSeeIt) {
  for (const bool of_keys : {true, false}) {
    for (const int window : {0, 20}) {
      AttentionCase c = kCodesCase;
      c.window = window;
      Build(c, {.lengths = {50, 90, 70}, .tokens = {1, 90, 20}});
      for (const int at : {40 + 45 / 8, 80 + 60 / 8}) {
        std::int32_t block = 0;
        std::memcpy(&block, table_.bytes.data() + at * 4, 4);
        const std::int64_t row = std::int64_t{block} * 8 + (at < 80 ? 45 % 8 : 60 % 8);
        (of_keys ? k_ : v_).Set(row * 2 * 128 + 128 + 77, kNaN);
      }
      ExpectReference(Graph(), of_keys ? "of a key" : "of a value", BoundOf(c));
    }
  }
}

// All codes that there are, of either sign, with scales far from 1.
TEST_F(CudaAttentionMma, EveryCodeAndEveryScale) {
  for (const int head_dim : {64, 96, 128, 256}) {
    for (const std::int32_t tokens : {1, 3}) {
      const AttentionCase c{2, 2, head_dim, 0, true, DataType::kFloat8_e4m3};
      Build(c, {.lengths = {70}, .tokens = {tokens}});
      for (std::size_t i = 0; i < v_.bytes.size(); ++i) {
        const auto code = static_cast<unsigned>((i * 37 + i / 61) % 256);
        v_.bytes[i] = std::byte((code & 0x7f) == 0x7f ? 0 : code);
      }
      // Scores that are three times as large have three times the error.
      k_scales_.Set(0, 1e-4), k_scales_.Set(1, 3), v_scales_.Set(0, 2e4), v_scales_.Set(1, 3e3);
      ExpectReference(Graph(), std::to_string(head_dim), 5 * BoundOf(c));
    }
  }
}

// Values between codes, at ties, beyond the largest code, too small for the least, and no numbers;
// slots that do not exist.
TEST_F(CudaAttentionMma, WritesOfCodes) {
  const Matrix slots = Indices({3, -1, 5, 6, kFar, -kFar - 1, 0});
  for (const DataType value : kValues) {
    for (const int heads : {1, 3}) {
      for (const std::int64_t size : {1, 7, 16, 128}) {
        const std::int64_t cols = heads * size;
        Matrix rows(value, 7, cols, 6);
        const float special[] = {kNaN, kInfinity, -kInfinity, 1e30f, -1e5f, 1e-30f, 0.0625f * 1.1f};
        for (std::int64_t i = 0; i < std::min<std::int64_t>(7, cols); ++i) {
          rows.Set(i, special[i]);
          rows.Set(2 * cols + i, 1.0625f + 0.125f * static_cast<float>(i));
        }
        const Matrix cache(DataType::kFloat8_e4m3, 6, cols, 7);
        const Matrix scales(DataType::kFloat32, 1, heads, {1.0f, 0.0078125f, 0.3f});
        ComputeGraph graph;
        const int to = cache.AsLeaf(graph), from = rows.AsLeaf(graph);
        const int at = slots.AsLeaf(graph), of = scales.AsLeaf(graph);
        graph.add_op(TensorOp::kKvWrite, 0, {6, cols}, {to, from, at, of}, {}, "",
                     DataType::kFloat8_e4m3);
        ExpectReference(graph, "kv_write", 1e-30);
      }
    }
  }
}

}  // namespace culet
