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
  /// The product that makes the values of all `products` (JoinedProduct). Where their input's norm
  /// is in the fusion, too, one kernel computes both, and SwiGlu of the values when it can and
  /// `may_gate`. Errors: as PreparedProduct::Create; UNSUPPORTED when the norm is in the fusion but
  /// no kernel computes both.
  static Result<std::unique_ptr<GroupProduct>> Create(Gemm& gemm, DeviceMemory& memory,
                                                      const CudaDispatchOptions& options,
                                                      FusedProducts& fused,
                                                      const ComputeGraph& graph,
                                                      const Fusion& fusion,
                                                      std::span<const int> products, bool may_gate);

  std::string kernel() const;
  /// Whether the launch makes SwiGlu of the halves of the values.
  bool gated() const noexcept { return gated_; }
  std::size_t workspace_bytes() const noexcept {
    return product_ == nullptr ? 0 : product_->workspace_bytes();
  }
  /// `output`: the values side by side, or their SwiGlu.
  Status Launch(const NodeLaunch& launch, DevicePtr output, DevicePtr workspace,
                LaunchStream stream) const;

 private:
  GroupProduct() = default;

  int input_ = -1, scales_ = -1;  // of the product alone; -1: there are no scales
  std::unique_ptr<PreparedProduct> product_;
  // Or, with the norm:
  InputNorm norm_;
  bool gated_ = false;
  std::string kernel_;
  std::unique_ptr<PreparedFusedProduct> fused_;
};

}  // namespace culet::cuda_ops
