// Attention of prompts that are many tiles of queries and of keys, over blocks of any size. What
// has tensor cores of Hopper takes another kernel for them than the rest.
#pragma once

#include <algorithm>

#include "attention_mma_fixture.h"

namespace culet {

using CudaPromptAttention = CudaAttentionMma;

constexpr AttentionCase kPromptCases[] = {
    {4, 1, 128, 0, true, DataType::kBfloat16, DataType::kBfloat16},
    {3, 1, 128, 100, true, DataType::kBfloat16},
    {4, 2, 64, 0, true, DataType::kFloat16},
    {2, 2, 64, 150, true, DataType::kBfloat16, DataType::kBfloat16},
    {5, 1, 80, 0, true, DataType::kFloat16},
    {2, 1, 96, 70, true, DataType::kBfloat16},
    {2, 1, 256, 0, true, DataType::kBfloat16, DataType::kBfloat16},
    {2, 1, 256, 90, true, DataType::kFloat16},
    {2, 1, 24, 0, true, DataType::kBfloat16}};

TEST_F(CudaPromptAttention, PromptsOfSeveralTiles) {
  for (const AttentionCase& c : kPromptCases) {
    Expect(c, {.lengths = {333}, .tokens = {333}, .table_cols = 24, .block = 16}, "333 tokens");
    Expect(c,
           {.lengths = {290, 5, 140, 61},
            .tokens = {129, 5, 1, 60},
            .padding = 3,
            .table_cols = 20,
            .block = 16},
           "several sequences");
  }
}

TEST_F(CudaPromptAttention, BlocksOfAnySize) {
  for (const AttentionCase& c : {kPromptCases[0], kPromptCases[3]}) {
    for (const int block : {1, 8, 24, 32, 64, 100, 128, 192}) {
      Expect(c,
             {.lengths = {201, 150},
              .tokens = {201, 40},
              .table_cols = 210 / block + 2,
              .block = block},
             "blocks of " + std::to_string(block));
    }
  }
}

// Blocks of keys that several blocks of the GPU share.
TEST_F(CudaPromptAttention, ManyKeysBehindAPrompt) {
  for (const AttentionCase& c : {kPromptCases[0], kPromptCases[1], kPromptCases[2]}) {
    for (const int block : {16, 64}) {
      for (const std::int32_t tokens : {3, 40}) {
        Expect(c,
               {.lengths = {2600 + tokens},
                .tokens = {tokens},
                .table_cols = 2700 / block,
                .block = block},
               std::to_string(tokens) + " tokens behind 2600");
      }
    }
  }
}

// What is not finite in a value reaches the rows that see it, whether its tile has keys that some
// rows do not see or not.
TEST_F(CudaPromptAttention, NaNReachesThoseWhoSeeIt) {
  for (const int window : {0, 60}) {
    for (const float value : {kNaN, kInfinity}) {
      AttentionCase c = kPromptCases[0];
      c.window = window;
      Build(c, {.lengths = {300}, .tokens = {300}, .table_cols = 40});
      for (const int key : {45, 170, 291}) {
        std::int32_t block = 0;
        std::memcpy(&block, table_.bytes.data() + key / 8 * 4, 4);
        v_.Set((std::int64_t{block} * 8 + key % 8) * 128 + key % 128, value);
      }
      ExpectReference(Graph(), "window " + std::to_string(window), BoundOf(c));
    }
  }
}

TEST_F(CudaPromptAttention, MissingBlocksAreNaN) {
  for (const std::int32_t missing : {-1, 1000000}) {
    for (const int at : {0, 5, 17, 18}) {
      Build(kPromptCases[0], {.lengths = {300}, .tokens = {300}, .table_cols = 19, .block = 16});
      std::memcpy(table_.bytes.data() + at * 4, &missing, 4);
      ExpectReference(Graph(), "block " + std::to_string(at), BoundOf(kPromptCases[0]));
    }
  }
}

TEST_F(CudaPromptAttention, TwoRunsGiveTheSameBits) {
  for (const PagedBatch& batch :
       {PagedBatch{.lengths = {300}, .tokens = {300}, .table_cols = 38},
        PagedBatch{.lengths = {2500}, .tokens = {50}, .table_cols = 157, .block = 16}}) {
    Build(kPromptCases[0], batch);
    GraphCopy copy(Graph(), test_.dispatch->memory());
    const auto first = copy.Run(*test_.dispatch);
    EXPECT_EQ(copy.Run(*test_.dispatch), first);
  }
}

// The batch's own rows are the keys.
TEST_F(CudaPromptAttention, TheBatchsOwnKeys) {
  for (const bool causal : {false, true}) {
    const DataType type = DataType::kBfloat16;
    const Matrix q(type, 260, 4 * 64, 24), k(type, 260, 64, 25), v(type, 260, 64, 26);
    const Matrix starts = Indices({0, 150, 151, 258});
    ComputeGraph graph;
    const std::vector<int> inputs = {q.AsLeaf(graph), k.AsLeaf(graph), v.AsLeaf(graph),
                                     starts.AsLeaf(graph)};
    OpParams params;
    params.attention = {
        .heads = 4, .kv_heads = 1, .head_dim = 64, .scale = 0.125f, .causal = causal};
    graph.add_op(TensorOp::kAttention, 0, {260, 4 * 64}, inputs, params, "", type);
    ExpectReference(graph, causal ? "causal" : "all", 6e-3);
  }
}

}  // namespace culet
