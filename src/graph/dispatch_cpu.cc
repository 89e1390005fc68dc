// MakeCpuDispatch: products through the engine, the rest through kernels/ops.
#include <algorithm>
#include <cstring>
#include <string>

#include "culet/dispatch.h"
#include "graph/cpu_fusions.h"
#include "graph/cpu_operations.h"
#include "graph/table_dispatch.h"
#include "graph/table_rows.h"

namespace culet {
namespace {

// Operations that need nothing but a name.
struct PreparedPlain final : PreparedNode {
  explicit PreparedPlain(TensorOp o) : op(o) {}
  TensorOp op;
  std::string kernel() const override { return std::string("cpu/") + ToString(op); }
};

class CpuDispatch final : public TableDispatch {
 public:
  CpuDispatch(Gemm& gemm, const CpuDispatchOptions& options)
      : gemm_(gemm), options_(options), expert_choices_(gemm) {}

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    const CpuOperation* const operation = CpuOperationOf(node.op);
    if (operation == nullptr) return Feasibility::Refuse(kNeedsRanks);
    if (operation->float_value && node.type != DataType::kFloat32) {
      return Feasibility::Refuse("the CPU dispatch makes float32 values only, casts apart");
    }
    for (std::size_t i = operation->first; i < std::min(operation->last, node.inputs.size()); ++i) {
      const DataType type = graph.node(node.inputs[i]).type;
      if (operation->codes && type == DataType::kFloat8_e4m3) continue;
      if (type != DataType::kFloat32) {
        return Feasibility::Refuse("the CPU dispatch reads float32 values only, caches apart");
      }
    }
    return Feasibility::Ok();
  }

  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    const TensorNode& node = graph.node(id);
    const CpuOperation& operation = *CpuOperationOf(node.op);
    if (operation.prepare == nullptr) {
      return std::unique_ptr<PreparedNode>(std::make_unique<PreparedPlain>(node.op));
    }
    Operation product;
    product.dispatch = options_.policy;
    product.determinism = options_.determinism;
    return operation.prepare({gemm_, product, expert_choices_}, graph, node);
  }

  std::size_t workspace(const ComputeGraph& graph, int id,
                        const PreparedNode* prepared) const override {
    const TensorNode& node = graph.node(id);
    const CpuOperation& operation = *CpuOperationOf(node.op);
    return operation.workspace == nullptr ? 0 : operation.workspace(graph, node, prepared);
  }

  Status launch(const NodeLaunch& launch) override {
    if (launch.prepared == nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    "launch.prepared is null; give what prepare returned for the node");
    }
    return KernelDispatch::launch(launch);
  }

  std::vector<std::string> fusion_names() const override { return CpuFusionNames(); }
  std::vector<Fusion> fusions(const ComputeGraph& graph) const override {
    return CpuFusions(graph);
  }
  Result<std::unique_ptr<PreparedNode>> prepare_fusion(const ComputeGraph& graph,
                                                       const Fusion& fusion) override {
    return std::unique_ptr<PreparedNode>(PreparedFusion::Create(graph, fusion));
  }
  Status dispatch_fusion(const NodeLaunch& launch) override {
    static_cast<const PreparedFusion*>(launch.prepared)->Launch(launch);
    return {};
  }

  Status dispatch_copy(DevicePtr src, DevicePtr dst, std::size_t bytes) override {
    std::memmove(FromDevicePtr<void>(dst), FromDevicePtr<const void>(src), bytes);
    return {};
  }

 protected:
  Status LaunchNode(const NodeLaunch& launch) override {
    return CpuOperationOf(launch.node().op)->launch(launch);
  }

 private:
  Gemm& gemm_;
  CpuDispatchOptions options_;
  ExpertChoices expert_choices_;
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeCpuDispatch(Gemm& gemm, const CpuDispatchOptions& options) {
  return std::make_unique<CpuDispatch>(gemm, options);
}

}  // namespace culet
