// KernelDispatch: from a node to the method of its operation.
#include "culet/kernel_dispatch.h"

#include <fmt/format.h>

#include <utility>

#include "base/caught.h"
#include "graph/operations.h"

namespace culet {
namespace {

Status NotImplemented(const char* method) {
  return Status(StatusCode::kUnsupported,
                fmt::format("this dispatch does not override {}; override it, or refuse the node "
                            "in supports",
                            method));
}

std::uint32_t U32(std::int64_t value) noexcept { return static_cast<std::uint32_t>(value); }

std::size_t Elements(const TensorNode& node) noexcept {
  return static_cast<std::size_t>(node.shape.rows * node.shape.cols);
}

}  // namespace

DevicePtr NodeLaunch::value(int node_id) const noexcept {
  for (std::size_t i = 0; i < output_ids.size(); ++i) {
    if (output_ids[i] == node_id) return outputs[i];
  }
  for (std::size_t i = 0; i < input_ids.size(); ++i) {
    if (input_ids[i] == node_id) return inputs[i];
  }
  return 0;
}

std::string NodeLaunch::Describe() const {
  return fusion != nullptr ? DescribeFusion(*graph, *fusion) : DescribeNode(*graph, id);
}

Status KernelDispatch::dispatch_swiglu(DevicePtr, DevicePtr, DevicePtr, std::size_t) {
  return NotImplemented("dispatch_swiglu");
}
Status KernelDispatch::dispatch_embedding(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t) {
  return NotImplemented("dispatch_embedding");
}
Status KernelDispatch::dispatch_kv_write(const TensorNode&, DevicePtr, DevicePtr, DevicePtr,
                                         std::uint32_t) {
  return NotImplemented("dispatch_kv_write");
}
Status KernelDispatch::dispatch_gather_rows(const TensorNode&, DevicePtr, DevicePtr, DevicePtr,
                                            std::uint32_t) {
  return NotImplemented("dispatch_gather_rows");
}
Status KernelDispatch::dispatch_cast(const TensorNode&, DevicePtr, DevicePtr, std::size_t) {
  return NotImplemented("dispatch_cast");
}
Status KernelDispatch::dispatch_argmax(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t,
                                       std::uint32_t) {
  return NotImplemented("dispatch_argmax");
}
Status KernelDispatch::dispatch_sample(const TensorNode&, DevicePtr, DevicePtr, DevicePtr,
                                       DevicePtr, std::uint32_t, std::uint32_t) {
  return NotImplemented("dispatch_sample");
}

Status KernelDispatch::dispatch_quantize(const TensorNode&, DevicePtr, DevicePtr, DevicePtr,
                                         std::uint32_t, std::uint32_t) {
  return NotImplemented("dispatch_quantize");
}

Status KernelDispatch::dispatch_other(const TensorNode&, DevicePtr) {
  return NotImplemented("dispatch_other");
}

Status KernelDispatch::agree(const Status& own, const std::string&) { return own; }

Status KernelDispatch::dispatch_advance(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t) {
  return NotImplemented("dispatch_advance");
}

Feasibility KernelDispatch::supports(const ComputeGraph& graph, int id) const {
  const TensorNode& node = graph.node(id);
  switch (node.op) {
    case TensorOp::kMulMat:
    case TensorOp::kAdd:
    case TensorOp::kRmsNorm:
    case TensorOp::kRope:
    case TensorOp::kAttention:
    case TensorOp::kMul:
    case TensorOp::kSilu:
    case TensorOp::kCopy:
      break;
    default:
      return Feasibility::Refuse("this dispatch takes the seed's eight operations only");
  }
  if (node.type != DataType::kFloat32) {
    return Feasibility::Refuse("this dispatch takes float32 values only");
  }
  const OpParams& params = node.params;
  if ((node.op == TensorOp::kRmsNorm && NormGroupOf(params) > params.gamma.cols) ||
      (node.op == TensorOp::kRope && params.rope.first > 0) ||
      (node.op == TensorOp::kAttention && params.attention.value_dim > 0)) {
    return Feasibility::Refuse("this dispatch norms and turns whole groups, and has V beside K");
  }
  if (node.op == TensorOp::kMulMat && node.inputs.size() > 1) {
    return Feasibility::Refuse("this dispatch takes no quantised inputs");
  }
  return Feasibility::Ok();
}

Result<std::unique_ptr<PreparedNode>> KernelDispatch::prepare(const ComputeGraph&, int) {
  return std::unique_ptr<PreparedNode>();
}

std::size_t KernelDispatch::workspace(const ComputeGraph&, int, const PreparedNode*) const {
  return 0;
}

bool KernelDispatch::prefers_buckets() const { return false; }

int KernelDispatch::preferred_step_tokens() const { return 512; }

bool KernelDispatch::records(cudaStream_t) const { return false; }

Result<std::unique_ptr<RecordedLaunches>> KernelDispatch::record(const LaunchFunction&) {
  return NotImplemented("record");
}

std::vector<std::string> KernelDispatch::fusion_names() const { return {}; }

std::vector<Fusion> KernelDispatch::fusions(const ComputeGraph&) const { return {}; }

Result<std::unique_ptr<PreparedNode>> KernelDispatch::prepare_fusion(const ComputeGraph&,
                                                                     const Fusion&) {
  return std::unique_ptr<PreparedNode>();
}

std::size_t KernelDispatch::workspace_fusion(const ComputeGraph&, const Fusion&,
                                             const PreparedNode*) const {
  return 0;
}

Status KernelDispatch::dispatch_fusion(const NodeLaunch&) {
  return Status(StatusCode::kUnsupported,
                "this dispatch offers a fusion but does not override dispatch_fusion");
}

DataType KernelDispatch::preferred_values(DataType) const { return DataType::kFloat32; }

DeviceMemory& KernelDispatch::memory() { return HostMemory(); }

Status KernelDispatch::launch(const NodeLaunch& launch) {
  // A dispatch method may launch a node of its own.
  struct Current {
    const NodeLaunch*& place;
    const NodeLaunch* outer;
    ~Current() { place = outer; }
  } const current{current_, std::exchange(current_, &launch)};
  return CaughtAs("the dispatch", [&] {
    return launch.fusion != nullptr ? dispatch_fusion(launch) : Route(launch);
  });
}

Status KernelDispatch::Route(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const OpParams& params = node.params;
  const DevicePtr out = launch.output;
  const std::uint32_t m = U32(node.shape.rows);
  const auto in = [&](int index) { return launch.input(index); };
  switch (node.op) {
    case TensorOp::kMulMat:
      return dispatch_mul_mat(node, in(0), out, m, U32(params.weight.rows),
                              U32(params.weight.cols));
    case TensorOp::kAdd:
      return dispatch_add(in(0), in(1), out, Elements(node));
    case TensorOp::kMul:
      return dispatch_mul(in(0), in(1), out, Elements(node));
    case TensorOp::kSilu:
      return dispatch_silu(in(0), out, Elements(node));
    case TensorOp::kSwiGlu:
      return dispatch_swiglu(in(0), in(1), out, Elements(node));
    case TensorOp::kRmsNorm: {
      const std::int64_t groups = node.shape.rows * node.shape.cols / NormGroupOf(params);
      return dispatch_rms_norm(node, in(0), out, U32(params.gamma.cols), U32(groups),
                               params.scalar);
    }
    case TensorOp::kRope:
      // Rope works in place; a value that others still read is copied first.
      if (out != in(0)) {
        CULET_RETURN_IF_ERROR(dispatch_copy(in(0), out, static_cast<std::size_t>(BytesOf(node))));
      }
      return dispatch_rope(node, out, in(1), static_cast<std::size_t>(node.shape.rows),
                           U32(params.head_dim), U32(node.shape.cols / params.head_dim));
    case TensorOp::kAttention:
      return dispatch_attention(node, in(0), in(1), in(2), out, m, params.int_param);
    case TensorOp::kCopy:
      return dispatch_copy(in(0), out, static_cast<std::size_t>(BytesOf(node)));
    case TensorOp::kCast:
      return dispatch_cast(node, in(0), out, Elements(node));
    case TensorOp::kEmbedding:
      return dispatch_embedding(node, in(0), out, m);
    case TensorOp::kKvWrite:
      return dispatch_kv_write(node, in(1), in(2), out, U32(launch.input_node(1).shape.rows));
    case TensorOp::kGatherRows:
      return dispatch_gather_rows(node, in(0), in(1), out, m);
    case TensorOp::kArgMax:
      return dispatch_argmax(node, in(0), out, m, U32(launch.input_node(0).shape.cols));
    case TensorOp::kSample:
      return dispatch_sample(node, in(0), in(1), in(2), out, m,
                             U32(launch.input_node(0).shape.cols));
    case TensorOp::kQuantize:
      return dispatch_quantize(node, in(0), out, launch.value(launch.id + 1), m,
                               U32(node.shape.cols));
    case TensorOp::kAdvance:
      return dispatch_advance(node, out, in(1), U32(node.shape.cols));
    default:
      if (InfoOf(node.op).reference != nullptr) return dispatch_other(node, out);
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} is a leaf or no operation; launch operations only",
                            DescribeNode(*launch.graph, launch.id)));
}

}  // namespace culet
