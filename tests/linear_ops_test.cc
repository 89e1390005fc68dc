// Linear attention and parts of heads: both dispatches of the host against the formulas, written
// down once more.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "simd_levels.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

using Floats = std::vector<float>;

Floats Normal(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

Weight AsWeight(const Floats& values, std::int64_t rows) {
  Weight weight;
  weight.data_ptr = ToDevicePtr(values.data());
  weight.type = DataType::kFloat32;
  weight.rows = rows;
  weight.cols = static_cast<std::int64_t>(values.size()) / rows;
  return weight;
}

struct Sizes {
  GatedDeltaParams delta;
  int taps;
};
constexpr Sizes kSizes[] = {{{2, 4, 16, 24}, 4}, {{1, 3, 20, 33}, 2}, {{3, 3, 33, 7}, 9}};

// A layer's weights, and the inputs of a sequence of `tokens`.
struct Layer {
  Layer(const Sizes& s, std::int64_t t, unsigned seed)
      : sizes(s),
        tokens(t),
        conv(Normal(s.delta.qkv_cols() * s.taps, 1)),
        decays(Normal(s.delta.value_heads, 2)),
        bias(Normal(s.delta.value_heads, 3)),
        x(Normal(t * (s.delta.qkv_cols() + s.delta.out_cols()), seed)),
        gates(Normal(t * 2 * s.delta.value_heads, seed + 1)) {}
  Sizes sizes;
  std::int64_t tokens;
  Floats conv, decays, bias, x, gates;

  // Of a sequence alone, from its first token on.
  std::vector<double> Expected() const {
    const GatedDeltaParams& d = sizes.delta;
    const int share = d.value_heads / d.key_heads;
    const std::int64_t group = 2 * d.key_dim + 2 * std::int64_t{share} * d.value_dim;
    const std::int64_t keys = std::int64_t{d.key_heads} * d.key_dim;
    // Input c of token t, where c counts queries, keys and values.
    const auto input = [&](std::int64_t t, std::int64_t c) -> double {
      if (t < 0) return 0;
      std::int64_t head = 0, at = 0;
      if (c < 2 * keys) {
        head = c % keys / d.key_dim;
        at = c % d.key_dim + (c < keys ? 0 : d.key_dim);
      } else {
        const std::int64_t value = c - 2 * keys;
        head = value / (share * d.value_dim);
        at = 2 * d.key_dim + value % (share * d.value_dim);
      }
      const std::int64_t row = d.qkv_cols() + d.out_cols();
      return x[static_cast<std::size_t>(t * row + head * group + at)];
    };
    const auto mixed = [&](std::int64_t t, std::int64_t c) {
      double sum = 0;
      for (int i = 0; i < sizes.taps; ++i) {
        sum += static_cast<double>(conv[static_cast<std::size_t>(c * sizes.taps + i)]) *
               input(t - sizes.taps + 1 + i, c);
      }
      return sum / (1 + std::exp(-sum));
    };
    std::vector<double> out(static_cast<std::size_t>(tokens * d.out_cols()));
    for (int head = 0; head < d.value_heads; ++head) {
      const auto h = static_cast<std::size_t>(head);
      std::vector<std::vector<double>> state(
          static_cast<std::size_t>(d.key_dim),
          std::vector<double>(static_cast<std::size_t>(d.value_dim)));
      for (std::int64_t t = 0; t < tokens; ++t) {
        const auto normed = [&](std::int64_t first) {
          std::vector<double> line;
          double squares = 1e-6f;
          for (int i = 0; i < d.key_dim; ++i) {
            line.push_back(mixed(t, first + head / share * d.key_dim + i));
            squares += line.back() * line.back();
          }
          for (double& value : line) value /= std::sqrt(squares);
          return line;
        };
        const std::vector<double> q = normed(0), k = normed(keys);
        const std::size_t gate = static_cast<std::size_t>(t * 2 * d.value_heads +
                                                          head / share * 2 * share + head % share);
        const double by = 1 / (1 + std::exp(-static_cast<double>(gates[gate])));
        const double a = static_cast<double>(gates[gate + static_cast<std::size_t>(share)]) +
                         static_cast<double>(bias[h]);
        const double kept =
            std::exp(-std::exp(static_cast<double>(decays[h])) * std::log(1 + std::exp(a)));
        for (std::size_t j = 0; j < static_cast<std::size_t>(d.value_dim); ++j) {
          double known = 0, result = 0;
          for (std::size_t i = 0; i < k.size(); ++i) known += k[i] * kept * state[i][j];
          const double v = mixed(t, 2 * keys + head * d.value_dim + static_cast<std::int64_t>(j));
          for (std::size_t i = 0; i < k.size(); ++i) {
            state[i][j] = kept * state[i][j] + k[i] * by * (v - known);
            result += q[i] * state[i][j] / std::sqrt(static_cast<double>(d.key_dim));
          }
          out[static_cast<std::size_t>(t * d.out_cols() + head * d.value_dim) + j] = result;
        }
      }
    }
    return out;
  }
};

// Steps of several sequences over one pair of states.
class States {
 public:
  static constexpr int kRows = 5;
  explicit States(const Sizes& sizes)
      : conv_(static_cast<std::size_t>(kRows * (sizes.taps - 1) * sizes.delta.qkv_cols()), 7.5f),
        delta_(static_cast<std::size_t>(kRows * sizes.delta.state_cols()), -3.5f) {}

  struct Part {
    const Layer* layer;
    std::int64_t first, count;  // tokens
    std::int32_t row;           // of the states
  };
  /// The results of the parts, one behind the other.
  Floats Step(KernelDispatch& dispatch, const std::vector<Part>& parts) {
    const Layer& any = *parts.front().layer;
    const GatedDeltaParams& d = any.sizes.delta;
    Floats x, gates;
    std::vector<std::int32_t> rows, starts{0}, positions;
    for (const Part& part : parts) {
      const auto take = [&](const Floats& from, Floats& to) {
        const auto width = static_cast<std::ptrdiff_t>(from.size()) /
                           static_cast<std::ptrdiff_t>(part.layer->tokens);
        to.insert(to.end(), from.begin() + part.first * width,
                  from.begin() + (part.first + part.count) * width);
      };
      take(part.layer->x, x);
      take(part.layer->gates, gates);
      for (std::int64_t i = 0; i < part.count; ++i) {
        positions.push_back(static_cast<std::int32_t>(part.first + i));
      }
      rows.push_back(part.row);
      starts.push_back(static_cast<std::int32_t>(positions.size()));
    }
    const auto tokens = static_cast<std::int64_t>(positions.size());
    ComputeGraph graph;
    const auto leaf = [&](const Floats& values, std::int64_t count) {
      return graph.add_leaf(ToDevicePtr(values.data()),
                            {count, static_cast<std::int64_t>(values.size()) / count});
    };
    const auto index = [&](const std::vector<std::int32_t>& values) {
      return graph.add_leaf(ToDevicePtr(values.data()),
                            {static_cast<std::int64_t>(values.size()), 1}, DataType::kInt32);
    };
    const int from = leaf(x, tokens), gate = leaf(gates, tokens);
    const int conv_states = leaf(conv_, kRows), delta_states = leaf(delta_, kRows);
    const int at = index(rows), first = index(starts), where = index(positions);
    OpParams conv, rule;
    conv.delta = rule.delta = d;
    conv.weight = AsWeight(any.conv, d.qkv_cols());
    rule.gamma = AsWeight(any.decays, 1);
    rule.bias = AsWeight(any.bias, 1);
    rule.scalar = 1e-6f;
    const int mixed = graph.add_op(TensorOp::kCausalConv, 0, {tokens, d.qkv_cols()},
                                   {from, conv_states, at, first, where}, conv);
    Floats out(static_cast<std::size_t>(tokens * d.out_cols()), kGuard);
    graph.add_op(TensorOp::kGatedDelta, ToDevicePtr(out.data()), {tokens, d.out_cols()},
                 {mixed, gate, delta_states, at, first, where}, rule);
    const auto ran = execute_graph(graph, dispatch);
    EXPECT_TRUE(ran.ok()) << ran.status().ToString();
    return out;
  }
  bool IsUntouched(std::int64_t row) const {
    const auto whole = [&](const Floats& values, float value) {
      const auto width = static_cast<std::ptrdiff_t>(values.size()) / kRows;
      return std::all_of(values.begin() + row * width, values.begin() + (row + 1) * width,
                         [&](float each) { return each == value; });
    };
    return whole(conv_, 7.5f) && whole(delta_, -3.5f);
  }

 private:
  static constexpr float kGuard = -77;
  Floats conv_, delta_;
};

void ExpectNear(const Floats& values, std::size_t first, const std::vector<double>& expected,
                const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(values[first + i], expected[i], 2e-5) << what << ", " << i;
  }
}

