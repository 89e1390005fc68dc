// Routed experts on the host: the rows of each expert are multiplied as one batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"

namespace culet {

/// Choices that experts of all layers share: their shapes are the same. Forgotten when the cache
/// changes.
class ExpertChoices {
 public:
  explicit ExpertChoices(Gemm& gemm) : gemm_(gemm) {}

  /// kMeasure measures powers of two tokens, and `most`; numbers between are predicted from these
  /// measurements. Errors: as Gemm::Choose.
  Result<LaunchSpec> Choose(const GemmDesc& desc, std::int64_t most, DispatchPolicy policy);

 private:
  Gemm& gemm_;
  std::map<GemmDesc, LaunchSpec> known_;
  std::uint64_t generation_ = 0;  // of the cache that known_ comes from
};

/// An ExpertMulMat.
class PreparedExperts final : public PreparedNode {
 public:
  /// Chooses a kernel for every number of tokens that an expert may get.
  /// Errors: as Gemm::Choose.
  static Result<std::unique_ptr<PreparedNode>> Create(const ComputeGraph& graph,
                                                      const TensorNode& node,
                                                      const Operation& operation,
                                                      ExpertChoices& choices);

  std::string kernel() const override { return specs_.front().kernel->id(); }
  std::size_t workspace_bytes() const noexcept { return rows_bytes_ + partials_bytes_; }
  Status Launch(const NodeLaunch& launch) const;

 private:
  std::shared_ptr<const ExpertWeights> experts_;
  QuantDesc quant_a_;
  Operation operation_;
  std::int64_t tokens_ = 0;
  int active_ = 0;                 // above 0: rows are gathered
  std::vector<LaunchSpec> specs_;  // index: tokens - 1
  std::size_t rows_bytes_ = 0;     // of what is gathered
  std::size_t partials_bytes_ = 0;
};

}  // namespace culet
