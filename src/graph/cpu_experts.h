// Routed experts on the host: the tokens of each expert are gathered, multiplied as one batch and
// added to the output.
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

class PreparedExperts final : public PreparedNode {
 public:
  /// Chooses a kernel for every number of tokens that an expert may get.
  /// Errors: as Gemm::Choose.
  static Result<std::unique_ptr<PreparedNode>> Create(const TensorNode& node,
                                                      const Operation& operation,
                                                      ExpertChoices& choices);

  std::string kernel() const override { return in_.front().kernel->id(); }
  std::size_t workspace_bytes() const noexcept { return workspace_bytes_; }
  Status Launch(const float* input, const float* router_logits, float* output, std::byte* workspace,
                cudaStream_t stream) const;

 private:
  struct Memory;  // the parts of the workspace
  Memory Split(std::byte* workspace) const;
  Status Multiply(const std::vector<LaunchSpec>& specs, std::int64_t m, const Weight& weight,
                  const float* input, const Memory& memory, float* output,
                  cudaStream_t stream) const;

  std::shared_ptr<const ExpertParams> params_;
  QuantDesc quant_a_;
  Operation operation_;
  std::int64_t tokens_ = 0, hidden_ = 0, width_ = 0;
  std::vector<LaunchSpec> in_, out_;  // for gate and up, for down; index: tokens - 1
  std::size_t partials_bytes_ = 0;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace culet
