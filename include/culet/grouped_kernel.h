// GroupedKernel: a kernel of grouped products, chosen, tuned and cached as all others.
#pragma once

#include "culet/gemm.h"
#include "culet/grouped.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// A kernel whose KernelDesc says `grouped`. It takes problems of DescribeGrouped, and its Launch
/// none.
class GroupedKernel : public Kernel {
 public:
  using Kernel::Kernel;

  /// Launches on the device of `gemm`, which is current; asynchronously on `stream` where it is a
  /// GPU. `args` has its defaults filled in, and `spec` is of this kernel. Requires:
  /// is_feasible(DescribeGrouped(args)). Errors: UNSUPPORTED for what the key does not tell, e.g.
  /// distances beyond 2^31; INTERNAL with what the device said.
  virtual Status LaunchGrouped(Gemm& gemm, const GroupedArgs& args, const LaunchSpec& spec,
                               cudaStream_t stream) const = 0;

  /// UNSUPPORTED: GemmArgs has no groups.
  int Launch(const Operation& operation, float alpha, const void* A, const MatrixLayout& Adesc,
             const void* U, const MatrixLayout& Udesc, const void* B, const MatrixLayout& Bdesc,
             const void* V, const MatrixLayout& Vdesc, float beta, const void* C,
             const MatrixLayout& Cdesc, void* D, const MatrixLayout& Ddesc, int swizzle, int splits,
             Workspace& workspace, cudaStream_t stream) final;
};

}  // namespace culet
