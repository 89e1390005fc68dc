#include "node_compare.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "culet/types.h"

namespace culet::cli {
namespace {

// Half a unit of the last place, relative to the smallest number of a binade, both ways.
constexpr double kBfloat16Rounding = 0x1p-8, kFloat16Rounding = 0x1p-11;
// An input on the middle between two E4M3 numbers may go either way, one part in 16 of itself.
constexpr double kE4m3Ties = 5e-3;
// Of sums of E4M3 products in 14 bits, 128 at a time: what the conformance suite allows.
constexpr double kE4m3Sums = 3e-4;

void* Pointer(DevicePtr address) {
  return std::bit_cast<void*>(static_cast<std::uintptr_t>(address));
}

Result<DeviceBuffer> HostCopy(KernelDispatch& dispatch, DevicePtr from, std::int64_t bytes,
                              cudaStream_t stream) {
  auto copy = DeviceBuffer::Create(HostMemory(), static_cast<std::size_t>(bytes));
  if (copy.ok()) {
    CULET_RETURN_IF_ERROR(dispatch.memory().Download(Pointer(copy->get()), from,
                                                     static_cast<std::size_t>(bytes), stream));
  }
  return copy;
}

double ElementAt(const std::byte* data, DataType type, std::int64_t index) {
  switch (type) {
    case DataType::kBfloat16:
    case DataType::kFloat16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, data + 2 * index, sizeof bits);
      if (type == DataType::kBfloat16) return std::bit_cast<float>(std::uint32_t{bits} << 16);
      const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
      const double sign = (bits & 0x8000) != 0 ? -1 : 1;
      if (exponent == 31) {
        return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                             : sign * std::numeric_limits<double>::infinity();
      }
      return sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                                   : std::ldexp(mantissa + 1024, exponent - 25));
    }
    case DataType::kFloat8_e4m3: {
      const auto bits = std::to_integer<int>(data[index]);
      const int exponent = bits >> 3 & 15, mantissa = bits & 7;
      if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(mantissa + 8, exponent - 10);
      return bits < 0x80 ? magnitude : -magnitude;
    }
    default: {
      float value = 0;
      std::memcpy(&value, data + 4 * index, sizeof value);
      return value;
    }
  }
}

// What is the same bit by bit is equal: rows of a cache that nobody wrote yet hold anything.
double ErrorOf(const TensorNode& node, const std::byte* value, const std::byte* expected) {
  const std::int64_t count = node.shape.rows * node.shape.cols;
  const auto width = static_cast<std::size_t>(BytesOf(node) / count);
  double error = 0, norm = 0;
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::size_t>(i) * width;
    const bool equal = std::memcmp(value + at, expected + at, width) == 0;
    if (!equal) ++different;
    if (node.type == DataType::kInt32) continue;
    const double right = ElementAt(expected, node.type, i);
    if (std::isfinite(right)) norm += right * right;
    if (equal) continue;
    const double difference = ElementAt(value, node.type, i) - right;
    error += difference * difference;
  }
  if (different == 0) return 0;
  if (node.type == DataType::kInt32) {
    return static_cast<double>(different) / static_cast<double>(count);
  }
  return std::sqrt(error / norm);
}

}  // namespace

NodeComparison::NodeComparison(double bound, std::unique_ptr<KernelDispatch> reference)
    : bound_(bound), reference_(std::move(reference)) {}

NodeHook NodeComparison::Hook(std::string step) {
  return [this, step = std::move(step)](KernelDispatch& dispatch, const NodeLaunch& launch) {
    return Compare(dispatch, launch, step);
  };
}

