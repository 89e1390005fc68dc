// The contract of programmatic dependent launches.
#pragma once

#include "culet/gemm.h"

namespace culet {

/// Every job after a kernel that keeps A and U poisoned until its end and watches D meanwhile:
/// nothing of either may be touched before it has ended. First, a kernel that does not wait must be
/// caught. Prints one line; returns whether all was right.
bool CheckPredecessors(Gemm& gemm);

}  // namespace culet
