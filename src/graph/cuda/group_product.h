// The product of a fusion's group, with or without the norm of its input.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "graph/cuda/fused_product.h"
#include "graph/cuda/product.h"

namespace culet::cuda_ops {

class GroupProduct {
 public:
  /// The product that computes all `products` (JoinedProduct). If that is predicted to be faster,
  /// its epilogue also computes what `may` allows: SwiGlu, or the codes of it. If the norm of the
  /// input is in the fusion too, one kernel computes both, and SwiGlu if it can and may. Errors: as
  /// PreparedProduct::Create; UNSUPPORTED if the norm is in the fusion but no kernel computes both.
  static Result<std::unique_ptr<GroupProduct>> Create(
      Gemm& gemm, DeviceMemory& memory, const CudaDispatchOptions& options, FusedProducts& fused,
      const ComputeGraph& graph, const Fusion& fusion, std::span<const int> products, Epilogue may);

  std::string kernel() const;
  /// What the launch makes of the values.
  Epilogue epilogue() const noexcept { return epilogue_; }
  std::size_t workspace_bytes() const noexcept {
    return product_ == nullptr ? 0 : product_->workspace_bytes();
  }
  /// `output`: the values side by side, or the epilogue's result; `scales`: those of codes.
  Status Launch(const NodeLaunch& launch, DevicePtr output, DevicePtr scales, DevicePtr workspace,
                LaunchStream stream) const;

 private:
  GroupProduct() = default;

  Epilogue epilogue_ = Epilogue::kNone;
  int input_ = -1, scales_ = -1;  // of the product alone; -1: there are no scales
  std::unique_ptr<PreparedProduct> product_;
  // Or, with the norm:
  InputNorm norm_;
  std::string kernel_;
  std::unique_ptr<PreparedFusedProduct> fused_;
};

}  // namespace culet::cuda_ops
