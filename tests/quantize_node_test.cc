// Quantize as a node of its own: codes and scales between nodes, products of them, and the fusions
// that end with one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/decoder.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"
#include "culet/quantize.h"

namespace culet {
namespace {

using testing::HasSubstr;

constexpr QuantDesc kGroups{QuantType::kK, 128};

std::vector<float> Values(std::int64_t count, unsigned seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  return values;
}

template <class T>
std::vector<T> Read(const GraphExecutor& executor, int id) {
  std::vector<T> values(static_cast<std::size_t>(BytesOf(executor.graph().node(id))) / sizeof(T));
  std::memcpy(values.data(), FromDevicePtr<const void>(executor.address(id)),
              values.size() * sizeof(T));
  return values;
}

enum class Backend { kCpu, kReference };

class QuantizeNode : public testing::TestWithParam<Backend> {
 protected:
  GraphExecutor Run(const ComputeGraph& graph, const FusionChoice& fusions = {}) {
    auto executor = GraphExecutor::Create(graph, *dispatch_, nullptr, fusions);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    const Status status = executor->Launch();
    EXPECT_TRUE(status.ok()) << status.ToString();
    return *std::move(executor);
  }

  Gemm gemm_ = *Gemm::Create();
  std::unique_ptr<KernelDispatch> dispatch_ =
      GetParam() == Backend::kCpu ? MakeCpuDispatch(gemm_) : MakeReferenceDispatch();
};

// Partial groups, a group of zeros, one with a NaN, one with an infinity.
TEST_P(QuantizeNode, CodesAndScalesAreThoseOfTheQuantiser) {
  for (const int group : {128, 32, 1}) {
    for (const Shape shape : {Shape{1, 1}, Shape{3, 300}, Shape{17, 128}}) {
      std::vector<float> x = Values(shape.rows * shape.cols, 3);
      if (shape.rows > 1) {
        std::fill_n(x.begin(), 64, 0.0f);
        x[static_cast<std::size_t>(shape.cols) + 1] = std::numeric_limits<float>::quiet_NaN();
        x[static_cast<std::size_t>(2 * shape.cols) + 5] = std::numeric_limits<float>::infinity();
      }
      ComputeGraph graph;
      const int leaf = graph.add_leaf(ToDevicePtr(x.data()), shape);
      const auto [codes, scales] = graph.add_quantize(leaf, {QuantType::kK, group}, "x");
      graph.mark_output(codes);
      graph.mark_output(scales);
      const GraphExecutor executor = Run(graph);
      EXPECT_EQ(executor.n_launches(), 1);
      EXPECT_EQ(executor.cost_of(codes).bytes,
                static_cast<double>(shape.rows * shape.cols * 5) +
                    static_cast<double>(BytesOf(executor.graph().node(scales))));
      const auto rows = static_cast<int>(shape.rows), cols = static_cast<int>(shape.cols);
      const int groups = (cols + group - 1) / group;
      std::vector<std::uint8_t> expected(x.size());
      std::vector<float> expected_scales(static_cast<std::size_t>(rows * groups));
      const auto layout = [&](DataType type, int width) {
        MatrixLayout made;
        made.type = type;
        made.order = Order::kRowMajor;
        made.rows = rows;
        made.cols = made.ld = width;
        return made;
      };
      const Status quantised =
          QuantizeGroups(x.data(), layout(DataType::kFloat32, cols), expected.data(),
                         layout(DataType::kFloat8_e4m3, cols), expected_scales.data(),
                         layout(DataType::kFloat32, groups), group);
      ASSERT_TRUE(quantised.ok()) << quantised.ToString();
      const auto made = Read<float>(executor, scales);
      const auto made_codes = Read<std::uint8_t>(executor, codes);
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (std::isnan(expected_scales[i])) {
          EXPECT_TRUE(std::isnan(made[i]));
        } else {
          EXPECT_EQ(made[i], expected_scales[i]) << i;
        }
      }
      for (std::size_t i = 0; i < made_codes.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(cols);
        const std::size_t at = row * static_cast<std::size_t>(groups) +
                               i % static_cast<std::size_t>(cols) / static_cast<std::size_t>(group);
        if (std::isnan(expected_scales[at])) {
          EXPECT_EQ(made_codes[i] & 0x7f, 0x7f);
        } else {
          EXPECT_EQ(made_codes[i], expected[i]) << i;
        }
      }
    }
  }
}

// A scale a row: those of one group as long as the row. A scale that is given: that of all rows,
// with what exceeds it at the ends.
TEST_P(QuantizeNode, RowsWithOneScale) {
  constexpr QuantDesc kRows{QuantType::kRow};
  for (const Shape shape : {Shape{1, 1}, Shape{3, 300}, Shape{17, 1030}}) {
    std::vector<float> x = Values(shape.rows * shape.cols, 3);
    if (shape.rows > 1) {
      std::fill_n(x.begin(), shape.cols, 0.0f);
      x[static_cast<std::size_t>(shape.cols) + 1] = std::numeric_limits<float>::quiet_NaN();
      x[static_cast<std::size_t>(2 * shape.cols) + 5] = -std::numeric_limits<float>::infinity();
    }
    constexpr float kGiven = 0.0041f;  // exceeded beyond 1.84
    ComputeGraph graph;
    const int leaf = graph.add_leaf(ToDevicePtr(x.data()), shape);
    const auto group = static_cast<int>(shape.cols);
    const QuantizedNodes rows = graph.add_quantize(leaf, kRows, "rows");
    const QuantizedNodes groups = graph.add_quantize(leaf, {QuantType::kK, group}, "groups");
    const QuantizedNodes given = graph.add_quantize(leaf, kRows, "given", kGiven);
    for (const QuantizedNodes& nodes : {rows, groups, given}) {
      graph.mark_output(nodes.codes);
      graph.mark_output(nodes.scales);
    }
    const GraphExecutor executor = Run(graph);
    EXPECT_EQ(executor.graph().node(rows.scales).shape, (Shape{shape.rows, 1}));
    EXPECT_EQ(Read<std::uint8_t>(executor, rows.codes), Read<std::uint8_t>(executor, groups.codes));
    EXPECT_EQ(Read<std::uint32_t>(executor, rows.scales),
              Read<std::uint32_t>(executor, groups.scales));
    const auto codes = Read<std::uint8_t>(executor, given.codes);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (!std::isfinite(x[i])) {
        EXPECT_EQ(codes[i] & 0x7f, 0x7f) << i;
      } else {
        const float quotient = std::clamp(x[i] / kGiven, -448.0f, 448.0f);
        EXPECT_EQ(codes[i], FloatToFloat8E4m3(quotient)) << i;
      }
    }
    for (const float scale : Read<float>(executor, given.scales)) EXPECT_EQ(scale, kGiven);
  }
}

