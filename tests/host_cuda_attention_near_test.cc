// Attention of single rows that see few keys: plans that take it, its results beside FP32 lanes',
// what it reads before the kernel before it ends, and the same bits with the heads' kernel before
// it and within.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/graph.h"
#include "graph/cuda/attention.h"
#include "host_cuda/host_cuda.h"
#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

constexpr int kBlock = 16;
constexpr std::uint16_t kBfloat16NaN = 0x7FC0;

using Halves = std::vector<std::uint16_t>;

struct Near {
  int dim = 64, group = 2, kv_heads = 2, cluster = 2, warps = 4, window = 0;
  std::vector<std::int32_t> lengths = {1};
  bool norms = true;
  bool sinks = false;
};

std::string ToString(const Near& n) {
  return std::to_string(n.dim) + " x " + std::to_string(n.group) + ", clusters of " +
         std::to_string(n.cluster) + ", " + std::to_string(n.warps) + " warps, " +
         std::to_string(n.lengths.front()) + " keys";
}

// Rows of single sequences, whose keys lie in shuffled blocks.
class Rows {
 public:
  explicit Rows(const Near& near) : near_(near), random_(static_cast<unsigned>(near.dim)) {
    const int rows = static_cast<int>(near.lengths.size());
    cols_ = near.cluster * near.warps;  // as many blocks of 16 keys
    slots_ = rows * cols_ * kBlock;
    for (int i = 0; i < rows; ++i) {
      const std::int32_t length = near.lengths[static_cast<std::size_t>(i)];
      starts_.push_back(i);
      positions_.push_back(length - 1);
      own_.push_back(0);
      for (int col = 0; col < cols_; ++col) table_.push_back((i + col * rows * 7) % (rows * cols_));
      own_.back() = table_[static_cast<std::size_t>(i * cols_ + (length - 1) / kBlock)] * kBlock +
                    (length - 1) % kBlock;
    }
    starts_.push_back(rows);
    const int heads = near.group * near.kv_heads;
    qkv_ = Values(rows * (heads + 2 * near.kv_heads) * near.dim);
    keys_ = Values(slots_ * near.kv_heads * near.dim);
    values_ = Values(slots_ * near.kv_heads * near.dim);
    q_gamma_ = Values(near.dim), k_gamma_ = Values(near.dim);
    for (int i = 0; i < near.dim / 2; ++i) turns_.push_back(std::pow(1e4, -2.0 * i / near.dim));
    q_ = Values(rows * heads * near.dim);
    sinks_ = Values(heads);
  }

  AttentionArgs Attention(bool near) {
    AttentionArgs args;
    const int rows = static_cast<int>(near_.lengths.size());
    args.params = {.heads = near_.group * near_.kv_heads,
                   .kv_heads = near_.kv_heads,
                   .head_dim = near_.dim,
                   .scale = 0.125f,
                   .window = near_.window,
                   .block_size = kBlock,
                   .single_rows = true};
    args.q = q_.data(), args.k = keys_.data(), args.v = values_.data();
    if (near_.sinks) args.sinks = sinks_.data(), args.sinks_type = DataType::kBfloat16;
    args.q_type = args.kv_type = args.out_type = DataType::kBfloat16;
    args.starts = starts_.data(), args.positions = positions_.data();
    args.lengths = near_.lengths.data(), args.table = table_.data();
    args.rows = args.sequences = rows, args.table_cols = cols_, args.key_rows = slots_;
    out_.assign(q_.size(), kBfloat16NaN);
    args.out = out_.data();
    if (near) {
      args.plan.tensor_cores = args.plan.has_decode = true;
      args.plan.near_warps = near_.warps;
      args.plan.decode.cluster = args.plan.decode.most = args.plan.decode.even = near_.cluster;
    }
    return args;
  }

  FusedHeadsArgs Heads() {
    FusedHeadsArgs args;
    args.qkv = qkv_.data(), args.type = args.cache_type = DataType::kBfloat16;
    if (near_.norms) args.q_gamma = q_gamma_.data(), args.k_gamma = k_gamma_.data();
    args.q_gamma_type = args.k_gamma_type = DataType::kBfloat16;
    args.q_epsilon = 1e-6f, args.k_epsilon = 1e-5f;
    args.rope.positions = positions_.data(), args.rope.turns = turns_.data();
    args.rope.half = near_.dim / 2;
    args.out = q_.data(), args.keys = keys_.data(), args.values = values_.data();
    args.key_slots = args.value_slots = own_.data();
    args.cache_rows = slots_;
    args.heads = near_.group * near_.kv_heads, args.kv_heads = near_.kv_heads;
    args.head_dim = near_.dim, args.rows = static_cast<std::int64_t>(near_.lengths.size());
    return args;
  }

  Halves Values(int count) {
    Halves made;
    for (int i = 0; i < count; ++i) made.push_back(FloatToBfloat16(normal_(random_)));
    return made;
  }

