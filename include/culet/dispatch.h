// The dispatches that come with culet.
#pragma once

#include <memory>

#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

struct CpuDispatchOptions {
  /// Where the products' kernels come from: kMeasure tunes in `prepare`.
  DispatchPolicy policy = DispatchPolicy::kDefault;
  /// kBatchInvariant: a sequence's bits do not depend on what else is in the batch; slow so far.
  Determinism determinism = Determinism::kFast;
};

/// The CPU with all its threads: products through `gemm`, the rest by vector loops in FP32. Takes
/// every operation on float32 values; caches and weights may be float32, float16 or bfloat16,
/// weights of products also E4M3 with FP32 scales a block of 128 x 128, caches of keys and values
/// E4M3 with FP32 scales a head.
/// Requires: a Gemm of device "cpu" that outlives the dispatch.
std::unique_ptr<KernelDispatch> MakeCpuDispatch(Gemm& gemm, const CpuDispatchOptions& options = {});

struct CudaDispatchOptions {
  /// Where the products' kernels come from: kMeasure tunes in `prepare`.
  DispatchPolicy policy = DispatchPolicy::kDefault;
  /// As Operation::determinism, for products.
  Determinism determinism = Determinism::kFast;
  /// Inputs of products with weights of 16 bits are rounded to the weights' type, which tensor
  /// cores take. False: inputs stay unrounded, and all products are summed in FP32
  /// (Accumulate::kFull), many times slower.
  bool round_product_inputs = true;
  /// Kernels begin while the one before them still runs, products with their weights
  /// (programmatic dependent launch), on devices of compute capability 9.0 or later.
  bool overlap = true;
};

/// A GPU: products through `gemm`, the rest by kernels of its own. Takes every operation on float32
/// and bfloat16 values; caches and weights as MakeCpuDispatch. Models are loaded into the
/// dispatch's memory(), which lives as long as the process.
/// Errors: INVALID_ARGUMENT for a Gemm of the host; UNSUPPORTED in a build without CUDA.
/// Requires: a Gemm that outlives the dispatch.
Result<std::unique_ptr<KernelDispatch>> MakeCudaDispatch(Gemm& gemm,
                                                         const CudaDispatchOptions& options = {});

/// The definition of every operation: computed on the CPU in double, rounded once to the value's
/// type. Takes every operation and every combination of float32, float16 and bfloat16, and of E4M3
/// where culet/graph.h has it.
std::unique_ptr<KernelDispatch> MakeReferenceDispatch();

}  // namespace culet
