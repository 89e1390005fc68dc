// Measuring candidates: the loop between Tuner, ScratchProblem and the device's clock.
#pragma once

#include <vector>

#include "culet/gemm.h"

namespace culet {

/// Checks each candidate against the reference on a poisoned output, then times it cold. The first
/// candidate is the default. Nothing is remembered.
Result<TuneReport> MeasureCandidates(Gemm& gemm, const GemmDesc& desc,
                                     std::vector<LaunchSpec> candidates,
                                     const TuneOptions& options);

}  // namespace culet
