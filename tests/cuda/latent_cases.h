// Latent attention and what lies around it on the CUDA dispatch, against the reference.
#pragma once

#include "attention_batch.h"

namespace culet {

// DeepSeek's sizes, and some of nobody: heads that fill no block, elements that fill no vector.
constexpr AttentionCase kLatentCases[] = {
    {.heads = 16, .kv_heads = 1, .head_dim = 576, .cache = DataType::kBfloat16, .value_dim = 512},
    {.heads = 4, .kv_heads = 1, .head_dim = 64, .value_dim = 48},
    {.heads = 9,
     .kv_heads = 1,
     .head_dim = 72,
     .cache = DataType::kFloat16,
     .value = DataType::kBfloat16,
     .softcap = 1.5f,
     .chunk = 50,
     .sinks = DataType::kFloat16,
     .value_dim = 72},
    {.heads = 1, .kv_heads = 1, .head_dim = 39, .cache = DataType::kBfloat16, .value_dim = 33},
    {.heads = 22, .kv_heads = 2, .head_dim = 300, .window = 37, .value_dim = 257},
    {.heads = 3, .kv_heads = 1, .head_dim = 40, .causal = false, .value_dim = 1}};

TEST_F(CudaAttention, LatentRaggedBatch) {
  for (const AttentionCase& c : kLatentCases) {
    Build(c, {.lengths = {131, 20, 77, 1}, .tokens = {1, 20, 7, 1}, .padding = 2});
    ExpectReference(Graph(), NameOf(c));
  }
}

// A row alone: its keys are split, its splits merged.
TEST_F(CudaAttention, LatentOneRow) {
  for (const AttentionCase& c : kLatentCases) {
    for (const std::int32_t length : {1, 31, 32, 33, 317}) {
      Build(c, {.lengths = {length}, .tokens = {1}});
      ExpectReference(Graph(), NameOf(c) + ", " + std::to_string(length) + " keys");
    }
  }
}

TEST_F(CudaAttention, LatentRunsGiveTheSameBits) {
  Build(kLatentCases[0], {.lengths = {317}, .tokens = {1}});
  GraphCopy copy(Graph(), test_.dispatch->memory());
  const auto first = copy.Run(*test_.dispatch);
  EXPECT_EQ(copy.Run(*test_.dispatch), first);
}

TEST_F(CudaAttention, LatentMissingBlockIsNaN) {
  for (const bool alone : {false, true}) {
    Build(kLatentCases[1], alone ? PagedBatch{.lengths = {200}, .tokens = {1}}
                                 : PagedBatch{.lengths = {131, 20}, .tokens = {1, 20}});
    const std::int32_t missing = 1 << 20;
    std::memcpy(table_.bytes.data() + (alone ? 20 : 40 + 1) * 4, &missing, 4);
    ExpectReference(Graph(), "a missing block");
  }
}

// Scores that overflow without their maximum, and a NaN.
TEST_F(CudaAttention, LatentScoresOfAnySize) {
  Build(kLatentCases[1], {.lengths = {60, 30}, .tokens = {1, 2}});
  for (std::int64_t i = 0; i < 64; ++i) q_.Set(i, 300), q_.Set(256 + i, -300);
  q_.Set(2 * 256 + 70, kNaN);
  ExpectReference(Graph(), "large scores", 1e-5);
}

TEST_F(CudaAttention, LatentSizesThatDoNotFit) {
  for (const AttentionCase c : {AttentionCase{2, 1, 584}, AttentionCase{2, 1, 576}}) {
    AttentionCase wide = c;
    wide.value_dim = c.head_dim == 584 ? 512 : 520;
    Build(wide, {.lengths = {4}, .tokens = {1}});
    const ComputeGraph graph = Graph();
    const Feasibility can = test_.dispatch->supports(graph, graph.size() - 1);
    EXPECT_FALSE(can.ok());
    EXPECT_NE(std::string(can.reason()).find("at most 576"), std::string::npos);
  }
}

TEST_F(CudaGraphs, ProductsOfHeads) {
  struct Sizes {
    std::int64_t rows, heads, in, sums, k;
  };
  for (const Sizes& s : {Sizes{1, 4, 48, 40, 32}, Sizes{3, 2, 192, 512, 128}, Sizes{9, 3, 7, 5, 3},
                         Sizes{20, 2, 64, 33, 64}, Sizes{2, 1, 700, 3, 648}}) {
    for (const DataType value : kValues) {
      for (const DataType weight : kStored) {
        const Matrix x(value, s.rows, s.heads * s.in, 1), w(weight, s.heads * s.sums, s.k, 2);
        OpParams params;
        params.weight = w.AsWeight();
        params.head_dim = static_cast<int>(s.in);
        for (const DataType out : kValues) {
          ComputeGraph graph;
          graph.add_op(TensorOp::kHeadMulMat, 0, {s.rows, s.heads * (s.sums + s.in - s.k)},
                       {x.AsLeaf(graph)}, params, "", out);
          ExpectReference(graph, std::to_string(s.in) + " to " + std::to_string(s.sums));
        }
      }
    }
  }
}

// Norms of the first elements of groups, and heads of which the last elements turn.
TEST_F(CudaGraphs, PartsOfGroups) {
  struct Sizes {
    std::int64_t rows, groups;
    int group, part;
  };
  const Matrix positions = Indices({0, 5, 100000});
  for (const Sizes& s : {Sizes{3, 1, 576, 512}, Sizes{3, 4, 48, 32}, Sizes{3, 5, 27, 21},
                         Sizes{3, 2, 2072, 2056}, Sizes{3, 1, 9, 1}}) {
    for (const DataType type : kValues) {
      const Matrix x(type, s.rows, s.groups * s.group, 1), gamma(type, 1, s.part, 2);
      OpParams norm, rope;
      norm.gamma = gamma.AsWeight();
      norm.scalar = 1e-6f;
      norm.head_dim = rope.head_dim = s.group;
      ComputeGraph norms;
      norms.add_op(TensorOp::kRmsNorm, 0, {x.rows, x.cols}, {x.AsLeaf(norms)}, norm, "", type);
      ExpectReference(norms, "norms of " + std::to_string(s.part));
      for (const RopeLayout layout : {RopeLayout::kNeox, RopeLayout::kNorm}) {
        rope.rope.layout = layout;
        rope.rope.first = s.part;
        rope.rope.dims = (s.group - s.part) / 2 * 2;
        ComputeGraph ropes;
        ropes.add_op(TensorOp::kRope, 0, {x.rows, x.cols},
                     {x.AsLeaf(ropes), positions.AsLeaf(ropes)}, rope, "", type);
        ExpectReference(ropes, "ropes behind " + std::to_string(s.part));
      }
    }
  }
}

}  // namespace culet