void NodeComparison::ReadWeightsOf(const DecoderModel& on_host) {
  const auto add = [&](const Weight& weight) {
    if (weight.present()) host_weights_.emplace(weight.name, weight);
  };
  const DecoderWeights& weights = on_host.weights();
  for (const Weight* weight : {&weights.embedding, &weights.final_norm, &weights.head}) {
    add(*weight);
  }
  for (const LayerWeights& w : weights.layers) {
    for (const Weight* weight : {&w.attention_norm,
                                 &w.q,
                                 &w.k,
                                 &w.v,
                                 &w.o,
                                 &w.q_bias,
                                 &w.k_bias,
                                 &w.v_bias,
                                 &w.o_bias,
                                 &w.q_norm,
                                 &w.k_norm,
                                 &w.latent.q_a,
                                 &w.latent.q_a_bias,
                                 &w.latent.q_a_norm,
                                 &w.latent.kv_a,
                                 &w.latent.kv_a_bias,
                                 &w.latent.kv_a_norm,
                                 &w.latent.keys,
                                 &w.latent.values,
                                 &w.mlp_norm,
                                 &w.attention_post_norm,
                                 &w.mlp_post_norm,
                                 &w.gate,
                                 &w.up,
                                 &w.down,
                                 &w.gate_bias,
                                 &w.up_bias,
                                 &w.down_bias,
                                 &w.router,
                                 &w.router_bias,
                                 &w.router_correction,
                                 &w.shared_gate,
                                 &w.shared_up,
                                 &w.shared_down,
                                 &w.shared_router}) {
      add(*weight);
    }
    if (w.expert_gate == nullptr) continue;
    for (const auto& experts : {w.expert_gate, w.expert_up, w.expert_down}) {
      for (const Weight& weight : experts->weights) add(weight);
      for (const Weight& bias : experts->biases) add(bias);
    }
  }
}

void NodeComparison::SetHostWeight(Weight& weight) const {
  if (weight.present()) weight = host_weights_.at(weight.name);
}

// The graph as it is where the reference reads the weights in place.
const ComputeGraph& NodeComparison::OnHost(const ComputeGraph& graph, const std::string& step) {
  if (host_weights_.empty()) return graph;
  // Within a step the graph is the same; a later one may lie where one before it was.
  if (host_graph_of_ == &graph && host_graph_step_ == step && host_graph_.size() == graph.size()) {
    return host_graph_;
  }
  host_graph_ = {};
  for (const TensorNode& node : graph.nodes()) {
    if (node.op == TensorOp::kNone) {
      host_graph_.add_leaf(node.data_ptr, node.shape, node.type, node.name);
      continue;
    }
    OpParams params = node.params;
    for (const auto weight : kWeightsOfOp) SetHostWeight(params.*weight);
    if (params.experts != nullptr) {
      auto experts = std::make_shared<ExpertWeights>(*params.experts);
      for (Weight& weight : experts->weights) SetHostWeight(weight);
      for (Weight& bias : experts->biases) SetHostWeight(bias);
      params.experts = std::move(experts);
    }
    host_graph_.add_op(node.op, node.data_ptr, node.shape, node.inputs, std::move(params),
                       node.name, node.type);
  }
  host_graph_of_ = &graph;
  host_graph_step_ = step;
  return host_graph_;
}

double NodeComparison::BoundOf(const ComputeGraph& graph, const TensorNode& node) const {
  if (node.type == DataType::kInt32) return 0;
  // What quantises; a product of codes does not.
  const bool e4m3 =
      (node.op == TensorOp::kKvWrite && node.type == DataType::kFloat8_e4m3) ||
      (node.params.quant_a.type != QuantType::kNone && node.op != TensorOp::kExpertMulMat &&
       (node.op != TensorOp::kMulMat || node.inputs.size() == 1));
  double bound = bound_;
  if (e4m3) bound += kE4m3Ties;
  if (short_sums_ && node.op == TensorOp::kMulMat &&
      node.params.weight.type == DataType::kFloat8_e4m3) {
    bound += kE4m3Sums;
  }
  if (node.type == DataType::kBfloat16) bound += kBfloat16Rounding;
  if (node.type == DataType::kFloat16) bound += kFloat16Rounding;
  if (rounded_inputs_ && node.op == TensorOp::kMulMat) {
    if (node.params.weight.type == DataType::kBfloat16) bound += kBfloat16Rounding;
    if (node.params.weight.type == DataType::kFloat16) bound += kFloat16Rounding;
  }
  // Of queries and weights to the cache's type, of E4M3 to float16.
  if (rounded_inputs_ && node.op == TensorOp::kAttention) {
    const DataType cache = graph.node(node.inputs[1]).type;
    if (cache == DataType::kBfloat16) bound += 2 * kBfloat16Rounding;
    if (cache == DataType::kFloat16 || cache == DataType::kFloat8_e4m3) {
      bound += 2 * kFloat16Rounding;
    }
  }
  return bound;
}

