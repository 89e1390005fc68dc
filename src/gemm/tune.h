// Measuring candidates: the loop between Tuner, ScratchProblem and the device's clock.
#pragma once

#include <vector>

#include "culet/gemm.h"
#include "gemm/time_limit.h"

namespace culet {

/// Checks each candidate against the reference on a poisoned output, then times it cold. The first
/// candidate is the default. Nothing is remembered. Appends those that failed to `dropped`.
/// Errors: UNSUPPORTED when all failed; RESOURCE_EXHAUSTED when `limit` left no time for a sample;
/// as ScratchProblem::Create and Tuner::Winner.
Result<TuneReport> MeasureCandidates(Gemm& gemm, const GemmDesc& desc,
                                     std::vector<LaunchSpec> candidates, const TuneOptions& options,
                                     const TimeLimit& limit, std::vector<Dropped>& dropped);

}  // namespace culet
