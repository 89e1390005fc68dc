// What latent attention is made of, besides attention: products of heads, norms and rope of parts
// of a group; both dispatches of the host against the formulas, written down once more.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "simd_levels.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

struct Values {
  DataType type;
  std::int64_t rows, cols;
  std::vector<double> values;
  std::vector<std::byte> bytes;

  Values(DataType t, std::int64_t r, std::int64_t c, unsigned seed) : type(t), rows(r), cols(c) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto count = static_cast<std::size_t>(r * c);
    values.resize(count);
    bytes.resize(count * SizeOf(t));
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = RoundTo(t, normal(random));
      StoreFromDouble(bytes.data(), t, static_cast<std::int64_t>(i), values[i]);
    }
  }
  double at(std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>(row * cols + col)];
  }
  int AsLeaf(ComputeGraph& graph) const {
    return graph.add_leaf(ToDevicePtr(bytes.data()), {rows, cols}, type);
  }
  Weight AsWeight() const {
    Weight weight;
    weight.data_ptr = ToDevicePtr(bytes.data());
    weight.type = type;
    weight.rows = rows;
    weight.cols = cols;
    return weight;
  }
};

// One node of float32 on both dispatches; element (row, col) must be `expected(row, col)`.
void Check(TensorOp op, Shape shape, const Values& x, const std::vector<std::int32_t>& positions,
           const OpParams& params,
           const std::function<double(std::int64_t row, std::int64_t col)>& expected,
           const std::string& what) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const auto cpu = MakeCpuDispatch(*gemm), reference = MakeReferenceDispatch();
  for (KernelDispatch* dispatch : {cpu.get(), reference.get()}) {
    constexpr std::size_t kGuard = 64;
    const auto count = static_cast<std::size_t>(shape.rows * shape.cols);
    std::vector<float> out(count + kGuard, -7);
    ComputeGraph graph;
    std::vector<int> inputs{x.AsLeaf(graph)};
    if (!positions.empty()) {
      inputs.push_back(
          graph.add_leaf(ToDevicePtr(positions.data()), {x.rows, 1}, DataType::kInt32));
    }
    graph.add_op(op, ToDevicePtr(out.data()), shape, inputs, params);
    const auto ran = execute_graph(graph, *dispatch);
    ASSERT_TRUE(ran.ok()) << ran.status().ToString();
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t col = 0; col < shape.cols; ++col) {
        ASSERT_NEAR(out[static_cast<std::size_t>(row * shape.cols + col)], expected(row, col), 3e-5)
            << what << (dispatch == cpu.get() ? " on the CPU, " : " on the reference, ") << row
            << ", " << col;
      }
    }
    for (std::size_t i = count; i < out.size(); ++i) ASSERT_EQ(out[i], -7) << what;
  }
}

TEST(LatentOps, ProductsOfHeads) {
  struct Sizes {
    std::int64_t rows, heads, in, sums, k;
  };
  AtEachSimdLevel([] {
    for (const Sizes& s : {Sizes{1, 4, 48, 40, 32}, Sizes{3, 2, 192, 512, 128},
                           Sizes{9, 3, 7, 5, 3}, Sizes{70, 2, 64, 33, 64}}) {
      for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
        const Values x(DataType::kFloat32, s.rows, s.heads * s.in, 1);
        const Values w(type, s.heads * s.sums, s.k, 2);
        OpParams params;
        params.weight = w.AsWeight();
        params.head_dim = static_cast<int>(s.in);
        const std::int64_t size = s.sums + s.in - s.k;
        const auto expected = [&](std::int64_t row, std::int64_t col) {
          const std::int64_t head = col / size, i = col % size;
          if (i >= s.sums) return x.at(row, head * s.in + s.k + i - s.sums);
          double sum = 0;
          for (std::int64_t j = 0; j < s.k; ++j) {
            sum += x.at(row, head * s.in + j) * w.at(head * s.sums + i, j);
          }
          return sum;
        };
        Check(TensorOp::kHeadMulMat, {s.rows, s.heads * size}, x, {}, params, expected,
              std::to_string(s.in) + " to " + std::to_string(s.sums) + " " + ToString(type));
      }
    }
  });
}

TEST(LatentOps, NormsOfTheFirstElements) {
  struct Sizes {
    std::int64_t rows, groups;
    int group, part;
  };
  for (const Sizes& s : {Sizes{3, 1, 576, 512}, Sizes{5, 4, 48, 32}, Sizes{2, 5, 27, 21}}) {
    const Values x(DataType::kFloat32, s.rows, s.groups * s.group, 3);
    const Values gamma(DataType::kBfloat16, 1, s.part, 4);
    OpParams params;
    params.gamma = gamma.AsWeight();
    params.scalar = 1e-2f;
    params.head_dim = s.group;
    const auto expected = [&](std::int64_t row, std::int64_t col) {
      const std::int64_t first = col / s.group * s.group, i = col - first;
      if (i >= s.part) return x.at(row, col);
      double sum = 0;
      for (std::int64_t j = 0; j < s.part; ++j) sum += std::pow(x.at(row, first + j), 2);
      return x.at(row, col) / std::sqrt(sum / s.part + 1e-2f) * gamma.at(0, i);
    };
    Check(TensorOp::kRmsNorm, {s.rows, x.cols}, x, {}, params, expected, std::to_string(s.part));
  }
}

