// A product of the graph on a GPU: its input brought to the type that its kernel takes, then the
// plan.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "culet/dispatch.h"
#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "culet/tensor.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

inline constexpr int kCodesGroup = 128;  ///< elements of a row that share a scale

/// A product to plan. Addresses are those that are known before memory is planned, for their
/// alignment; 0 is memory of the arena.
struct ProductSpec {
  std::int64_t rows = 0;
  Weight weight, bias;
  QuantDesc quant_a;
  DataType input_type = DataType::kNull, output_type = DataType::kNull;
  bool quantised = false;  ///< the input has scales already
  /// A router's: what rounds its input moves tokens from one expert to another.
  bool routes = false;
  DevicePtr input = 0, scales = 0, output = 0;
  /// Of weights of gate and up, one behind the other: SwiGlu of the product, or its codes.
  Epilogue epilogue = Epilogue::kNone;
  /// Of the weights of all products of the input, and of those launched before them, if no
  /// attention is.
  std::int64_t weight_bytes = 0, weight_bytes_before = 0;

  /// Of a verified MulMat node.
  static ProductSpec Of(const ComputeGraph& graph, int id);
};

/// The product as the engine takes it. Addresses that are not known are null, and A's where it is
/// brought to another type first. `units`: the device's multiprocessors.
GemmArgs ArgsOf(const ProductSpec& spec, const CudaDispatchOptions& options, int units);

class PreparedProduct final : public PreparedNode {
 public:
  /// Errors: as Gemm::Plan, DeviceMemory::Allocate.
  static Result<std::unique_ptr<PreparedProduct>> Create(Gemm& gemm, DeviceMemory& memory,
                                                         const CudaDispatchOptions& options,
                                                         const ProductSpec& spec);

  std::string kernel() const override { return plan_.spec().kernel->id(); }
  std::size_t workspace_bytes() const noexcept { return scratch_bytes_; }
  /// `input_scales`: of an input that is quantised already, `output_scales`: of codes that the
  /// epilogue makes; else 0.
  Status Launch(DevicePtr input, DevicePtr input_scales, DevicePtr output, DevicePtr output_scales,
                DevicePtr workspace, LaunchStream stream) const;

 private:
  explicit PreparedProduct(GemmPlan plan) : plan_(std::move(plan)) {}

  GemmPlan plan_;
  DataType input_type_ = DataType::kNull;  // of the node's input
  DataType type_ = DataType::kNull;        // of what the plan reads
  DeviceBuffer barriers_;
  Workspace workspace_;              // without partial sums, which lie in scratch memory
  std::size_t converted_bytes_ = 0;  // of the input as the plan reads it; 0: as it is
  std::size_t scales_at_ = 0;        // of its scales, from the start of the scratch memory
  std::size_t scratch_bytes_ = 0;
};

}  // namespace culet::cuda_ops
