// Measuring candidates: the loop between Tuner, ScratchProblem and the device's clock.
#pragma once

#include <vector>

#include "culet/gemm.h"

namespace culet {

/// Checks each candidate against the reference on a poisoned output, then times it cold. The first
/// candidate is the default. Nothing is remembered. Appends those that failed to `dropped`.
/// Errors: UNSUPPORTED when all failed; as ScratchProblem::Create and Tuner::Winner.
Result<TuneReport> MeasureCandidates(Gemm& gemm, const GemmDesc& desc,
                                     std::vector<LaunchSpec> candidates, const TuneOptions& options,
                                     std::vector<Dropped>& dropped);

}  // namespace culet
