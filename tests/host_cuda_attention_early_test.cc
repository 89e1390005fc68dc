// What a decode step's attention reads while earlier kernels still run, and when it may.
#include "graph/cuda/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "cuda/cases.h"
#include "culet/graph.h"
#include "host_cuda/host_cuda.h"
#include "host_cuda/test_dispatch.h"

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

// The promise that all of that rests on: a step's first kernel begins when all before it has ended.
TEST(AttentionMayReadEarly, NoStepBeginsBeforeTheOneBeforeItEnds) {
  const TestDispatch test = MakeTestDispatch({});
  std::vector<std::int32_t> ids = {1, 0};
  std::vector<float> table(2 * 64, 1.0f), gamma(64, 1.0f);
  ComputeGraph graph;
  const int leaf = graph.add_leaf(ToDevicePtr(ids.data()), {2, 1}, DataType::kInt32);
  OpParams params;
  params.weight.data_ptr = ToDevicePtr(table.data()), params.weight.type = DataType::kFloat32;
  params.weight.rows = 2, params.weight.cols = 64;
  int x = graph.add_op(TensorOp::kEmbedding, 0, {2, 64}, {leaf}, params);
  x = graph.add_op(TensorOp::kSilu, 0, {2, 64}, {x});
  graph.mark_output(graph.add_op(TensorOp::kSilu, 0, {2, 64}, {x}));
  auto executor = GraphExecutor::Create(std::move(graph), *test.dispatch);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  host_cuda::TakeOverlaps();
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(executor->Launch(nullptr).ok());
    EXPECT_EQ(host_cuda::TakeOverlaps(), (std::vector<bool>{false, true, true})) << step;
  }
}

// Queries and the row's own key and value appear only when the preceding kernel ends.
TEST(DecodeKernel, ReadsEarlyOnlyWhatIsThere) {
  constexpr int kHeads = 4, kDim = 64, kBlock = 16, kCols = 24, kSlots = kCols * kBlock;
  constexpr std::uint16_t kBfloat16NaN = 0x7FC0;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto values = [&](int n) {
    std::vector<std::uint16_t> made;
    for (int i = 0; i < n; ++i) made.push_back(FloatToBfloat16(normal(random)));
    return made;
  };
  const auto all_q = values(kHeads * kDim), all_k = values(kSlots * kDim),
             all_v = values(kSlots * kDim);
  std::vector<std::int32_t> starts = {0, 1}, positions(1), lengths(1), table;
  for (int i = 0; i < kCols; ++i) table.push_back(i * 7 % kCols);
  for (const int stages : {2, 3}) {
    for (const std::int32_t length : {1, 2, 15, 16, 17, 32, 33, 64, 65, 128, 129, 200, 384}) {
      positions[0] = length - 1, lengths[0] = length;
      std::vector<float> out[2];
      for (const bool early : {false, true}) {
        auto q = all_q, k = all_k, v = all_v;
        const int own =
            table[static_cast<std::size_t>((length - 1) / kBlock)] * kBlock + (length - 1) % kBlock;
        if (early) {
          std::ranges::fill(q, kBfloat16NaN);
          for (auto* cache : {&k, &v}) {
            std::fill_n(cache->begin() + own * kDim, kDim, kBfloat16NaN);
          }
          host_cuda::OnWait([&] { q = all_q, k = all_k, v = all_v; });
        }
        out[early].assign(kHeads * kDim, std::nanf(""));
        AttentionArgs args;
        args.params = {.heads = kHeads,
                       .kv_heads = 1,
                       .head_dim = kDim,
                       .scale = 0.125f,
                       .block_size = kBlock,
                       .single_rows = true};
        args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out[early].data();
        args.q_type = args.kv_type = DataType::kBfloat16, args.out_type = DataType::kFloat32;
        args.starts = starts.data(), args.positions = positions.data();
        args.lengths = lengths.data(), args.table = table.data();
        args.rows = args.sequences = 1, args.table_cols = kCols, args.key_rows = kSlots;
        args.early = early;
        args.plan.tensor_cores = args.plan.has_decode = true;
        args.plan.decode.stages = stages;
        AttentionShape shape{.params = args.params, .kv_type = args.kv_type, .rows = 1};
        ASSERT_EQ(PrepareAttention(shape, args.plan), cudaSuccess);
        const cudaError_t error = Attention(args, LaunchStream(nullptr, true));
        host_cuda::OnWait(nullptr);
        ASSERT_EQ(error, cudaSuccess) << host_cuda::Fault();
      }
      EXPECT_EQ(out[1], out[0]) << length << " keys, stages " << stages;
      EXPECT_TRUE(std::isfinite(out[0].front()));
    }
  }
}

}  // namespace
}  // namespace culet::cuda_ops
