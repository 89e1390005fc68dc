// The CUDA dispatch over any memory: MakeCudaDispatch gives it a GPU's, tests the host's.
#pragma once

#include <memory>

#include "culet/dispatch.h"

namespace culet::cuda_ops {

/// `gemm` multiplies what lies in `memory`; both outlive the dispatch.
std::unique_ptr<KernelDispatch> MakeDispatch(Gemm& gemm, DeviceMemory& memory,
                                             const CudaDispatchOptions& options);

}  // namespace culet::cuda_ops
