// Shared by all Hopper families: the common part of a kernel's argument, binding a problem and
// later other operands to it, and a launch that is planned once and started often. A family adds
// its tensor maps or addresses and its schedule.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "culet/layout/host_device.h"
#include "kernels/sm90/product/epilogue.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product.h"
#include "kernels/sm90/product/start.h"

namespace culet::sm90 {

/// The part common to every kernel's argument.
struct ProductParams {
  const float* scale_a = nullptr;  ///< of Sums::kBlockScaled; strides are in elements, so either
  const float* scale_b = nullptr;  ///< order of U and V is served
  void* d = nullptr;
  std::int64_t ldd = 0;  ///< elements
  int scale_a_row = 0, scale_a_block = 0;
  int scale_b_column = 0, scale_b_block = 0;
  int m = 0, n = 0;
  EpilogueParams epilogue;  ///< of a plain one alpha counts alone

  void Put(const ProductProblem& problem, const FormatInfo& format, EpilogueKind kind) {
    if (format.sums == Sums::kBlockScaled) {
      scale_a = problem.scale_a;
      scale_b = problem.scale_b;
      scale_a_row = problem.scale_a_row;
      scale_a_block = problem.scale_a_block;
      scale_b_column = problem.scale_b_column;
      scale_b_block = problem.scale_b_block;
    }
    d = problem.d;
    ldd = problem.ldd;
    m = problem.m;
    n = problem.n;
    if (kind != EpilogueKind::kPlain) epilogue = problem.epilogue;
    epilogue.alpha = problem.alpha;
    if (epilogue.beta == 0.0f) epilogue.c = nullptr;
  }
  void Put(const GemmOperands& operands, const FormatInfo& format) {
    (format.sums == Sums::kBlockScaled ? scale_a : epilogue.scale_a) = operands.scale_a;
    d = operands.d;
    epilogue.alpha = operands.alpha;
    epilogue.beta = operands.beta;
    if (operands.d_scale != nullptr) epilogue.d_scale = operands.d_scale;
    epilogue.c = operands.beta != 0.0f ? operands.c : nullptr;
  }
};

/// Whether D is alpha times the sums.
CULET_HOST_DEVICE constexpr bool IsPlain(const EpilogueParams& e) {
  return e.scale_a == nullptr && e.scale_b == nullptr && e.bias == nullptr && e.beta == 0.0f;
}

/// Everything but the stream. `Params`: a ProductParams with
///   bool Bind(const GemmOperands&)   puts A and D where the family's loads and stores find them;
///                                    false when the driver refuses
template <class Params>
struct ProductLaunch {
  const FormatInfo* format = nullptr;
  const void* function = nullptr;
  const void* held = nullptr;  ///< instead of it where D is alpha times the sums; mostly null
  LaunchShape shape;
  Params params;

  /// The kernel that it runs, with the operands that it has now.
  const void* Function() const {
    return held != nullptr && IsPlain(params.epilogue) ? held : function;
  }
  /// Whether it was planned with a C.
  bool AddsC() const { return params.epilogue.ldc != 0; }
  /// Puts other operands of the plan's shapes and alignments into it. C is null where it was. False
  /// when the driver refuses.
  bool Rebind(const GemmOperands& operands) {
    params.Put(operands, *format);
    return params.Bind(operands);
  }
  cudaError_t Start(cudaStream_t stream) const {
    return StartKernel(Function(), shape, params, stream);
  }
};

/// Loads what launches of a family's `kernel` run on the current device and raises its
/// shared-memory limit; not during a capture.
template <class Kernel>
cudaError_t Load(const Kernel& kernel) {
  const void* also = nullptr;
  if constexpr (requires { kernel.held; }) also = kernel.held;
  if constexpr (requires { kernel.of_halves; }) also = kernel.of_halves;
  const cudaError_t error = LoadKernel(kernel.function, kSmemPerCta);
  return error != cudaSuccess || also == nullptr ? error : LoadKernel(also, kSmemPerCta);
}

}  // namespace culet::sm90
