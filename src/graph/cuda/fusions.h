// The groups of nodes that the CUDA dispatch launches together.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The names of all of them.
std::vector<std::string> FusionNames();

/// Those in the graph, the largest first.
std::vector<Fusion> FindFusions(const ComputeGraph& graph);

/// Frequencies over 2 pi on the device, as Rope takes them. Errors: as DeviceMemory.
Result<DeviceBuffer> RopeTurns(DeviceMemory& memory, const RopeParams& params);

class PreparedFusion : public PreparedNode {
 public:
  /// Requires: one of FindFusions. Errors: as PreparedProduct::Create.
  static Result<std::unique_ptr<PreparedFusion>> Create(Gemm& gemm, DeviceMemory& memory,
                                                        const CudaDispatchOptions& options,
                                                        const ComputeGraph& graph,
                                                        const Fusion& fusion);
  virtual std::size_t workspace_bytes() const { return 0; }
  virtual Status Launch(const NodeLaunch& launch, LaunchStream stream) const = 0;
};

}  // namespace culet::cuda_ops