  const Near near_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  int cols_ = 0, slots_ = 0;
  std::vector<std::int32_t> starts_, positions_, own_, table_;
  std::vector<double> turns_;
  Halves q_, qkv_, keys_, values_, q_gamma_, k_gamma_, out_, sinks_;
};

void Allow(const AttentionArgs& args) {
  AttentionShape shape;
  shape.params = args.params, shape.kv_type = args.kv_type, shape.rows = args.rows;
  ASSERT_EQ(PrepareAttention(shape, args.plan), cudaSuccess);
  ASSERT_EQ(PrepareHeadsAttention(shape, args.plan), cudaSuccess);
}

double Error(const Halves& out, const Halves& right) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double x = Bfloat16ToFloat(out[i]), y = Bfloat16ToFloat(right[i]);
    error += (x - y) * (x - y), norm += y * y;
  }
  return std::sqrt(error / norm);
}

bool HasNan(const Halves& values) {
  return std::ranges::any_of(values, [](auto bits) { return std::isnan(Bfloat16ToFloat(bits)); });
}

std::vector<Near> Cases() {
  std::vector<Near> cases;
  for (const std::int32_t length : {1, 2, 15, 16, 17, 32, 33, 63, 65, 127, 128})
    cases.push_back({.lengths = {length, 100, 1}});
  for (const std::int32_t length : {1, 31, 400, 512})
    cases.push_back({.dim = 128, .cluster = 8, .lengths = {length, 16}});
  cases.push_back({.dim = 128, .group = 6, .cluster = 4, .warps = 5, .lengths = {320, 7}});
  cases.push_back({.dim = 128, .group = 8, .kv_heads = 1, .cluster = 4, .lengths = {200, 16}});
  cases.push_back({.group = 1, .warps = 8, .lengths = {250}});
  cases.push_back({.group = 3, .cluster = 4, .window = 40, .lengths = {200, 30}, .norms = false});
  cases.push_back({.group = 5, .cluster = 8, .warps = 8, .lengths = {1024, 700}});
  cases.push_back({.group = 4, .cluster = 4, .lengths = {200, 1}, .sinks = true});
  return cases;
}

TEST(NearAttention, AgreesWithLanes) {
  for (const Near& near : Cases()) {
    Rows rows(near);
    AttentionArgs args = rows.Attention(false);
    ASSERT_EQ(Attention(args, nullptr), cudaSuccess) << host_cuda::Fault();
    const Halves right = rows.out_;
    args = rows.Attention(true);
    Allow(args);
    ASSERT_EQ(Attention(args, nullptr), cudaSuccess) << host_cuda::Fault();
    EXPECT_LT(Error(rows.out_, right), 6e-3) << ToString(near);
  }
}

// Queries and the row's own key and value appear only when the preceding kernel ends.
TEST(NearAttention, ReadsEarlyOnlyWhatIsThere) {
  for (const Near& near : Cases()) {
    Rows rows(near);
    AttentionArgs args = rows.Attention(true);
    Allow(args);
    ASSERT_EQ(Attention(args, nullptr), cudaSuccess) << host_cuda::Fault();
    const Halves right = rows.out_;
    args = rows.Attention(true);
    args.early = true;
    const Halves q = rows.q_, k = rows.keys_, v = rows.values_;
    std::ranges::fill(rows.q_, kBfloat16NaN);
    const int row = near.kv_heads * near.dim;
    for (const int slot : rows.own_) {
      for (auto* cache : {&rows.keys_, &rows.values_})
        std::fill_n(cache->begin() + slot * row, row, kBfloat16NaN);
    }
    host_cuda::OnWait([&] {
      std::ranges::copy(q, rows.q_.begin());
      std::ranges::copy(k, rows.keys_.begin());
      std::ranges::copy(v, rows.values_.begin());
    });
    const cudaError_t error = Attention(args, LaunchStream(nullptr, true));
    host_cuda::OnWait(nullptr);
    ASSERT_EQ(error, cudaSuccess) << host_cuda::Fault();
    EXPECT_EQ(rows.out_, right) << ToString(near);
    EXPECT_FALSE(HasNan(right)) << ToString(near);
  }
}

