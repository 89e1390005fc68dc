// The groups of nodes that the CUDA dispatch launches together.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "graph/cuda/fused_product.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The names of all of them.
std::vector<std::string> FusionNames();

/// The fusions in the graph, the largest first, with norms of products' inputs if `fused` chooses
/// them, and gate and up of experts if `device` has a kernel.
std::vector<Fusion> FindFusions(const ComputeGraph& graph, FusedProducts& fused,
                                const DeviceInfo& device);

/// Frequencies over 2 pi on the device, as Rope takes them: once for all layers and graphs.
class RopeTables {
 public:
  explicit RopeTables(DeviceMemory& memory) : memory_(memory) {}
  /// Lives as long as this. Errors: as DeviceMemory.
  Result<const double*> Of(const RopeParams& params);

 private:
  DeviceMemory& memory_;
  std::vector<std::pair<RopeParams, DeviceBuffer>> tables_;
};

class PreparedFusion : public PreparedNode {
 public:
  /// Requires: one of FindFusions with `fused`; `tables` outlive it. Errors: as
  /// PreparedProduct::Create.
  static Result<std::unique_ptr<PreparedFusion>> Create(Gemm& gemm, DeviceMemory& memory,
                                                        const CudaDispatchOptions& options,
                                                        RopeTables& tables, FusedProducts& fused,
                                                        const ComputeGraph& graph,
                                                        const Fusion& fusion);
  virtual std::size_t workspace_bytes() const { return 0; }
  virtual Status Launch(const NodeLaunch& launch, LaunchStream stream) const = 0;
};

}  // namespace culet::cuda_ops
