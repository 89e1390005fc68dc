// What launching a plan costs beside the kernel: measured with a kernel that does nothing.
#pragma once

#include <functional>

#include "contenders.h"
#include "culet/gemm.h"
#include "culet/status.h"

namespace culet::cli {

struct LaunchOverhead {
  double plan_us = 0;    ///< GemmPlan::Launch with the no-op kernel
  double kernel_us = 0;  ///< the same kernel's Kernel::Launch, called directly
};

/// Registers the no-op kernel with `gemm` and times it. Takes about a tenth of a second.
Result<LaunchOverhead> MeasureLaunchOverhead(
    Gemm& gemm, const std::function<double()>& clock_s = SteadySeconds);

}  // namespace culet::cli