template <class F>
void OnBoth(F body) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const auto cpu = MakeCpuDispatch(*gemm), reference = MakeReferenceDispatch();
  body(*cpu, "on the CPU");
  body(*reference, "on the reference");
}

// Two sequences in one step, another one and padding beside them; then the first goes on.
TEST(LinearOps, SequencesOfOneStep) {
  AtEachSimdLevel([] {
    for (const Sizes& s : kSizes) {
      const Layer a(s, 13, 10), b(s, 3, 20), padding(s, 2, 30);
      OnBoth([&](KernelDispatch& dispatch, const std::string& where) {
        States states(s);
        const Floats out =
            states.Step(dispatch, {{&a, 0, 13, 3}, {&b, 0, 3, 1}, {&padding, 0, 2, -1}});
        const auto width = static_cast<std::size_t>(s.delta.out_cols());
        ExpectNear(out, 0, a.Expected(), where);
        ExpectNear(out, 13 * width, b.Expected(), where);
        ExpectNear(out, 16 * width, padding.Expected(), where);
        for (const int row : {0, 2, 4}) EXPECT_TRUE(states.IsUntouched(row)) << where;
      });
    }
  });
}

// The bits of a short step's results do not depend on where a sequence is cut, or on its
// neighbours.
TEST(LinearOps, Pieces) {
  for (const Sizes& s : kSizes) {
    const Layer a(s, 13, 10), b(s, 13, 20);
    OnBoth([&](KernelDispatch& dispatch, const std::string& where) {
      States whole(s), pieces(s);
      const Floats expected = whole.Step(dispatch, {{&a, 0, 13, 0}});
      Floats found;
      std::int64_t done = 0;
      for (const std::int64_t count : {1, 1, 4, 2, 5}) {
        const Floats out = pieces.Step(dispatch, {{&a, done, count, 2}, {&b, done, count, 4}});
        found.insert(found.end(), out.begin(),
                     out.begin() + static_cast<std::ptrdiff_t>(count * s.delta.out_cols()));
        done += count;
      }
      if (where == "on the CPU") {
        EXPECT_EQ(found, expected);
      } else {
        ExpectNear(found, 0, a.Expected(), where);
      }
    });
  }
}

