// A product of the graph on the engine: the arguments, the plan, the scratch memory.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"

namespace culet {

constexpr std::size_t PaddedTo256(std::size_t bytes) noexcept { return (bytes + 255) / 256 * 256; }

/// D (m, n) float32 = A (m, k) W^T + bias. A is float32, or E4M3 with scales for an E4M3 weight.
/// A, U and D are left null.
GemmArgs ProductArgs(std::int64_t m, const Weight& weight, const Weight& bias,
                     const QuantDesc& quant_a, const Operation& operation);

/// How an input becomes E4M3, as quant_a and scalar of a node say.
struct InputQuantiser {
  QuantDesc quant;  ///< kNone: it stays as it is
  float scale = 0;  ///< of every row, if above 0
};

/// (rows, cols) codes and their scales.
void QuantizeInput(const InputQuantiser& by, const float* x, std::int64_t rows, std::int64_t cols,
                   std::uint8_t* codes, float* scales);

/// An input quantised to E4M3, in scratch memory.
struct QuantisedRows {
  QuantisedRows(std::byte* memory, std::int64_t rows, std::int64_t cols) noexcept;
  static std::size_t Bytes(std::int64_t rows, std::int64_t cols, const QuantDesc& quant) noexcept;
  std::uint8_t* values;
  float* scales;
};

class PreparedProduct final : public PreparedNode {
 public:
  /// `by`: how the launch quantises its input. `order`: that of the weight's columns; null: as they
  /// are. Requires: one of them at most.
  PreparedProduct(GemmPlan plan, const InputQuantiser& by, const std::int32_t* order)
      : plan_(std::move(plan)), by_(by), order_(order) {}

  std::string kernel() const override { return plan_.spec().kernel->id(); }
  std::size_t workspace_bytes() const noexcept;
  /// `scales`: those of an already quantised input.
  Status Launch(const void* input, const float* scales, float* output, std::byte* workspace,
                cudaStream_t stream) const;

 private:
  GemmPlan plan_;
  InputQuantiser by_;
  const std::int32_t* order_;
};

}  // namespace culet
