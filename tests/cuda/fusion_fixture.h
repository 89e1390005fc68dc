// What tests of fusions on the CUDA dispatch are made of.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "cases.h"
#include "culet/decoder.h"

namespace culet {

using Bytes = std::vector<std::byte>;

class CudaFusions : public testing::Test {
 protected:
  void SetUp() override {
    test_ = MakeTestDispatch({});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
  }

  /// Host bytes on the device, as long as the test runs.
  DevicePtr Copy(const Bytes& bytes) {
    DeviceMemory& memory = test_.dispatch->memory();
    auto buffer = DeviceBuffer::Create(memory, bytes.size());
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    EXPECT_TRUE(memory.Upload(buffer->get(), bytes.data(), bytes.size(), nullptr).ok());
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().get();
  }
  int Leaf(ComputeGraph& graph, const Matrix& matrix) {
    return graph.add_leaf(Copy(matrix.bytes), {matrix.rows, matrix.cols}, matrix.type);
  }
  /// The inputs of a write to a cache, with scales of its heads where it is of E4M3: others for
  /// keys than for values.
  std::vector<int> CacheInputs(ComputeGraph& graph, std::vector<int> inputs, DataType cache,
                               int heads) {
    if (cache != DataType::kFloat8_e4m3) return inputs;
    const float least = 0.01f + 0.002f * static_cast<float>(buffers_.size() % 7);
    std::vector<float> scales;
    for (int h = 0; h < heads; ++h) scales.push_back(least + 0.003f * static_cast<float>(h));
    inputs.push_back(Leaf(graph, Matrix(DataType::kFloat32, 1, heads, scales)));
    return inputs;
  }
  Weight OnDevice(const Matrix& matrix) {
    Weight weight = matrix.AsWeight();
    weight.data_ptr = Copy(matrix.bytes);
    return weight;
  }
  /// Weights of these rows, contiguous.
  std::vector<Weight> Joined(DataType type, const std::vector<std::int64_t>& rows,
                             std::int64_t cols, unsigned seed) {
    Bytes all;
    std::vector<Weight> weights;
    for (const std::int64_t n : rows) {
      std::vector<float> values = Normal(n * cols, seed++);
      for (float& value : values) value /= std::sqrt(static_cast<float>(cols));
      const Matrix matrix(type, n, cols, values);
      Weight weight = matrix.AsWeight();
      weight.data_ptr = all.size();
      weights.push_back(weight);
      all.insert(all.end(), matrix.bytes.begin(), matrix.bytes.end());
    }
    const DevicePtr at = Copy(all);
    for (Weight& weight : weights) weight.data_ptr += at;
    return weights;
  }

  /// The same in E4M3 with scales of blocks of 128. Requires: rows of whole blocks.
  std::vector<Weight> JoinedBlocks(const std::vector<std::int64_t>& rows, std::int64_t cols,
                                   unsigned seed) {
    auto weights = Joined(DataType::kFloat8_e4m3, rows, cols, seed);
    std::int64_t count = 0;
    for (const Weight& weight : weights) count += weight.rows / 128 * ((cols + 127) / 128);
    std::vector<float> scales = Normal(count, seed + 9);
    for (float& scale : scales) scale = std::exp2(scale);
    const DevicePtr at = Copy(Matrix(DataType::kFloat32, 1, count, scales).bytes);
    count = 0;
    for (Weight& weight : weights) {
      weight.quant = {QuantType::kB, 128};
      weight.scales_type = DataType::kFloat32;
      weight.scales_ptr = at + static_cast<DevicePtr>(count) * sizeof(float);
      count += weight.rows / 128 * ((cols + 127) / 128);
    }
    return weights;
  }

  using SeesKernel = std::function<void(const std::string&)>;

