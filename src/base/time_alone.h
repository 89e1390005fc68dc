// How long work on the CPU takes while no other thread uses the CPU kernels.
#pragma once

#include <functional>

#include "base/thread_pool.h"
#include "culet/status.h"

namespace culet {

/// Microseconds of `run`, alone on `pool`. A sample that another caller of the pool disturbed,
/// since its patience had ended, is taken once more with callers that wait four times as long as it
/// took: what lasts longer than their patience gets its time too. `give_up`: as
/// MeasuringAlone::Options. `clock_s`: seconds; null: the steady clock. Errors: what `run` returns;
/// FAILED_PRECONDITION when other threads' products did not end in time, or one ran in both
/// samples.
Result<double> TimeAloneUs(ThreadPool& pool, const std::function<Status()>& run,
                           const std::function<bool()>& give_up = nullptr,
                           const std::function<double()>& clock_s = nullptr);

}  // namespace culet
