// kAdvance on the host, for dispatches whose device that is.
#pragma once

#include "culet/kernel_dispatch.h"

namespace culet {

void AdvanceOnHost(const NodeLaunch& launch);

}  // namespace culet