  /// The values of `ids` after a launch; caches are as they were before it. `sees` is told the
  /// kernels of fusions.
  std::map<int, Bytes> Run(const ComputeGraph& graph, const std::vector<int>& ids,
                           const FusionChoice& choice, const std::vector<std::string>& used,
                           const SeesKernel& sees = {}) {
    std::map<int, Bytes> values;
    auto executor = GraphExecutor::Create(graph, *test_.dispatch, nullptr, choice);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    if (!executor.ok()) return values;
    std::vector<std::string> names;
    for (const Fusion& fusion : executor->fusions()) names.push_back(fusion.name);
    EXPECT_EQ(names, used);
    for (const Fusion& fusion : executor->fusions()) {
      if (sees) sees(executor->kernel_of(fusion.nodes.back()));
    }
    for (const auto& [at, bytes] : caches_) {
      EXPECT_TRUE(test_.dispatch->memory().Upload(at, bytes.data(), bytes.size(), nullptr).ok());
    }
    const Status launched = executor->Launch();
    EXPECT_TRUE(launched.ok()) << launched.ToString();
    for (const int id : ids) {
      Bytes& value = values[id];
      value.resize(static_cast<std::size_t>(BytesOf(graph.node(id))));
      EXPECT_TRUE(test_.dispatch->memory()
                      .Download(value.data(), executor->address(id), value.size(), nullptr)
                      .ok());
    }
    return values;
  }

  /// Holds the values of `ids`, fused, against those one by one. `bound`: relative L2 error; 0: the
  /// same bits.
  void ExpectSame(ComputeGraph graph, const std::vector<int>& ids, const char* fusion,
                  const std::string& what, double bound = 0, const SeesKernel& sees = {}) {
    for (const int id : ids) graph.mark_output(id);
    const auto apart = Run(graph, ids, {.none = true}, {});
    const auto fused = Run(graph, ids, {}, {fusion}, sees);
    for (const int id : ids) {
      const TensorNode& node = graph.node(id);
      const Bytes &a = fused.at(id), &b = apart.at(id);
      if (bound == 0) {
        EXPECT_EQ(a, b) << what << ", " << DescribeNode(graph, id);
        continue;
      }
      double error = 0, norm = 0;
      for (std::int64_t i = 0; i < node.shape.rows * node.shape.cols; ++i) {
        const double x = LoadAsDouble(a.data(), node.type, i);
        const double y = LoadAsDouble(b.data(), node.type, i);
        ASSERT_EQ(std::isnan(x), std::isnan(y)) << what << ", " << DescribeNode(graph, id);
        if (std::isnan(y)) continue;
        error += (x - y) * (x - y);
        norm += y * y;
      }
      EXPECT_LE(std::sqrt(error), bound * std::sqrt(norm))
          << what << ", " << DescribeNode(graph, id);
    }
  }

  /// The logits of the step behind a prompt of 7 tokens.
  static std::vector<float> LogitsOfAStep(Session& session) {
    const int sequence = *session.AddSequence();
    const std::vector<std::int32_t> prompt = {1, 2, 3, 4, 5, 6, 7};
    EXPECT_TRUE(session.Prefill(sequence, prompt).ok());
    const std::int32_t token = 9;
    const SequenceTokens next{sequence, {&token, 1}};
    const auto result = session.Step({&next, 1}, {.logits = true});
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    return result.ok() ? result->logits : std::vector<float>();
  }
  /// Of the vectors, in the L2 norm.
  static double RelativeError(const std::vector<float>& got, const std::vector<float>& want) {
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      error += std::pow(double{got.at(i)} - want[i], 2);
      norm += std::pow(double{want[i]}, 2);
    }
    return std::sqrt(error / norm);
  }

  // A matrix unit's kernels for one shape and another add in different orders, and the compiler
  // contracts one kernel's multiplications and another's differently.
  bool on_hopper() const { return test_.gemm->device().arch == 900; }
  bool on_gpu() const { return test_.gemm->device().arch != 0; }
  double Bound(DataType type) const {
    return type == DataType::kBfloat16 ? 4e-3 : on_gpu() ? 1e-5 : 1e-6;
  }

  TestDispatch test_;
  std::vector<DeviceBuffer> buffers_;
  std::map<DevicePtr, Bytes> caches_;
};

/// A model of two layers; $A is the architecture, $M its type.
inline constexpr const char* kDense =
    R"({"architectures": ["$A"], "model_type": "$M", "vocab_size": 96,
  "hidden_size": 512, "intermediate_size": 384, "num_hidden_layers": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
  "hidden_act": "silu", "tie_word_embeddings": false, "rope_theta": 10000.0})";

}  // namespace culet
