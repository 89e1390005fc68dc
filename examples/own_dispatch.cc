// A KernelDispatch of one's own: the eight methods as plain loops that count how often they run. A
// decoder layer of one leaf and thirteen operations executes through it, and through the library's
// reference, which must agree.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "culet/dispatch.h"
#include "culet/graph.h"
#include "culet/kernel_dispatch.h"

using namespace culet;

constexpr int kTokens = 5, kHidden = 16, kHeads = 2, kInner = 24;

class OwnDispatch final : public KernelDispatch {
 public:
  std::map<std::string, int> launches;

  Status dispatch_mul_mat(const TensorNode& node, DevicePtr input, DevicePtr output,
                          std::uint32_t m, std::uint32_t n, std::uint32_t k) override {
    if (node.params.weight.type != DataType::kFloat32 || node.params.bias.present()) {
      return Status(StatusCode::kUnsupported, "weights are float32, without bias");
    }
    const float *x = At(input), *w = At(node.params.weight.data_ptr);
    for (std::uint32_t i = 0; i < m; ++i) {
      for (std::uint32_t j = 0; j < n; ++j) {
        float sum = 0;
        for (std::uint32_t p = 0; p < k; ++p) sum += x[i * k + p] * w[j * k + p];
        At(output)[i * n + j] = sum;
      }
    }
    return Counted("mul_mat");
  }
  Status dispatch_rms_norm(const TensorNode& node, DevicePtr input, DevicePtr output,
                           std::uint32_t width, std::uint32_t m, float epsilon) override {
    const float* gamma = At(node.params.gamma.data_ptr);
    for (std::uint32_t i = 0; i < m; ++i) {
      const float* x = At(input) + i * width;
      float squares = 0;
      for (std::uint32_t j = 0; j < width; ++j) squares += x[j] * x[j];
      const float scale = 1 / std::sqrt(squares / static_cast<float>(width) + epsilon);
      for (std::uint32_t j = 0; j < width; ++j) At(output)[i * width + j] = x[j] * scale * gamma[j];
    }
    return Counted("rms_norm");
  }
  Status dispatch_add(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) At(output)[i] = At(a)[i] + At(b)[i];
    return Counted("add");
  }
  Status dispatch_mul(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) At(output)[i] = At(a)[i] * At(b)[i];
    return Counted("mul");
  }
  Status dispatch_silu(DevicePtr input, DevicePtr output, std::size_t n) override {
    for (std::size_t i = 0; i < n; ++i) {
      At(output)[i] = At(input)[i] / (1 + std::exp(-At(input)[i]));
    }
    return Counted("silu");
  }
  Status dispatch_copy(DevicePtr from, DevicePtr to, std::size_t bytes) override {
    std::memcpy(At(to), At(from), bytes);
    return Counted("copy");
  }
  // What cannot be done is a Status, never a launch that does nothing.
  Status dispatch_rope(const TensorNode&, DevicePtr, DevicePtr, std::size_t, std::uint32_t,
                       std::uint32_t) override {
    return Status(StatusCode::kUnsupported, "this dispatch has no rope");
  }
  // One causal sequence, as many key heads as query heads.
  Status dispatch_attention(const TensorNode& node, DevicePtr q, DevicePtr k, DevicePtr v,
                            DevicePtr output, std::uint32_t m, std::size_t) override {
    const AttentionParams& params = node.params.attention;
    if (node.inputs.size() != 3 || !params.causal || params.window != 0 ||
        params.kv_heads != params.heads) {
      return Status(StatusCode::kUnsupported, "attention is causal, of one sequence");
    }
    const int width = params.heads * params.head_dim;
    for (int row = 0; row < static_cast<int>(m); ++row) {
      for (int first = 0; first < width; first += params.head_dim) {
        std::vector<float> weights(static_cast<std::size_t>(row) + 1);
        float sum = 0;
        for (int key = 0; key <= row; ++key) {
          float dot = 0;
          for (int i = first; i < first + params.head_dim; ++i) {
            dot += At(q)[row * width + i] * At(k)[key * width + i];
          }
          sum += weights[static_cast<std::size_t>(key)] = std::exp(dot * params.scale);
        }
        for (int i = first; i < first + params.head_dim; ++i) {
          float mixed = 0;
          for (int key = 0; key <= row; ++key) {
            mixed += weights[static_cast<std::size_t>(key)] / sum * At(v)[key * width + i];
          }
          At(output)[row * width + i] = mixed;
        }
      }
    }
    return Counted("attention");
  }

 private:
  static float* At(DevicePtr pointer) { return reinterpret_cast<float*>(pointer); }
  Status Counted(const char* name) {
    ++launches[name];
    return {};
  }
};

