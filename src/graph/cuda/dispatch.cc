// The CUDA dispatch: products through the engine, the rest through kernels/cuda_ops.
#include "graph/cuda/dispatch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/accelerator.h"
#include "base/device_scope.h"
#include "base/scales.h"
#include "cuda/error.h"
#include "graph/cuda/fused_product.h"
#include "graph/cuda/fusions.h"
#include "graph/cuda/operations.h"
#include "graph/cuda/prepared_nodes.h"
#include "graph/table_dispatch.h"
#include "graph/table_rows.h"

namespace culet::cuda_ops {
namespace {

class CudaDispatch final : public TableDispatch {
 public:
  CudaDispatch(Gemm& gemm, DeviceMemory& memory, const CudaDispatchOptions& options,
               Recorder recorder)
      : gemm_(gemm), memory_(memory), options_(options), recorder_(std::move(recorder)) {
    const DeviceScope scope(gemm.device().ordinal);
    options_.overlap = options.overlap && CanOverlap();
  }

  DeviceMemory& memory() override { return memory_; }

  // Products with weights of bfloat16 or of codes round their inputs to bfloat16 anyway. E4M3 codes
  // are better made of unrounded values: one rounded value in thirty falls to the other side of a
  // tie.
  DataType preferred_values(DataType weights) const override {
    const bool rounds = weights == DataType::kBfloat16 || IsCode(weights);
    return options_.round_product_inputs && rounds ? DataType::kBfloat16 : DataType::kFloat32;
  }

  // If the caller captures a graph, the kernels go into it. The default streams cannot be captured.
  bool records(cudaStream_t stream) const override {
    return recorder_ != nullptr && (stream == nullptr || !IsCapturing(stream));
  }
  // A graph takes milliseconds to prepare and to record, a row of padding next to nothing.
  bool prefers_buckets() const override { return true; }
  // 512 rows do not fill the chip with a small model's products.
  int preferred_step_tokens() const override { return 2048; }
  Result<std::unique_ptr<RecordedLaunches>> record(const LaunchFunction& launches) override {
    return recorder_(launches);
  }

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    const CudaOperation* const operation = CudaOperationOf(node.op);
    if (operation == nullptr) return Feasibility::Refuse(kNeedsRanks);
    return Supports(*operation, graph, node);
  }

  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    const DeviceScope scope(gemm_.device().ordinal);
    const TensorOp op = graph.node(id).op;
    const CudaOperation& operation = *CudaOperationOf(op);
    if (operation.prepare == nullptr) {
      return std::unique_ptr<PreparedNode>(std::make_unique<PreparedPlain>(op));
    }
    return operation.prepare({gemm_, memory_, options_, rope_}, graph, id);
  }

  std::size_t workspace(const ComputeGraph& graph, int id,
                        const PreparedNode* prepared) const override {
    const TensorNode& node = graph.node(id);
    const CudaOperation& operation = *CudaOperationOf(node.op);
    return operation.workspace == nullptr ? 0 : operation.workspace(graph, node, prepared);
  }

  std::vector<std::string> fusion_names() const override { return FusionNames(); }

  std::vector<Fusion> fusions(const ComputeGraph& graph) const override {
    const DeviceScope scope(gemm_.device().ordinal);
    std::vector<Fusion> found = FindFusions(graph, *fused_, gemm_.device());
    // A fusion of unsupported nodes is unsupported, and so is one on tensor cores when exact
    // results are asked for.
    std::erase_if(found, [&](const Fusion& fusion) {
      const bool attends = std::ranges::find(fusion.nodes, TensorOp::kAttention, [&](int id) {
                             return graph.node(id).op;
                           }) != fusion.nodes.end();
      if (attends && !options_.round_product_inputs) return true;
      return !std::ranges::all_of(fusion.nodes, [&](int id) { return supports(graph, id).ok(); });
    });
    return found;
  }

  Result<std::unique_ptr<PreparedNode>> prepare_fusion(const ComputeGraph& graph,
                                                       const Fusion& fusion) override {
    const DeviceScope scope(gemm_.device().ordinal);
    auto made = PreparedFusion::Create(gemm_, memory_, options_, rope_, *fused_, graph, fusion);
    if (!made) return made.status();
    return std::unique_ptr<PreparedNode>(*std::move(made));
  }

  std::size_t workspace_fusion(const ComputeGraph&, const Fusion&,
                               const PreparedNode* prepared) const override {
    return static_cast<const PreparedFusion*>(prepared)->workspace_bytes();
  }

  Status dispatch_fusion(const NodeLaunch& launch) override {
    return static_cast<const PreparedFusion*>(launch.prepared)->Launch(launch, stream());
  }

  Status launch(const NodeLaunch& launch) override {
    if (launch.prepared == nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    "launch.prepared is null; give what prepare returned for the node");
    }
    const int ordinal = gemm_.device().ordinal;
    if (!IsStreamOf(launch.stream, ordinal)) return StreamOfAnother(ordinal);
    const DeviceScope scope(ordinal);
    return KernelDispatch::launch(launch);
  }

  Status dispatch_copy(DevicePtr src, DevicePtr dst, std::size_t bytes) override {
    return CudaStatus(cudaMemcpyAsync(FromDevicePtr<void>(dst), FromDevicePtr<const void>(src),
                                      bytes, cudaMemcpyDeviceToDevice, stream().stream),
                      std::string("launching ") + ToString(current().node().op));
  }

 protected:
  Status LaunchNode(const NodeLaunch& launch) override {
    return CudaOperationOf(launch.node().op)->launch(launch, stream());
  }

 private:
  // A graph's first kernel begins only when the whole previous launch has ended (MayReadEarly).
  LaunchStream stream() const noexcept {
    return {current().stream, options_.overlap && current().previous != nullptr};
  }

  Gemm& gemm_;
  DeviceMemory& memory_;
  CudaDispatchOptions options_;
  Recorder recorder_;
  RopeTables rope_{memory_};
  // Remembers what was decided for each problem.
  const std::unique_ptr<FusedProducts> fused_ = std::make_unique<FusedProducts>(gemm_, options_);
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeDispatch(Gemm& gemm, DeviceMemory& memory,
                                             const CudaDispatchOptions& options,
                                             Recorder recorder) {
  return std::make_unique<CudaDispatch>(gemm, memory, options, std::move(recorder));
}

}  // namespace culet::cuda_ops
