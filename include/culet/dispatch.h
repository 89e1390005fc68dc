// The dispatches that come with culet.
#pragma once

#include <memory>

#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
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
/// weights of products also E4M3 with FP32 scales a block of 128 x 128.
/// Requires: a Gemm of device "cpu" that outlives the dispatch.
std::unique_ptr<KernelDispatch> MakeCpuDispatch(Gemm& gemm, const CpuDispatchOptions& options = {});

/// The definition of every operation: computed on the CPU in double, rounded once to the value's
/// type. Takes every operation and every combination of float32, float16 and bfloat16.
std::unique_ptr<KernelDispatch> MakeReferenceDispatch();

}  // namespace culet