struct Quantised {
  Quantised(std::int64_t n, std::int64_t k)
      : codes(static_cast<std::size_t>(n * k)),
        scales(Values((n + 127) / 128 * ((k + 127) / 128), 9)) {
    std::mt19937 random(4);
    for (auto& code : codes) code = static_cast<std::uint8_t>(random() % 0x7e);
    weight.name = "w";
    weight.data_ptr = ToDevicePtr(codes.data());
    weight.type = DataType::kFloat8_e4m3;
    weight.rows = n;
    weight.cols = k;
    weight.quant = {QuantType::kB, 128};
    weight.scales_ptr = ToDevicePtr(scales.data());
    weight.scales_type = DataType::kFloat32;
  }
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  Weight weight;
};

// One quantize for two products gives the bits that each gives when it quantises on its own.
TEST_P(QuantizeNode, ProductsOfCodesHaveTheBitsOfProductsThatQuantise) {
  for (const std::int64_t m : {1, 5, 40}) {
    constexpr std::int64_t kN = 136, kK = 200;
    const std::vector<float> x = Values(m * kK, 7);
    const Quantised first(kN, kK), second(kN, kK);
    ComputeGraph graph;
    const int leaf = graph.add_leaf(ToDevicePtr(x.data()), {m, kK});
    const auto [codes, scales] = graph.add_quantize(leaf, kGroups, "x");
    std::vector<int> own, shared;
    for (const Quantised* weight : {&first, &second}) {
      OpParams params;
      params.weight = weight->weight;
      params.quant_a = kGroups;
      own.push_back(graph.add_op(TensorOp::kMulMat, 0, {m, kN}, {leaf}, params, "own"));
      shared.push_back(
          graph.add_op(TensorOp::kMulMat, 0, {m, kN}, {codes, scales}, params, "shared"));
    }
    for (const auto& ids : {own, shared}) {
      for (const int id : ids) graph.mark_output(id);
    }
    const GraphExecutor executor = Run(graph);
    for (std::size_t i = 0; i < own.size(); ++i) {
      EXPECT_EQ(Read<float>(executor, own[i]), Read<float>(executor, shared[i])) << "m " << m;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, QuantizeNode, testing::Values(Backend::kCpu, Backend::kReference),
                         [](const auto& info) {
                           return info.param == Backend::kCpu ? "cpu" : "reference";
                         });

TEST(QuantizeNodeVerify, NamesWhatIsWrong) {
  const std::vector<float> x(600);
  const Quantised weight(136, 200);
  const auto message = [&](const std::function<void(ComputeGraph&, int)>& add) {
    ComputeGraph graph;
    add(graph, graph.add_leaf(ToDevicePtr(x.data()), {3, 200}));
    const Status status = graph.Verify();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  OpParams groups;
  groups.quant_a = kGroups;
  EXPECT_THAT(
      message([&](ComputeGraph& graph, int leaf) {
        graph.add_op(TensorOp::kQuantize, 0, {3, 200}, {leaf}, groups, "q", DataType::kFloat8_e4m3);
      }),
      HasSubstr("use add_quantize"));
  EXPECT_THAT(message([&](ComputeGraph& graph, int leaf) { graph.add_quantize(leaf, {}); }),
              HasSubstr("quant_a must be kK"));
  EXPECT_THAT(message([&](ComputeGraph& graph, int leaf) {
                graph.add_op(TensorOp::kScales, 0, {3, 2}, {leaf}, groups);
              }),
              HasSubstr("must be the quantize right before it"));
  EXPECT_THAT(message([&](ComputeGraph& graph, int leaf) {
                const auto made = graph.add_quantize(leaf, kGroups);
                graph.add_op(TensorOp::kScales, 0, {3, 2}, {made.codes}, groups);
              }),
              HasSubstr("right before it"));
  const auto product = [&](auto change) {
    return message([&](ComputeGraph& graph, int leaf) {
      const auto made = graph.add_quantize(leaf, kGroups);
      OpParams params = groups;
      params.weight = weight.weight;
      std::vector<int> inputs{made.codes, made.scales};
      change(params, inputs);
      graph.add_op(TensorOp::kMulMat, 0, {3, 136}, inputs, params, "y");
    });
  };
  EXPECT_THAT(product([](OpParams&, std::vector<int>& inputs) { inputs.pop_back(); }),
              HasSubstr("mul_mat takes 2"));
  EXPECT_THAT(product([](OpParams&, std::vector<int>& inputs) { inputs[1] = 0; }),
              HasSubstr("input 1 (scales) is [3, 200]"));
  EXPECT_THAT(product([](OpParams& params, std::vector<int>&) { params.quant_a.group_size = 64; }),
              HasSubstr("it must be [3, 4]"));
  EXPECT_THAT(product([](OpParams& params, std::vector<int>&) {
                params.weight.type = DataType::kBfloat16;
              }),
              HasSubstr("input 0 is quantised, the weight bfloat16"));
}

// Norms, with sums before them or not, and gated values: the codes of the fusion are the nodes'.
TEST(QuantizeFusion, HasTheBitsOfItsNodes) {
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  for (const Shape shape : {Shape{1, 128}, Shape{2, 7}, Shape{65, 520}}) {
    for (const std::string kind :
         {"rms_norm_quantize", "add_rms_norm_quantize", "swiglu_quantize"}) {
      const std::int64_t count = shape.rows * shape.cols;
      const std::vector<float> x = Values(count, 1), y = Values(count, 2),
                               gamma = Values(shape.cols, 3);
      ComputeGraph graph;
      int value = graph.add_leaf(ToDevicePtr(x.data()), shape);
      const int other = graph.add_leaf(ToDevicePtr(y.data()), shape);
      std::vector<int> outputs;
      if (kind == "swiglu_quantize") {
        value = graph.add_op(TensorOp::kSwiGlu, 0, shape, {value, other});
      } else {
        if (kind == "add_rms_norm_quantize") {
          // In the place of a value of the arena, which is read no more.
          const int silu = graph.add_op(TensorOp::kSilu, 0, shape, {value});
          value = graph.add_op(TensorOp::kAdd, 0, shape, {silu, other});
          outputs.push_back(value);
        }
        OpParams params;
        params.scalar = 1e-5f;
        params.gamma.data_ptr = ToDevicePtr(gamma.data());
        params.gamma.type = DataType::kFloat32;
        params.gamma.rows = 1;
        params.gamma.cols = shape.cols;
        value = graph.add_op(TensorOp::kRmsNorm, 0, shape, {value}, params);
      }
      const auto [codes, scales] = graph.add_quantize(value, kGroups);
      outputs.push_back(codes);
      outputs.push_back(scales);
      for (const int id : outputs) graph.mark_output(id);
      auto fused = GraphExecutor::Create(graph, *dispatch);
      auto alone = GraphExecutor::Create(graph, *dispatch, nullptr, {.none = true, .off = {}});
      ASSERT_TRUE(fused.ok()) << fused.status().ToString();
      ASSERT_TRUE(alone.ok()) << alone.status().ToString();
      EXPECT_EQ(fused->kernel_of(codes), "cpu/" + kind);
      EXPECT_EQ(fused->fusion_of(scales), fused->fusion_of(codes));
      EXPECT_EQ(fused->address(value), 0u);
      ASSERT_TRUE(fused->Launch().ok());
      ASSERT_TRUE(alone->Launch().ok());
      for (const int id : outputs) {
        EXPECT_EQ(Read<std::uint8_t>(*fused, id), Read<std::uint8_t>(*alone, id)) << kind;
      }
    }
  }
}

// What somebody else reads is not lost in a fusion.
TEST(QuantizeFusion, AValueThatIsReadElsewhereStays) {
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  const std::vector<float> x = Values(256, 1);
  ComputeGraph graph;
  const int leaf = graph.add_leaf(ToDevicePtr(x.data()), {2, 128});
  const int gated = graph.add_op(TensorOp::kSwiGlu, 0, {2, 128}, {leaf, leaf});
  graph.add_quantize(gated, kGroups);
  graph.mark_output(gated);
  const auto executor = GraphExecutor::Create(graph, *dispatch);
  ASSERT_TRUE(executor.ok()) << executor.status().ToString();
  EXPECT_TRUE(executor->fusions().empty());
}

// A layer of E4M3 weights quantises four values: those of q, k and v; of o; of gate and up; of
// down.
TEST(QuantizeNodeDecoder, ProductsShareTheirQuantizedInput) {
  const auto config = ParseDecoderConfig(R"({"architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 96, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 256})",
                                         "config");
  const DecoderModel model = *DecoderModel::Random(*config, DataType::kFloat8_e4m3, HostMemory());
  Gemm gemm = *Gemm::Create();
  const auto dispatch = MakeCpuDispatch(gemm);
  std::vector<std::vector<float>> logits;
  for (const bool none : {false, true}) {
    SessionOptions options;
    options.fusions.none = none;
    Session session = *Session::Create(model, *dispatch, options);
    const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5};
    const auto result = session.Prefill(*session.AddSequence(), prompt, {.all_logits = true});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    logits.push_back(result->logits);
    const ComputeGraph& graph = session.last_executor()->graph();
    EXPECT_EQ(std::ranges::count(graph.nodes(), TensorOp::kQuantize, &TensorNode::op), 2 * 4);
    EXPECT_EQ(session.last_executor()->fusions().empty(), none);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

}  // namespace
}  // namespace culet
