// When a decode step's attention may read keys while the kernels before it still run.
#include "graph/cuda/attention.h"

#include <gtest/gtest.h>

#include <vector>

#include "culet/graph.h"

namespace culet::cuda_ops {
namespace {

// Where a step's attention finds its keys, and what else happens before it.
enum class Step {
  kPlain,
  kCastKeys,  // of a value that the step itself makes
  kCastValues,
  kWritesTwice,   // to one cache
  kWritesIntoIt,  // through a leaf that has a part of it
  kWritesBeside,  // another layer's cache
  kComputedPositions,
  kNoEmbedding,
  kNoPromise,
};

bool ReadsEarly(Step step) {
  constexpr DataType kCache = DataType::kBfloat16, kValue = DataType::kBfloat16;
  constexpr std::int64_t kRows = 2, kDim = 64, kSlots = 64;
  constexpr Shape kShape{kRows, kDim};
  constexpr Shape kIndices{kRows, 1};
  constexpr DevicePtr kKeys = 0x100000, kValues = 0x200000, kPart = kKeys + 16 * kDim * 2;
  ComputeGraph graph;
  const auto index = [&](DevicePtr at, Shape shape) {
    return graph.add_leaf(at, shape, DataType::kInt32);
  };
  const int ids = index(0x1000, kIndices), starts = index(0x2000, {kRows + 1, 1});
  const int lengths = index(0x4000, kIndices), table = index(0x5000, {kRows, 2});
  const int slots = index(0x6000, kIndices);
  int positions = index(0x3000, kIndices);
  int x = graph.add_leaf(0x7000, kShape, kValue);
  if (step != Step::kNoEmbedding) {
    OpParams params;
    params.weight.data_ptr = 0x300000, params.weight.type = kValue;
    params.weight.rows = 100, params.weight.cols = kDim;
    x = graph.add_op(TensorOp::kEmbedding, 0, kShape, {ids}, params, "", kValue);
  }
  if (step == Step::kComputedPositions) {
    positions = graph.add_op(TensorOp::kCopy, 0, kIndices, {positions}, {}, "", DataType::kInt32);
  }
  const auto write = [&](DevicePtr at, std::int64_t rows, DataType type) {
    const Shape shape{rows, kDim};
    const int leaf = graph.add_leaf(at, shape, type);
    return graph.add_op(TensorOp::kKvWrite, 0, shape, {leaf, x, slots}, {}, "", type);
  };
  if (step == Step::kWritesTwice) write(kKeys, kSlots, kCache);
  if (step == Step::kWritesIntoIt) write(kPart, 16, kCache);
  if (step == Step::kWritesBeside) write(kKeys + kSlots * kDim * 2, kSlots, kCache);
  const auto cache = [&](DevicePtr at, bool cast) {
    const int stored = write(at, kSlots, cast ? DataType::kFloat32 : kCache);
    if (!cast) return stored;
    return graph.add_op(TensorOp::kCast, 0, {kSlots, kDim}, {stored}, {}, "", kCache);
  };
  const int keys = cache(kKeys, step == Step::kCastKeys);
  const int values = cache(kValues, step == Step::kCastValues);
  OpParams params;
  params.attention = {.heads = 1,
                      .kv_heads = 1,
                      .head_dim = kDim,
                      .scale = 0.125f,
                      .block_size = 16,
                      .single_rows = step != Step::kNoPromise};
  const int out =
      graph.add_op(TensorOp::kAttention, 0, kShape,
                   {x, keys, values, starts, positions, lengths, table}, params, "", kValue);
  graph.mark_output(out);
  const Status status = graph.Verify();
  EXPECT_TRUE(status.ok()) << status.ToString();
  return MayReadEarly(graph, graph.node(out));
}

TEST(AttentionMayReadEarly, CachesThatNothingInTheStepWritesBefore) {
  EXPECT_TRUE(ReadsEarly(Step::kPlain));
  EXPECT_TRUE(ReadsEarly(Step::kWritesBeside));
}

TEST(AttentionMayReadEarly, NothingThatTheStepMakesOrMayWrite) {
  for (const Step step :
       {Step::kCastKeys, Step::kCastValues, Step::kWritesTwice, Step::kWritesIntoIt,
        Step::kComputedPositions, Step::kNoEmbedding, Step::kNoPromise}) {
    EXPECT_FALSE(ReadsEarly(step)) << static_cast<int>(step);
  }
}

}  // namespace
}  // namespace culet::cuda_ops
