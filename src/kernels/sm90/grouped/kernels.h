// The grouped kernels as culet::Kernels.
#pragma once

#include "kernels/catalog.h"

namespace culet::sm90 {

/// One for each compiled kernel, best for few rows first.
void AddGroupedKernels(KernelList& kernels);

}  // namespace culet::sm90
