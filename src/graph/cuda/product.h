// A product of the graph on a GPU: converts the input to the kernel's type and to the order of the
// weight's columns, then launches the plan.
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

/// A product to plan. Addresses that are known before memory is planned give their alignment; 0
/// means memory of the arena.
struct ProductSpec {
  std::int64_t rows = 0;
  Weight weight, bias;
  QuantDesc quant_a;
  DataType input_type = DataType::kNull, output_type = DataType::kNull;
  bool quantised = false;  ///< the input has scales already
  /// A router's product: rounding its input would send tokens to other experts.
  bool routes = false;
  DevicePtr input = 0, scales = 0, output = 0;
  /// With joined gate and up weights: SwiGlu of the product, or its codes.
  Epilogue epilogue = Epilogue::kNone;
  /// Bytes of the weights of all products of this input, and of the products launched just before;
  /// 0 if attention lies between.
  std::int64_t weight_bytes = 0, weight_bytes_before = 0;

  /// Of a verified MulMat node.
  static ProductSpec Of(const ComputeGraph& graph, int id);
};

/// The product as the engine takes it. Unknown addresses are null, and so is A's if it is converted
/// first. `units`: the device's SMs.
GemmArgs ArgsOf(const ProductSpec& spec, const CudaDispatchOptions& options, int units);

class PreparedProduct final : public PreparedNode {
 public:
  /// Errors: as Gemm::Plan, DeviceMemory::Allocate.
  static Result<std::unique_ptr<PreparedProduct>> Create(Gemm& gemm, DeviceMemory& memory,
                                                         const CudaDispatchOptions& options,
                                                         const ProductSpec& spec);

  std::string kernel() const override { return plan_.spec().kernel->id(); }
  std::size_t workspace_bytes() const noexcept { return scratch_bytes_; }
  /// `input_scales`: those of an already quantised input. `output_scales`: those of codes that the
  /// epilogue makes. 0 if there are none.
  Status Launch(DevicePtr input, DevicePtr input_scales, DevicePtr output, DevicePtr output_scales,
                DevicePtr workspace, LaunchStream stream) const;

 private:
  explicit PreparedProduct(GemmPlan plan) : plan_(std::move(plan)) {}

  GemmPlan plan_;
  DataType input_type_ = DataType::kNull;  // of the node's input
  DataType type_ = DataType::kNull;        // of what the plan reads
  const std::int32_t* order_ = nullptr;    // of the weight's columns; null: as the input's
  DeviceBuffer barriers_;
  Workspace workspace_;              // without partial sums, which lie in scratch memory
  std::size_t converted_bytes_ = 0;  // of the input as the plan reads it; 0: as it is
  std::size_t scales_at_ = 0;        // of its scales, from the start of the scratch memory
  std::size_t scratch_bytes_ = 0;
};

}  // namespace culet::cuda_ops
