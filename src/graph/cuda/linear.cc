#include "graph/cuda/linear.h"

#include "cuda/error.h"
#include "graph/state_inputs.h"
#include "kernels/cuda_ops/linear_chunks.h"

namespace culet::cuda_ops {
namespace {

bool Computes(DataType type) { return type == DataType::kFloat32 || type == DataType::kBfloat16; }

cudaError_t Slice(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const std::int64_t size = node.params.head_dim;
  const std::int64_t heads = launch.input_node(0).shape.cols / size;
  HeadSliceArgs args;
  args.x = FromDevicePtr<const void>(launch.input(0));
  args.type = node.type;
  args.out = FromDevicePtr<void>(launch.output);
  args.heads = node.shape.rows * heads;
  args.size = size;
  args.first = node.params.int_param;
  args.count = node.shape.cols / heads;
  return HeadSlice(args, stream);
}

cudaError_t Convolve(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const Weight& weight = node.params.weight;
  CausalConvArgs args;
  args.states = StateRowsOf(launch);
  args.x = FromDevicePtr<const void>(launch.input(0));
  args.x_type = launch.input_node(0).type;
  args.weight = FromDevicePtr<const void>(weight.data_ptr);
  args.weight_type = weight.type;
  args.out = FromDevicePtr<void>(launch.output);
  args.out_type = node.type;
  args.in = launch.input_node(0).shape.cols;
  args.cols = node.shape.cols;
  args.taps = static_cast<int>(weight.cols);
  args.key_heads = node.params.delta.key_heads;
  args.key_dim = node.params.delta.key_dim;
  return CausalConv(args, stream);
}

cudaError_t Delta(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const GatedDeltaParams& delta = node.params.delta;
  GatedDeltaArgs args;
  args.states = StateRowsOf(launch);
  args.x = FromDevicePtr<const void>(launch.input(0));
  args.x_type = launch.input_node(0).type;
  args.gates = FromDevicePtr<const void>(launch.input(1));
  args.gates_type = launch.input_node(1).type;
  args.decays = FromDevicePtr<const void>(node.params.gamma.data_ptr);
  args.decays_type = node.params.gamma.type;
  args.bias = FromDevicePtr<const void>(node.params.bias.data_ptr);
  args.bias_type = node.params.bias.type;
  args.epsilon = node.params.scalar;
  args.out = FromDevicePtr<void>(launch.output);
  args.out_type = node.type;
  args.key_heads = delta.key_heads;
  args.value_heads = delta.value_heads;
  args.key_dim = delta.key_dim;
  args.value_dim = delta.value_dim;
  if (static_cast<const PreparedDelta*>(launch.prepared)->workspace_bytes() == 0) {
    return GatedDelta(args, stream);
  }
  return GatedDeltaChunks(args, FromDevicePtr<void>(launch.workspace), stream);
}

}  // namespace

PreparedDelta::PreparedDelta(const ComputeGraph& graph, const TensorNode& node) {
  const auto rows = static_cast<std::size_t>(StateInputOf(node.op) + 1);
  DeltaShape shape;
  shape.type = graph.node(node.inputs[0]).type;
  shape.tokens = node.shape.rows;
  shape.sequences = graph.node(node.inputs[rows]).shape.rows;
  shape.value_heads = node.params.delta.value_heads;
  shape.key_dim = node.params.delta.key_dim;
  workspace_bytes_ = PrepareDeltaChunks(shape);
}

Feasibility SupportsLinear(const ComputeGraph& graph, const TensorNode& node) {
  bool values = Computes(node.type);
  for (int i = 0; i < StateInputOf(node.op); ++i) {
    values &= Computes(graph.node(node.inputs[static_cast<std::size_t>(i)]).type);
  }
  if (!values) {
    return Feasibility::Refuse(
        "the CUDA dispatch computes linear attention on float32 and bfloat16 values");
  }
  if (node.op == TensorOp::kCausalConv && node.params.weight.cols > kMostTaps) {
    return Feasibility::Refuse("the CUDA dispatch takes convolutions of at most 8 rows");
  }
  if (node.op == TensorOp::kGatedDelta && node.params.delta.key_dim > kMostDeltaKey) {
    return Feasibility::Refuse("the CUDA dispatch takes keys of linear attention of at most 256");
  }
  return Feasibility::Ok();
}

Status LaunchHeadSlice(const NodeLaunch& launch, LaunchStream stream) {
  return CudaStatus(Slice(launch, stream), "launching head_slice");
}
Status LaunchCausalConv(const NodeLaunch& launch, LaunchStream stream) {
  return CudaStatus(Convolve(launch, stream), "launching causal_conv");
}
Status LaunchGatedDelta(const NodeLaunch& launch, LaunchStream stream) {
  return CudaStatus(Delta(launch, stream), "launching gated_delta");
}

}  // namespace culet::cuda_ops
