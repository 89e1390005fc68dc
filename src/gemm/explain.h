// The choice for a problem, and for every other kernel why not.
#pragma once

#include "culet/gemm.h"
#include "gemm/chooser.h"

namespace culet {

Result<Explanation> Explain(Chooser& chooser, const Registry& registry, const DeviceInfo& device,
                            const GemmDesc& desc);

}  // namespace culet
