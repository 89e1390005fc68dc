// What tests of the CUDA dispatch are made of. The file that includes this says where it runs: it
// defines MakeTestDispatch. Each graph is built in host memory; a copy of it, with its leaves and
// weights, runs on the dispatch, and its last node is held against the reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_types.h"
#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

namespace culet {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int32_t kFar = std::numeric_limits<std::int32_t>::max();

/// A dispatch of the kernels under test, with what it stands on; null where there is no device.
struct TestDispatch {
  std::unique_ptr<Gemm> gemm;
  std::unique_ptr<KernelDispatch> dispatch;
  std::string reason;  ///< why there is none
};
TestDispatch MakeTestDispatch(const CudaDispatchOptions& options);

inline std::vector<float> Normal(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// A matrix in host memory.
struct Matrix {
  Matrix(DataType t, std::int64_t r, std::int64_t c, const std::vector<float>& values)
      : type(t), rows(r), cols(c), bytes(static_cast<std::size_t>(r * c) * SizeOf(t)) {
    for (std::int64_t i = 0; i < r * c; ++i) Set(i, values[static_cast<std::size_t>(i)]);
  }
  Matrix(DataType t, std::int64_t r, std::int64_t c, unsigned seed)
      : Matrix(t, r, c, Normal(r * c, seed)) {}
  Matrix(std::int64_t r, std::int64_t c, const std::vector<std::int32_t>& values)
      : type(DataType::kInt32), rows(r), cols(c), bytes(values.size() * sizeof(std::int32_t)) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  void Set(std::int64_t index, double value) { StoreFromDouble(bytes.data(), type, index, value); }

  Weight AsWeight() const {
    Weight weight;
    weight.data_ptr = ToDevicePtr(bytes.data());
    weight.type = type;
    weight.rows = rows;
    weight.cols = cols;
    return weight;
  }
  int AsLeaf(ComputeGraph& graph) const {
    return graph.add_leaf(ToDevicePtr(bytes.data()), {rows, cols}, type);
  }

  DataType type;
  std::int64_t rows, cols;
  std::vector<std::byte> bytes;
};

inline Matrix Indices(const std::vector<std::int32_t>& values) {
  return Matrix(static_cast<std::int64_t>(values.size()), 1, values);
}

/// A graph with all that it reads, in another memory. What its last node, which is no kv_write,
/// gives lies between guards.
class GraphCopy {
 public:
  GraphCopy(const ComputeGraph& from, DeviceMemory& memory) : memory_(memory) {
    for (int id = 0; id < from.size(); ++id) {
      TensorNode node = from.node(id);
      if (node.op == TensorOp::kNone) {
        graph_.add_leaf(Copy(node.data_ptr, static_cast<std::size_t>(BytesOf(node))), node.shape,
                        node.type);
        continue;
      }
      for (const auto weight : kWeightsOfOp) Move(node.params.*weight);
      if (node.params.experts != nullptr) {
        auto experts = std::make_shared<ExpertWeights>(*node.params.experts);
        for (Weight& weight : experts->weights) Move(weight);
        for (Weight& bias : experts->biases) Move(bias);
        node.params.experts = std::move(experts);
      }
      graph_.add_op(node.op, 0, node.shape, node.inputs, node.params, "", node.type);
    }
    const TensorNode& last = graph_.node(graph_.size() - 1);
    const auto bytes = static_cast<std::size_t>(BytesOf(last));
    if (last.op == TensorOp::kKvWrite) {
      output_ = graph_.node(last.inputs[0]).data_ptr;
      return;
    }
    guarded_.assign(bytes + 2 * kGuard, kPoison);
    const DevicePtr at = Copy(ToDevicePtr(guarded_.data()), guarded_.size());
    output_ = at + kGuard;
    ComputeGraph with_output;
    for (int id = 0; id < graph_.size(); ++id) {
      const TensorNode& node = graph_.node(id);
      if (node.op == TensorOp::kNone) {
        with_output.add_leaf(node.data_ptr, node.shape, node.type);
      } else {
        with_output.add_op(node.op, id + 1 == graph_.size() ? output_ : 0, node.shape, node.inputs,
                           node.params, "", node.type);
      }
    }
    graph_ = std::move(with_output);
  }

  /// Runs the graph; the bytes of its last node.
  std::vector<std::byte> Run(KernelDispatch& dispatch) {
    const auto result = execute_graph(graph_, dispatch);
    EXPECT_TRUE(result.ok()) << result.status().ToString();
    std::vector<std::byte> value(static_cast<std::size_t>(BytesOf(graph_.node(graph_.size() - 1))));
    const DevicePtr from = guarded_.empty() ? output_ : output_ - kGuard;
    std::vector<std::byte> all(guarded_.empty() ? value.size() : guarded_.size());
    EXPECT_TRUE(memory_.Download(all.data(), from, all.size(), nullptr).ok());
    if (guarded_.empty()) return all;
    std::memcpy(value.data(), all.data() + kGuard, value.size());
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_TRUE(all[i] == kPoison && all[all.size() - 1 - i] == kPoison) << "guard byte " << i;
    }
    return value;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr std::byte kPoison{0xFE};

  DevicePtr Copy(DevicePtr from, std::size_t bytes) {
    auto buffer = DeviceBuffer::Create(memory_, bytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status().ToString();
    EXPECT_TRUE(
        memory_.Upload(buffer->get(), FromDevicePtr<const void>(from), bytes, nullptr).ok());
    buffers_.push_back(*std::move(buffer));
    return buffers_.back().get();
  }
  void Move(Weight& weight) {
    if (!weight.present()) return;
    const auto count = static_cast<std::size_t>(weight.rows * weight.cols);
    weight.data_ptr = Copy(weight.data_ptr, count * SizeOf(weight.type));
    if (weight.quant.type == QuantType::kNone) return;
    const auto [outer, along] =
        ScaleGroupOf(weight.quant, static_cast<int>(weight.rows), static_cast<int>(weight.cols));
    const std::int64_t scales =
        ((weight.rows + outer - 1) / outer) * ((weight.cols + along - 1) / along);
    weight.scales_ptr = Copy(weight.scales_ptr, static_cast<std::size_t>(scales) * sizeof(float));
  }

  DeviceMemory& memory_;
  std::vector<DeviceBuffer> buffers_;
  ComputeGraph graph_;
  DevicePtr output_ = 0;
  std::vector<std::byte> guarded_;  // as it was before; empty for a cache
};

class CudaGraphs : public testing::Test {
 protected:
  void SetUp() override {
    test_ = MakeTestDispatch({.round_product_inputs = false});
    if (test_.dispatch == nullptr) GTEST_SKIP() << test_.reason;
  }

  /// Relative L2 error that a value of `type` may have.
  static double BoundOf(DataType type) {
    return type == DataType::kBfloat16 ? 3e-4 : type == DataType::kFloat16 ? 4e-5 : 1e-6;
  }

  /// Runs the graph on both; NaNs must be where the reference has them, integers equal, and the
  /// rest within `bound` (0: that of the type).
  void ExpectReference(const ComputeGraph& graph, const std::string& what, double bound = 0) {
    Compare(GraphCopy(graph, test_.dispatch->memory()).Run(*test_.dispatch), graph, what, bound);
  }
  /// The same, and of what a second run gives, with states that the first one left.
  void ExpectReferenceTwice(const ComputeGraph& graph, const std::string& what, double bound = 0) {
    GraphCopy copy(graph, test_.dispatch->memory()), expected(graph, HostMemory());
    for (const char* const run : {"", " again"}) {
      ASSERT_NO_FATAL_FAILURE(CompareTo(copy.Run(*test_.dispatch), expected.Run(*reference_), graph,
                                        what + run, bound));
    }
  }

  void Compare(const std::vector<std::byte>& value, const ComputeGraph& graph,
               const std::string& what, double bound = 0) {
    CompareTo(value, GraphCopy(graph, HostMemory()).Run(*reference_), graph, what, bound);
  }

  void CompareTo(const std::vector<std::byte>& value, const std::vector<std::byte>& expected,
                 const ComputeGraph& graph, const std::string& what, double bound) {
    const TensorNode& node = graph.node(graph.size() - 1);
    ASSERT_EQ(value.size(), expected.size());
    const std::int64_t count = node.shape.rows * node.shape.cols;
    if (node.type == DataType::kInt32) {
      for (std::int64_t i = 0; i < count; ++i) {
        std::int32_t a = 0, b = 0;
        std::memcpy(&a, value.data() + 4 * i, 4);
        std::memcpy(&b, expected.data() + 4 * i, 4);
        ASSERT_EQ(a, b) << what << ", row " << i;
      }
      return;
    }
    double error = 0, norm = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double a = LoadAsDouble(value.data(), node.type, i);
      const double b = LoadAsDouble(expected.data(), node.type, i);
      if (!std::isfinite(b)) {
        ASSERT_TRUE(std::isnan(b) ? std::isnan(a) : a == b)
            << what << ", element " << i << ": " << a << " for " << b;
        continue;
      }
      ASSERT_TRUE(std::isfinite(a)) << what << ", element " << i << ": " << a << " for " << b;
      error += (a - b) * (a - b);
      norm += b * b;
    }
    EXPECT_LE(std::sqrt(error), (bound > 0 ? bound : BoundOf(node.type)) * std::sqrt(norm)) << what;
  }

  TestDispatch test_;
  std::unique_ptr<KernelDispatch> reference_ = MakeReferenceDispatch();
};

constexpr DataType kValues[] = {DataType::kFloat32, DataType::kBfloat16};
constexpr DataType kStored[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16};

}  // namespace culet
