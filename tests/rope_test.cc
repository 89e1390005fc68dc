// Rotary embedding against its formulas, written down once more: frequencies of every scaling, and
// the turned pairs of both layouts.
#include <cmath>
#include <complex>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

namespace culet {
namespace {

constexpr double kPi = 3.14159265358979323846;

double Plain(const RopeParams& p, int i) { return std::pow(p.theta, -2.0 * i / p.dims); }

RopeParams Params(RopeScaling scaling) {
  RopeParams p;
  p.scaling = scaling;
  p.dims = 24;
  p.theta = 5e5;
  p.factor = 8;
  p.original_context = 512;
  return p;
}

void ExpectFrequencies(const RopeParams& p, const std::vector<double>& expected) {
  const std::vector<double> got = RopeFrequencies(p);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i] / expected[i], 1, 1e-12) << ToString(p.scaling) << " " << i;
  }
}

TEST(Rope, FrequenciesOfEveryScaling) {
  std::vector<double> plain, linear, llama3, yarn;
  const RopeParams p = Params(RopeScaling::kNone);
  // YaRN: from which pair on fewer than `turns` turns fit in the original context.
  const auto pair_of = [&](double turns) {
    return 24 * std::log(512 / (turns * 2 * kPi)) / (2 * std::log(p.theta));
  };
  const double low = std::fmax(std::floor(pair_of(32)), 0), high = std::ceil(pair_of(1));
  for (int i = 0; i < 12; ++i) {
    const double f = Plain(p, i);
    plain.push_back(f);
    linear.push_back(f / 8);
    // Llama 3: turns within the original context below 1 are stretched, above 4 kept.
    const double turns = 512 * f / (2 * kPi);
    const double kept = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / (4 - 1);
    llama3.push_back(f * kept + f / 8 * (1 - kept));
    const double ramp = std::fmin(std::fmax((i - low) / (high - low), 0), 1);
    yarn.push_back(f * (1 - ramp) + f / 8 * ramp);
  }
  ExpectFrequencies(p, plain);
  ExpectFrequencies(Params(RopeScaling::kLinear), linear);
  ExpectFrequencies(Params(RopeScaling::kLlama3), llama3);
  ExpectFrequencies(Params(RopeScaling::kYarn), yarn);
}

// What sine and cosine are multiplied with, from a config's keys.
TEST(Rope, YarnMagnitudes) {
  const auto magnitude = [](const std::string& more) {
    const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
      "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
      "intermediate_size": 80, "rope_scaling": {"rope_type": "yarn", "factor": 40,
      "original_max_position_embeddings": 4096)" +
                                               more + "}}",
                                           "config");
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.ok() ? config->rope.attention_factor : 0;
  };
  EXPECT_DOUBLE_EQ(magnitude(""), 0.1 * std::log(40.0) + 1);
  EXPECT_DOUBLE_EQ(magnitude(R"(, "attention_factor": 1.25)"), 1.25);
  EXPECT_DOUBLE_EQ(magnitude(R"(, "mscale": 1.0, "mscale_all_dim": 1.0)"), 1);
  EXPECT_DOUBLE_EQ(magnitude(R"(, "mscale": 0.707, "mscale_all_dim": 0.5)"),
                   (0.0707 * std::log(40.0) + 1) / (0.05 * std::log(40.0) + 1));
}

void ExpectTurned(KernelDispatch& dispatch, RopeLayout layout, int dims) {
  constexpr int kRows = 3, kHeads = 3, kHeadDim = 14;
  constexpr double kMagnitude = 1.25;
  std::vector<std::int32_t> positions = {0, 7, 1003};
  std::vector<float> x(kRows * kHeads * kHeadDim), y(x.size(), NAN);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(5 * i + 1));
  ComputeGraph graph;
  const Shape shape{kRows, kHeads * kHeadDim};
  const int in = graph.add_leaf(ToDevicePtr(x.data()), shape);
  const int at = graph.add_leaf(ToDevicePtr(positions.data()), {kRows, 1}, DataType::kInt32);
  OpParams params;
  params.head_dim = kHeadDim;
  params.rope.layout = layout;
  params.rope.dims = dims;
  params.rope.attention_factor = kMagnitude;
  graph.add_op(TensorOp::kRope, ToDevicePtr(y.data()), shape, {in, at}, params);
  const auto result = execute_graph(graph, dispatch);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      const std::size_t start = static_cast<std::size_t>((row * kHeads + head) * kHeadDim);
      std::vector<double> expected(x.begin() + static_cast<std::ptrdiff_t>(start),
                                   x.begin() + static_cast<std::ptrdiff_t>(start) + kHeadDim);
      for (int i = 0; i < dims / 2; ++i) {
        const int a = layout == RopeLayout::kNorm ? 2 * i : i;
        const int b = layout == RopeLayout::kNorm ? 2 * i + 1 : i + dims / 2;
        const double angle = positions[static_cast<std::size_t>(row)] * Plain(params.rope, i);
        const auto turned = std::complex<double>(x[start + static_cast<std::size_t>(a)],
                                                 x[start + static_cast<std::size_t>(b)]) *
                            std::polar(kMagnitude, angle);
        expected[static_cast<std::size_t>(a)] = turned.real();
        expected[static_cast<std::size_t>(b)] = turned.imag();
      }
      for (std::size_t i = 0; i < kHeadDim; ++i) {
        EXPECT_NEAR(y[start + i], expected[i], 1e-6) << row << " " << head << " " << i;
      }
    }
  }
}

TEST(Rope, BothLayoutsWholeAndPartial) {
  auto gemm = Gemm::Create();
  ASSERT_TRUE(gemm.ok());
  const auto cpu = MakeCpuDispatch(*gemm), reference = MakeReferenceDispatch();
  for (KernelDispatch* dispatch : {cpu.get(), reference.get()}) {
    for (const RopeLayout layout : {RopeLayout::kNeox, RopeLayout::kNorm}) {
      for (const int dims : {14, 10, 2}) ExpectTurned(*dispatch, layout, dims);
    }
  }
}

}  // namespace
}  // namespace culet
