// A product and its neighbours in one launch: an optional interface of a Kernel, used by graph
// dispatches.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/problem.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// What stands before and behind D = A B, A (m, k), B (k, n):
/// A = RmsNorm(x), or RmsNorm(x + y), rounded to A's type; then D (m, n / 2) = SwiGlu(left half,
/// right half), both rounded to D's type before.
struct ProductFusion {
  const void* gamma = nullptr;            ///< (k), aligned to 16 bytes
  DataType gamma_type = DataType::kNull;  ///< float32, float16 or bfloat16
  float epsilon = 0.0f;
  bool adds = false;   ///< y
  bool gated = false;  ///< SwiGlu
};

/// The operands of one launch; x, y and the sum are float32, (m, k), aligned to 16 bytes. The sum
/// does not overlap x or y; null if it is not wanted.
struct FusedProductPointers {
  const float* x = nullptr;
  const float* y = nullptr;
  float* sum = nullptr;
  void* D = nullptr;
};

/// A prepared launch. Const, so several threads and streams may use it.
class PreparedFusedProduct {
 public:
  virtual ~PreparedFusedProduct() = default;
  virtual cudaError_t Launch(const FusedProductPointers& pointers,
                             cudaStream_t stream) const noexcept = 0;
};

/// Implemented by a Kernel that fuses. The result has the same bits as cuda_ops/fused_norm.cu, the
/// product alone, and cuda_ops/fused_swiglu.cu, launched one after the other.
class FusesProducts {
 public:
  virtual ~FusesProducts() = default;

  /// Ok, or why not. Requires: the kernel takes the product alone.
  virtual Feasibility WhyFused(const GemmDesc& product, const ProductFusion& fusion,
                               int splits) const noexcept = 0;

  /// Predicted microseconds of the whole. Requires: WhyFused is Ok.
  virtual double PredictFusedUs(const GemmDesc& product, const ProductFusion& fusion,
                                const DeviceInfo& device, const HardwareRates& rates,
                                int splits) const noexcept = 0;

  /// `args`: the product alone, as for Kernel::Prepare. Requires: WhyFused is Ok.
  /// Errors: INVALID_ARGUMENT for operands that it does not take; INTERNAL when it does not load.
  virtual Result<std::unique_ptr<PreparedFusedProduct>> PrepareFused(const GemmArgs& args,
                                                                     const ProductFusion& fusion,
                                                                     int splits) const = 0;
};

}  // namespace culet