TEST(LatentOps, RopeOfTheLastElements) {
  const std::vector<std::int32_t> positions{0, 7, 100};
  for (const int first : {3, 32}) {
    constexpr int kDims = 8, kHeads = 3;
    const int size = first + kDims;
    const Values x(DataType::kFloat32, 3, std::int64_t{kHeads} * size, 5);
    for (const RopeLayout layout : {RopeLayout::kNeox, RopeLayout::kNorm}) {
      OpParams params;
      params.head_dim = size;
      params.rope.layout = layout;
      params.rope.dims = kDims;
      params.rope.first = first;
      const auto expected = [&](std::int64_t row, std::int64_t col) {
        const std::int64_t head = col / size * size, i = col - head - first;
        if (i < 0) return x.at(row, col);
        const bool halves = layout == RopeLayout::kNeox;
        const std::int64_t pair = halves ? i % (kDims / 2) : i / 2;
        const std::int64_t at = head + first + (halves ? pair : 2 * pair);
        const double angle = positions[static_cast<std::size_t>(row)] *
                             std::pow(10000.0, -2.0 * static_cast<double>(pair) / kDims);
        const double a = x.at(row, at), b = x.at(row, at + (halves ? kDims / 2 : 1));
        return col == at ? a * std::cos(angle) - b * std::sin(angle)
                         : a * std::sin(angle) + b * std::cos(angle);
      };
      Check(TensorOp::kRope, {3, x.cols}, x, positions, params, expected, std::to_string(first));
    }
  }
}

// What does not fit is refused with its numbers.
TEST(LatentOps, WhatDoesNotFitIsRefused) {
  const Values x(DataType::kFloat32, 2, 24, 6), w(DataType::kFloat32, 9, 8, 7);
  const auto refusal = [&](TensorOp op, Shape shape, const OpParams& params, std::size_t inputs) {
    ComputeGraph graph;
    const int leaf = x.AsLeaf(graph);
    graph.add_op(op, 0, shape, std::vector<int>(inputs, leaf), params);
    return graph.Verify().message();
  };
  OpParams params;
  params.weight = w.AsWeight();
  params.head_dim = 8;
  EXPECT_EQ(refusal(TensorOp::kHeadMulMat, {2, 9}, params, 1), "");
  EXPECT_THAT(refusal(TensorOp::kHeadMulMat, {2, 10}, params, 1),
              HasSubstr("the shape is [2, 10]; that of the product is [2, 9]"));
  params.head_dim = 7;
  EXPECT_THAT(refusal(TensorOp::kHeadMulMat, {2, 9}, params, 1),
              HasSubstr("head_dim 7 does not divide the 24 columns"));
  params.head_dim = 6;
  EXPECT_THAT(refusal(TensorOp::kHeadMulMat, {2, 9}, params, 1), HasSubstr("the weight is [9, 8]"));
  params.head_dim = 12;
  EXPECT_THAT(refusal(TensorOp::kHeadMulMat, {2, 9}, params, 1), HasSubstr("2 heads of 12"));
  params.weight.type = DataType::kFloat8_e4m3;
  EXPECT_THAT(refusal(TensorOp::kHeadMulMat, {2, 9}, params, 1), HasSubstr("float8_e4m3"));

  OpParams attention;
  attention.attention = {.heads = 3, .kv_heads = 1, .head_dim = 8, .value_dim = 9, .scale = 1};
  EXPECT_THAT(refusal(TensorOp::kAttention, {2, 27}, attention, 3),
              HasSubstr("value_dim is 9; it must be from 1 to head_dim 8"));
  attention.attention.value_dim = 4;
  EXPECT_THAT(refusal(TensorOp::kAttention, {2, 24}, attention, 3), HasSubstr("3 heads of 4"));
  {
    const Values key(DataType::kFloat32, 2, 8, 8), other(DataType::kFloat32, 2, 8, 9);
    ComputeGraph graph;
    const int q = x.AsLeaf(graph), k = key.AsLeaf(graph), v = other.AsLeaf(graph);
    graph.add_op(TensorOp::kAttention, 0, {2, 12}, {q, k, v}, attention);
    EXPECT_THAT(graph.Verify().message(), HasSubstr("K and V are two nodes"));
    ComputeGraph right;
    const int q2 = x.AsLeaf(right), k2 = key.AsLeaf(right);
    right.add_op(TensorOp::kAttention, 0, {2, 12}, {q2, k2, k2}, attention);
    EXPECT_TRUE(right.Verify().ok()) << right.Verify().ToString();
    // K is read once.
    EXPECT_EQ(CostOf(right, 2).bytes, (24 + 8 + 12) * 2 * 4.0);
    EXPECT_EQ(CostOf(right, 2).operations, 2.0 * 2 * 2 * 3 * (8 + 4));
  }
}

}  // namespace
}  // namespace culet