Status NodeComparison::Compare(KernelDispatch& dispatch, const NodeLaunch& launch,
                               const std::string& step) {
  // The inputs as they are now: the launch may write a value over one of them.
  HostValues expected;
  for (std::size_t i = 0; i < launch.inputs.size(); ++i) {
    const int id = launch.input_ids[i];
    if (expected.contains(id)) continue;
    auto copy =
        HostCopy(dispatch, launch.inputs[i], BytesOf(launch.graph->node(id)), launch.stream);
    if (!copy.ok()) return copy.status();
    expected.emplace(id, *std::move(copy));
  }
  CULET_RETURN_IF_ERROR(dispatch.launch(launch));
  // A fusion's nodes one by one, each with what the reference made of those before.
  const std::vector<int> one{launch.id};
  double bound = 0;
  for (const int id : launch.fusion != nullptr ? launch.fusion->nodes : one) {
    CULET_RETURN_IF_ERROR(RunReference(OnHost(*launch.graph, step), id, launch.stream, expected));
    bound += BoundOf(*launch.graph, launch.graph->node(id));
  }
  for (std::size_t i = 0; i < launch.outputs.size(); ++i) {
    const TensorNode& node = launch.graph->node(launch.output_ids[i]);
    const auto value = HostCopy(dispatch, launch.outputs[i], BytesOf(node), launch.stream);
    if (!value.ok()) return value.status();
    const DevicePtr right = expected.at(launch.output_ids[i]).get();
    errors_.push_back({launch.fusion != nullptr
                           ? fmt::format("{}, {}", launch.Describe(),
                                         DescribeNode(*launch.graph, launch.output_ids[i]))
                           : DescribeNode(*launch.graph, launch.output_ids[i]),
                       launch.fusion != nullptr ? launch.fusion->name : ToString(node.op), step,
                       ErrorOf(node, static_cast<const std::byte*>(Pointer(value->get())),
                               static_cast<const std::byte*>(Pointer(right))),
                       node.type == DataType::kInt32 ? 0 : bound});
  }
  return {};
}

// The value goes to `values`; where the operation works in place, to where its input lies.
Status NodeComparison::RunReference(const ComputeGraph& graph, int id, cudaStream_t stream,
                                    HostValues& values) {
  const TensorNode& node = graph.node(id);
  std::vector<DevicePtr> inputs;
  for (const int input : node.inputs) inputs.push_back(values.at(input).get());
  if (node.op == TensorOp::kKvWrite || node.op == TensorOp::kAdvance) {
    DeviceBuffer cache = std::move(values.at(node.inputs[0]));
    values.erase(node.inputs[0]);
    values.emplace(id, std::move(cache));
  } else {
    auto own = DeviceBuffer::Create(HostMemory(), static_cast<std::size_t>(BytesOf(node)));
    if (!own.ok()) return own.status();
    values.emplace(id, *std::move(own));
  }
  std::vector<int> made{id};
  std::vector<DevicePtr> outputs{values.at(id).get()};
  if (SecondOf(node.op) != TensorOp::kNone) {
    const auto bytes = static_cast<std::size_t>(BytesOf(graph.node(id + 1)));
    auto second = DeviceBuffer::Create(HostMemory(), bytes);
    if (!second.ok()) return second.status();
    made.push_back(id + 1);
    outputs.push_back(second->get());
    values.emplace(id + 1, *std::move(second));
  }
  const auto prepared = reference_->prepare(graph, id);
  if (!prepared.ok()) return prepared.status();
  const auto workspace =
      DeviceBuffer::Create(HostMemory(), reference_->workspace(graph, id, prepared->get()));
  if (!workspace.ok()) return workspace.status();
  NodeLaunch launch;
  launch.graph = &graph;
  launch.id = id;
  launch.inputs = inputs;
  launch.input_ids = node.inputs;
  launch.outputs = outputs;
  launch.output_ids = made;
  launch.output = outputs.front();
  launch.prepared = prepared->get();
  launch.workspace = workspace->get();
  launch.workspace_bytes = workspace->bytes();
  launch.stream = stream;
  return reference_->launch(launch);
}

}  // namespace culet::cli