// Prompts go in chunks of 64, of which the last may be shorter, beside rows of one token. A state
// goes on where the prompt before has left it.
TEST(LinearOps, Prompts) {
  AtEachSimdLevel([] {
    for (const Sizes& s : kSizes) {
      const Layer a(s, 230, 10), b(s, 230, 20), c(s, 230, 30);
      const auto expected_a = a.Expected(), expected_b = b.Expected(), expected_c = c.Expected();
      OnBoth([&](KernelDispatch& dispatch, const std::string& where) {
        const auto width = static_cast<std::size_t>(s.delta.out_cols());
        States states(s);
        std::int64_t done = 0;
        for (const std::int64_t count : {70, 16, 1, 15, 128}) {
          const Floats out =
              states.Step(dispatch, {{&a, done, count, 2}, {&b, done, count, 4}, {&c, 0, 67, 1}});
          const auto from = [&](const std::vector<double>& values, std::int64_t tokens) {
            const auto begin = values.begin() +
                               static_cast<std::ptrdiff_t>(static_cast<std::size_t>(done) * width);
            return std::vector<double>(begin, begin + tokens * static_cast<std::ptrdiff_t>(width));
          };
          const std::string what = where + ", " + std::to_string(count) + " tokens";
          ExpectNear(out, 0, from(expected_a, count), what);
          ExpectNear(out, static_cast<std::size_t>(count) * width, from(expected_b, count), what);
          ExpectNear(
              out, 2 * static_cast<std::size_t>(count) * width,
              {expected_c.begin(), expected_c.begin() + static_cast<std::ptrdiff_t>(67 * width)},
              what);
          done += count;
        }
      });
    }
  });
}

