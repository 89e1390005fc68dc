// The CUDA dispatch over any memory: MakeCudaDispatch gives it a GPU's, tests the host's.
#pragma once

#include <functional>
#include <memory>

#include "culet/dispatch.h"

namespace culet::cuda_ops {

/// As KernelDispatch::record.
using Recorder = std::function<Result<std::unique_ptr<RecordedLaunches>>(const LaunchFunction&)>;

/// `gemm` computes on `memory`; both outlive the dispatch. A null `recorder` records nothing.
std::unique_ptr<KernelDispatch> MakeDispatch(Gemm& gemm, DeviceMemory& memory,
                                             const CudaDispatchOptions& options,
                                             Recorder recorder = nullptr);

}  // namespace culet::cuda_ops
