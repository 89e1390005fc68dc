// Products by routed experts on Hopper's tensor cores (kernels/sm90/grouped): one by itself, or
// gate and up with their activation.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "culet/device.h"
#include "culet/dispatch.h"
#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"
#include "kernels/cuda_ops/ops.h"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"

namespace culet::cuda_ops {

/// The ExpertMulMats of one launch; -1: there is none.
struct ExpertNodes {
  int product = -1;     ///< gate where there is an activation
  int up = -1;          ///< read by the activation alone, as gate is
  int activation = -1;  ///< SwiGlu or ClampedSwiGlu
};

/// Those whose values `activation` reads, if no other node does, and one launch may compute them
/// all; else without a product.
ExpertNodes ExpertsOf(const ComputeGraph& graph, int activation);

/// Where a launch's values lie; 0: there are none.
struct ExpertAddresses {
  DevicePtr x = 0, x_scales = 0, routes = 0, shares = 0;
  /// The launch that made the routes has ended before this one can begin, even if this one begins
  /// while the one before it runs.
  bool routes_done = false;
};

class GroupedExperts {
 public:
  /// Null where no grouped kernel takes the nodes. Errors: as DeviceMemory::Allocate; as
  /// Gemm::Choose where the policy is kMeasure.
  static Result<std::unique_ptr<GroupedExperts>> Create(Gemm& gemm, DeviceMemory& memory,
                                                        const CudaDispatchOptions& options,
                                                        const ComputeGraph& graph,
                                                        const ExpertNodes& nodes);
  /// Whether Create finds a kernel.
  static bool Takes(const DeviceInfo& device, const CudaDispatchOptions& options,
                    const ComputeGraph& graph, const ExpertNodes& nodes);

  std::string kernel() const { return kernel_; }
  /// Whether rows of X at this address can be read.
  static bool TakesInput(DevicePtr x) noexcept { return x % 16 == 0; }
  std::size_t workspace_bytes() const noexcept {
    return converted_bytes_ + codes_bytes_ + scales_bytes_;
  }
  Status Launch(const NodeLaunch& launch, const ExpertAddresses& at, LaunchStream stream) const;

 private:
  GroupedExperts() = default;
  template <class Product>
  Status Start(Product product, const NodeLaunch& launch, const ExpertAddresses& at,
               LaunchStream stream) const;

  std::string kernel_;
  std::int64_t experts_ = 0, routes_ = 0;  // of all ranks
  std::int64_t first_ = 0;                 // of the experts that are here
  bool has_shares_ = false;
  int active_ = 0;  // above 0: X has a row a token, and each goes to so many experts
  DataType input_type_ = DataType::kNull, type_ = DataType::kNull;  // of X, and in the product
  std::int64_t input_rows_ = 0;
  std::size_t converted_bytes_ = 0;  // of X's rows in the weights' type, where it has another
  // Of rows that are gathered ahead of the product; 0: its kernel gathers them.
  std::size_t codes_bytes_ = 0, scales_bytes_ = 0;
  DeviceBuffer biases_;
  std::variant<sm90::GroupedSwapLaunch, sm90::GroupedSkinnyLaunch> launch_;
};

/// Where the inputs behind the rows of an ExpertMulMat lie among its inputs: routes, then shares
/// if they are there.
struct ExpertInputs {
  int x = -1, scales = -1, routes = -1, shares = -1;  ///< nodes
};
ExpertInputs InputsOfExperts(const ComputeGraph& graph, const TensorNode& node) noexcept;

}  // namespace culet::cuda_ops