// A number that is none of the states' leaves them alone.
TEST(LinearOps, StatesThatDoNotExist) {
  const Sizes& s = kSizes[0];
  const Layer a(s, 4, 10);
  OnBoth([&](KernelDispatch& dispatch, const std::string& where) {
    States states(s);
    for (const std::int32_t row : {-1, States::kRows, 1 << 30}) {
      ExpectNear(states.Step(dispatch, {{&a, 0, 4, row}}), 0, a.Expected(), where);
    }
    for (int row = 0; row < States::kRows; ++row) EXPECT_TRUE(states.IsUntouched(row)) << where;
  });
}

TEST(LinearOps, PartsOfHeadsAndGates) {
  constexpr std::int64_t kRows = 70, kHeads = 3, kSize = 21, kFirst = 7, kCount = 9;
  const Floats x = Normal(kRows * kHeads * kSize, 1), y = Normal(kRows * kHeads * kCount, 2);
  OnBoth([&](KernelDispatch& dispatch, const std::string& where) {
    Floats out(y.size());
    ComputeGraph graph;
    const int from = graph.add_leaf(ToDevicePtr(x.data()), {kRows, kHeads * kSize});
    const int other = graph.add_leaf(ToDevicePtr(y.data()), {kRows, kHeads * kCount});
    OpParams params;
    params.head_dim = kSize;
    params.int_param = kFirst;
    const Shape shape{kRows, kHeads * kCount};
    const int part = graph.add_op(TensorOp::kHeadSlice, 0, shape, {from}, params);
    graph.add_op(TensorOp::kSigmoidGate, ToDevicePtr(out.data()), shape, {other, part});
    EXPECT_EQ(CostOf(graph, part).bytes, 2.0 * 4 * kRows * kHeads * kCount);
    const auto ran = execute_graph(graph, dispatch);
    ASSERT_TRUE(ran.ok()) << ran.status().ToString();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double gate = x[i / kCount * kSize + kFirst + i % kCount];
      ASSERT_NEAR(out[i], static_cast<double>(y[i]) / (1 + std::exp(-gate)), 1e-6) << where;
    }
  });
}

// Gates of any size, and what is no number.
TEST(LinearOps, GatesOfAnySize) {
  const Floats y{3, -3, 3, -3, 3, std::nanf(""), 3};
  const Floats gate{1000, 1000, -1000, -80, std::nanf(""), 0, 0};
  OnBoth([&](KernelDispatch& dispatch, const std::string& where) {
    Floats out(y.size());
    ComputeGraph graph;
    const Shape shape{1, static_cast<std::int64_t>(y.size())};
    const int a = graph.add_leaf(ToDevicePtr(y.data()), shape);
    const int b = graph.add_leaf(ToDevicePtr(gate.data()), shape);
    graph.add_op(TensorOp::kSigmoidGate, ToDevicePtr(out.data()), shape, {a, b});
    ASSERT_TRUE(execute_graph(graph, dispatch).ok());
    EXPECT_EQ(out[0], 3) << where;
    EXPECT_EQ(out[1], -3) << where;
    EXPECT_EQ(out[2], 0) << where;
    EXPECT_NEAR(out[3] / (-3 * std::exp(-80.0)), 1, 1e-5) << where;
    EXPECT_TRUE(std::isnan(out[4]) && std::isnan(out[5])) << where;
    EXPECT_EQ(out[6], 1.5f) << where;
  });
}