// A row of padding among the rows, and one whose slot is outside the cache.
TEST(NearAttention, MakesHeadsWithTheBitsOfTheirOwnKernel) {
  for (const Near& near : Cases()) {
    for (const int odd : {0, 1, 2}) {
      Rows rows(near);
      if (odd == 1) rows.own_.back() = -1;
      if (odd == 2) rows.own_.back() = rows.slots_;
      const Halves keys = rows.keys_, values = rows.values_;
      ASSERT_EQ(FusedHeads(rows.Heads(), nullptr), cudaSuccess) << host_cuda::Fault();
      AttentionArgs args = rows.Attention(true);
      Allow(args);
      ASSERT_EQ(Attention(args, nullptr), cudaSuccess) << host_cuda::Fault();
      Halves apart = rows.out_;
      const Halves apart_keys = rows.keys_, apart_values = rows.values_;
      rows.keys_ = keys, rows.values_ = values;
      args = rows.Attention(true);
      args.early = true;
      const Halves qkv = rows.qkv_;
      std::ranges::fill(rows.qkv_, kBfloat16NaN);
      host_cuda::OnWait([&] { std::ranges::copy(qkv, rows.qkv_.begin()); });
      const cudaError_t error = HeadsAttention(rows.Heads(), args, LaunchStream(nullptr, true));
      host_cuda::OnWait(nullptr);
      ASSERT_EQ(error, cudaSuccess) << host_cuda::Fault();
      EXPECT_EQ(rows.keys_, apart_keys) << ToString(near);
      EXPECT_EQ(rows.values_, apart_values) << ToString(near);
      // Padding sees a key that its own kernel does not store.
      if (odd == 1) apart.resize(apart.size() - apart.size() / near.lengths.size());
      Halves out = rows.out_;
      out.resize(apart.size());
      EXPECT_FALSE(HasNan(apart)) << ToString(near);
      EXPECT_EQ(out, apart) << ToString(near) << ", " << odd;
    }
  }
}

TEST(NearAttention, IsPlannedForFewKeysOfOneCluster) {
  AttentionShape shape;
  shape.params = {.heads = 16, .kv_heads = 8, .head_dim = 128, .block_size = 16};
  shape.kv_type = DataType::kBfloat16;
  shape.rows = shape.sequences = 1;
  shape.near = true;
  const auto warps = [&](bool exact = false, bool clusters = true) {
    return PlanAttention(shape, exact, 132, clusters, clusters).near_warps;
  };
  shape.most_keys = 512;
  EXPECT_EQ(warps(), 4);
  EXPECT_EQ(warps(true), 0);
  EXPECT_EQ(warps(false, false), 0);
  shape.most_keys = 1024;
  EXPECT_EQ(warps(), 8);
  shape.most_keys = 2048;
  EXPECT_EQ(warps(), 0);
  shape.most_keys = 128;
  EXPECT_EQ(warps(), 0);
  shape.most_keys = 512;
  shape.rows = shape.sequences = 4;
  EXPECT_EQ(warps(), 0);
  shape.rows = shape.sequences = 1;
  shape.params.heads = 32;
  EXPECT_EQ(warps(), 4);
  shape.most_keys = 1024;
  EXPECT_EQ(warps(), 0);
  shape.most_keys = 512;
  shape.params.heads = 64;
  EXPECT_EQ(warps(), 0);
  shape.params.heads = 32, shape.params.kv_heads = 4;  // a block takes four of eight
  EXPECT_EQ(warps(), 4);
  shape.params.heads = 28;  // seven have no equal pieces
  EXPECT_EQ(warps(), 0);
  shape.params.kv_heads = 8;
  shape.params.heads = 16, shape.params.head_dim = 96;
  EXPECT_EQ(warps(), 0);
  shape.params.head_dim = 64, shape.kv_type = DataType::kFloat16;
  EXPECT_EQ(warps(), 0);
  shape.kv_type = DataType::kBfloat16, shape.near = false;
  EXPECT_EQ(warps(), 0);
}

// Whether an attention whose queries are turned so may be planned for it.
bool Fits(RopeLayout layout, int dims, DataType value) {
  constexpr int kDim = 128;
  ComputeGraph graph;
  const int positions = graph.add_leaf(0x1000, {1, 1}, DataType::kInt32);
  const int x = graph.add_leaf(0x2000, {1, 2 * kDim}, value);
  OpParams rope;
  rope.rope.layout = layout, rope.rope.dims = dims, rope.head_dim = kDim;
  const int q = graph.add_op(TensorOp::kRope, 0, {1, 2 * kDim}, {x, positions}, rope, "", value);
  const int keys = graph.add_leaf(0x3000, {64, kDim}, DataType::kBfloat16);
  OpParams params;
  params.attention = {.heads = 2, .kv_heads = 1, .head_dim = kDim};
  const int out =
      graph.add_op(TensorOp::kAttention, 0, {1, 2 * kDim}, {q, keys, keys}, params, "", value);
  return ShapeOfAttention(graph, graph.node(out)).near;
}

TEST(NearAttention, TakesHeadsThatTurnByHalves) {
  EXPECT_TRUE(Fits(RopeLayout::kNeox, 128, DataType::kBfloat16));
  EXPECT_FALSE(Fits(RopeLayout::kNeox, 64, DataType::kBfloat16));
  EXPECT_FALSE(Fits(RopeLayout::kNorm, 128, DataType::kBfloat16));
  EXPECT_FALSE(Fits(RopeLayout::kNeox, 128, DataType::kFloat32));
}

}  // namespace
}  // namespace culet::cuda_ops
