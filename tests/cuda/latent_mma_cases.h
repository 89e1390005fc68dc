// Latent attention on tensor cores, over caches of 16 bits, against the reference in double.
#pragma once

#include <algorithm>

#include "attention_mma_fixture.h"

namespace culet {

// DeepSeek's sizes, with other numbers of heads, types, and what changes scores or the keys that a
// row sees.
constexpr AttentionCase kLatentMmaCases[] = {
    {.heads = 16,
     .kv_heads = 1,
     .head_dim = 576,
     .cache = DataType::kBfloat16,
     .value = DataType::kBfloat16,
     .value_dim = 512},
    {.heads = 40, .kv_heads = 1, .head_dim = 576, .cache = DataType::kBfloat16, .value_dim = 512},
    {.heads = 5,
     .kv_heads = 1,
     .head_dim = 576,
     .cache = DataType::kFloat16,
     .softcap = 1.5f,
     .chunk = 50,
     .sinks = DataType::kFloat16,
     .value_dim = 512},
    {.heads = 6,
     .kv_heads = 2,
     .head_dim = 576,
     .window = 37,
     .cache = DataType::kBfloat16,
     .value = DataType::kBfloat16,
     .sinks = DataType::kBfloat16,
     .value_dim = 512},
    {.heads = 20,
     .kv_heads = 1,
     .head_dim = 576,
     .causal = false,
     .cache = DataType::kFloat16,
     .value_dim = 512}};

// Prompts with and without a past, single rows, a sequence without rows, padding.
TEST_F(CudaAttentionMma, LatentRaggedBatch) {
  for (const AttentionCase& c : kLatentMmaCases) {
    Expect(c,
           {.lengths = {131, 20, 77, 1, 9},
            .tokens = {1, 20, 7, 1, 0},
            .padding = 2,
            .table_cols = 20,
            .block = 16},
           "ragged");
  }
}

// Rows alone in their sequences: keys are split, splits merged, some without keys.
TEST_F(CudaAttentionMma, LatentSingleRows) {
  for (const AttentionCase& c : kLatentMmaCases) {
    for (const std::int32_t length : {1, 31, 32, 33, 64, 65, 317}) {
      Expect(c, {.lengths = {length}, .tokens = {1}, .table_cols = 40, .block = 16},
             std::to_string(length) + " keys");
    }
    Expect(c, {.lengths = {200, 3, 450}, .tokens = {1, 1, 1}, .table_cols = 60, .block = 8},
           "three rows");
  }
}

TEST_F(CudaAttentionMma, LatentRunsGiveTheSameBits) {
  Build(kLatentMmaCases[0], {.lengths = {317}, .tokens = {1}});
  GraphCopy copy(Graph(), test_.dispatch->memory());
  const auto first = copy.Run(*test_.dispatch);
  EXPECT_EQ(copy.Run(*test_.dispatch), first);
}

// A NaN reaches the rows that see it and no others, as does a block outside the cache.
TEST_F(CudaAttentionMma, LatentNaNAndMissingBlocks) {
  for (const int which : {0, 3}) {
    const AttentionCase& c = kLatentMmaCases[which];
    const PagedBatch batch{.lengths = {90, 20}, .tokens = {12, 20}, .block = 16};
    Build(c, batch);
    for (const int position : {83, 20}) {
      std::int32_t block = 0;
      std::memcpy(&block, table_.bytes.data() + position / 16 * 4, 4);
      k_.Set((block * 16 + position % 16) * std::int64_t{c.kv_heads} * 576 + 100, kNaN);
    }
    ExpectReference(Graph(), NameOf(c) + ", NaN", BoundOf(c));
    Build(c, batch);
    const std::int32_t missing = 1 << 20;
    std::memcpy(table_.bytes.data() + 4 * 4, &missing, 4);
    std::memcpy(table_.bytes.data() + (40 + 1) * 4, &missing, 4);
    ExpectReference(Graph(), NameOf(c) + ", missing blocks", BoundOf(c));
  }
}

// Scores that overflow without their maximum.
TEST_F(CudaAttentionMma, LatentScoresOfAnySize) {
  const AttentionCase& c = kLatentMmaCases[1];
  Build(c, {.lengths = {60, 30}, .tokens = {1, 2}});
  for (std::int64_t i = 0; i < 576; ++i) q_.Set(i, 64), q_.Set(576 + i, -64);
  ExpectReference(Graph(), "large scores", BoundOf(c));
}

TEST_F(CudaAttentionMma, LatentKernelsAreNamed) {
  const auto kernel = [&](const AttentionCase& c, const PagedBatch& batch) {
    Build(c, batch);
    const ComputeGraph graph = Graph();
    auto prepared = test_.dispatch->prepare(graph, graph.size() - 1);
    EXPECT_TRUE(prepared.ok());
    return prepared.ok() ? (*prepared)->kernel() : std::string();
  };
  const PagedBatch row{.lengths = {317}, .tokens = {1}, .block = 16};
  EXPECT_EQ(kernel(kLatentMmaCases[0], row).find("cuda/latent_attention/mma"), 0u);
  AttentionCase odd = kLatentMmaCases[0];
  odd.value_dim = 504;
  EXPECT_EQ(kernel(odd, row).find("cuda/latent_attention/s"), 0u);
}

}  // namespace culet