// A layer over `input` (kTokens, kHidden), whose result goes to `output`. Weights are made up and
// kept in `memory`.
ComputeGraph Layer(const float* input, float* output, std::vector<std::vector<float>>& memory) {
  ComputeGraph graph;
  const auto weight = [&](int rows, int cols) {
    auto& values = memory.emplace_back(static_cast<std::size_t>(rows) * cols);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.4f * std::sin(static_cast<float>(i * 7 + memory.size() * 13));
    }
    Weight made;
    made.data_ptr = ToDevicePtr(values.data());
    made.type = DataType::kFloat32;
    made.rows = rows;
    made.cols = cols;
    return made;
  };
  const auto norm = [&](int x) {
    OpParams params;
    params.gamma = weight(1, kHidden);
    params.scalar = 1e-5f;
    return graph.add_op(TensorOp::kRmsNorm, 0, {kTokens, kHidden}, {x}, params);
  };
  const auto mul_mat = [&](int x, int n) {
    OpParams params;
    params.weight = weight(n, static_cast<int>(graph.node(x).shape.cols));
    return graph.add_op(TensorOp::kMulMat, 0, {kTokens, n}, {x}, params);
  };
  const int x = graph.add_leaf(ToDevicePtr(input), {kTokens, kHidden});
  const int normed = norm(x);
  const int q = mul_mat(normed, kHidden), k = mul_mat(normed, kHidden),
            v = mul_mat(normed, kHidden);
  OpParams params;
  params.attention.heads = params.attention.kv_heads = kHeads;
  params.attention.head_dim = kHidden / kHeads;
  params.attention.scale = 1 / std::sqrt(static_cast<float>(kHidden) / kHeads);
  const int mixed = graph.add_op(TensorOp::kSoftMax, 0, {kTokens, kHidden}, {q, k, v}, params);
  const int projected = mul_mat(mixed, kHidden);
  const int added = graph.add_op(TensorOp::kAdd, 0, {kTokens, kHidden}, {x, projected});
  const int second = norm(added);
  const int gate = mul_mat(second, kInner), up = mul_mat(second, kInner);
  const int product = graph.add_op(TensorOp::kMul, 0, {kTokens, kInner}, {gate, up});
  const int down = mul_mat(product, kHidden);
  graph.add_op(TensorOp::kAdd, ToDevicePtr(output), {kTokens, kHidden}, {added, down});
  return graph;
}

int main() {
  std::vector<float> input(kTokens * kHidden), own(input.size()), expected(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = std::cos(static_cast<float>(3 * i));
  std::vector<std::vector<float>> memory, same;
  OwnDispatch dispatch;
  const auto reference = MakeReferenceDispatch();
  const ComputeGraph graph = Layer(input.data(), own.data(), memory);
  const auto result = execute_graph(graph, dispatch);
  const auto checked = execute_graph(Layer(input.data(), expected.data(), same), *reference);
  for (const auto* done : {&result, &checked}) {
    if (!done->ok()) {
      std::fprintf(stderr, "%s\n", done->status().ToString().c_str());
      return 1;
    }
  }
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    error += std::pow(static_cast<double>(own[i]) - expected[i], 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  std::printf("%d leaf, %d operations, %d launches:", graph.n_leafs(), graph.n_ops(),
              result->n_launches);
  for (const auto& [name, count] : dispatch.launches) std::printf(" %s %d", name.c_str(), count);
  std::printf("\nrelative error against the reference %.1e\n", std::sqrt(error / norm));
  return graph.n_leafs() == 1 && result->n_launches == 13 && std::sqrt(error / norm) < 1e-5 ? 0 : 1;
}