// What does not fit is refused with its numbers.
TEST(LinearOps, WhatDoesNotFitIsRefused) {
  const Floats values(4096), taps(32 * 4), gammas(4);
  const std::vector<std::int32_t> indices(16);
  const auto refusal = [&](TensorOp op, const OpParams& params, Shape shape,
                           const std::vector<Shape>& inputs, bool twice = false) {
    ComputeGraph graph;
    std::vector<int> ids;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const bool index = i + 3 >= inputs.size() && inputs.size() > 3;
      const DevicePtr data = index ? ToDevicePtr(indices.data()) : ToDevicePtr(values.data());
      ids.push_back(graph.add_leaf(data, inputs[i], index ? DataType::kInt32 : DataType::kFloat32));
    }
    graph.add_op(op, 0, shape, ids, params);
    if (twice) graph.add_op(op, 0, shape, ids, params);
    return graph.Verify().message();
  };
  OpParams slice;
  slice.head_dim = 6;
  slice.int_param = 2;
  EXPECT_EQ(refusal(TensorOp::kHeadSlice, slice, {2, 8}, {{2, 12}}), "");
  EXPECT_THAT(refusal(TensorOp::kHeadSlice, slice, {2, 10}, {{2, 12}}),
              HasSubstr("the value has 10 columns, from element 2 on; 2 heads of 6"));
  slice.head_dim = 5;
  EXPECT_THAT(refusal(TensorOp::kHeadSlice, slice, {2, 8}, {{2, 12}}),
              HasSubstr("head_dim 5 does not divide the 12 columns"));

  OpParams conv;
  conv.delta = {2, 4, 3, 5};  // rows of 12 + 20, and 20
  conv.weight = AsWeight(taps, 32);
  const std::vector<Shape> of_conv{{3, 52}, {2, 96}, {2, 1}, {3, 1}, {3, 1}};
  EXPECT_EQ(refusal(TensorOp::kCausalConv, conv, {3, 32}, of_conv), "");
  EXPECT_THAT(refusal(TensorOp::kCausalConv, conv, {3, 32}, of_conv, true),
              HasSubstr("changes node 1 in place, which node 6 reads later"));
  EXPECT_THAT(refusal(TensorOp::kCausalConv, conv, {3, 31}, of_conv),
              HasSubstr("the value has 31 columns; these heads make 32"));
  EXPECT_THAT(
      refusal(TensorOp::kCausalConv, conv, {3, 32}, {{3, 52}, {2, 95}, {2, 1}, {3, 1}, {3, 1}}),
      HasSubstr("input 1 (states) is [2, 95]; it must be [2, 96]"));
  EXPECT_THAT(
      refusal(TensorOp::kCausalConv, conv, {3, 32}, {{3, 52}, {2, 96}, {2, 1}, {4, 1}, {3, 1}}),
      HasSubstr("input 3 (q_starts) is [4, 1]; it must be [3, 1]"));
  conv.delta.value_heads = 3;
  EXPECT_THAT(refusal(TensorOp::kCausalConv, conv, {3, 32}, of_conv),
              HasSubstr("2 key heads of 3, 3 value heads of 5; key_heads must divide"));

  OpParams rule;
  rule.delta = {2, 4, 3, 5};
  rule.gamma = rule.bias = AsWeight(gammas, 1);
  rule.scalar = 1e-6f;
  const std::vector<Shape> of_rule{{3, 32}, {3, 8}, {2, 60}, {2, 1}, {3, 1}, {3, 1}};
  EXPECT_EQ(refusal(TensorOp::kGatedDelta, rule, {3, 20}, of_rule), "");
  rule.scalar = 0;
  EXPECT_THAT(refusal(TensorOp::kGatedDelta, rule, {3, 20}, of_rule), HasSubstr("epsilon, is 0"));
  rule.scalar = 1e-6f;
  rule.bias = {};
  EXPECT_THAT(refusal(TensorOp::kGatedDelta, rule, {3, 20}, of_rule),
              HasSubstr("the bias is [0, 0]; it must be [1, 4]"));
}

// A state is read and written once a sequence, whatever rows there are.
TEST(LinearOps, Costs) {
  const Floats values(4096), gammas(4);
  const std::vector<std::int32_t> indices(16);
  ComputeGraph graph;
  const auto leaf = [&](Shape shape, DataType type = DataType::kFloat32) {
    return graph.add_leaf(
        type == DataType::kInt32 ? ToDevicePtr(indices.data()) : ToDevicePtr(values.data()), shape,
        type);
  };
  OpParams rule;
  rule.delta = {2, 4, 3, 5};
  rule.gamma = rule.bias = AsWeight(gammas, 1);
  rule.scalar = 1e-6f;
  const int x = leaf({3, 32}), gates = leaf({3, 8}), states = leaf({9, 60});
  const int rows = leaf({2, 1}, DataType::kInt32), starts = leaf({3, 1}, DataType::kInt32);
  const int positions = leaf({3, 1}, DataType::kInt32);
  const int id = graph.add_op(TensorOp::kGatedDelta, 0, {3, 20},
                              {x, gates, states, rows, starts, positions}, rule);
  EXPECT_EQ(CostOf(graph, id).bytes, 4.0 * (3 * (32 + 8 + 20) + 2 * 2 * 60 + 2 * 4 + 2 + 3 + 3));
  EXPECT_EQ(CostOf(graph, id).operations, 6.0 * 3 * 60);
}

}  // namespace
}  // namespace culet
