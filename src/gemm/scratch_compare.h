// What became of the output of a synthetic problem.
#pragma once

#include <cstddef>

#include "culet/scratch.h"
#include "gemm/scratch_layout.h"
#include "gemm/scratch_oracle.h"

namespace culet {

/// Judges D's region, guard zones included: `found` is what is there, `image` what was before the
/// launch. Both start at d.begin and are aligned as it is.
ErrorReport CompareOutput(const Region& d, const std::byte* found, const std::byte* image,
                          const Oracle& oracle);

}  // namespace culet
