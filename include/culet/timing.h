// A launch checked and timed as it runs in a model: on inputs that no cache holds, and on a GPU
// between other launches. What the tuner and `culet bench` measure with.
#pragma once

#include <functional>
#include <memory>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/gemm.h"
#include "culet/kernel.h"
#include "culet/scratch.h"
#include "culet/status.h"

namespace culet {

/// Options of a ScratchProblem whose sets together exceed the last-level cache of a CPU, and three
/// times the L2 cache of a GPU, whose replacement keeps part of what is read in turn. A quarter of
/// the memory at most, so that measuring beside a loaded model cannot push it out, and 256 sets.
ScratchOptions ColdInputs(const DeviceInfo& device, const GemmDesc& desc);

/// How many launches one sample of a problem takes: 1 on the CPU; on a GPU every set once, and so
/// many that the sample lasts 600 us at least if each takes `launch_us`; 256 at most, and two at
/// least of launches below 500 us.
int LaunchesPerSample(const DeviceInfo& device, int sets, double launch_us) noexcept;

/// One LaunchSpec made ready on every set of a ScratchProblem. Both must outlive it.
class TimedLaunch {
 public:
  /// Plans, because a plan binds B. Errors: as Gemm::Plan.
  static Result<TimedLaunch> Create(Gemm& gemm, ScratchProblem& scratch, const LaunchSpec& spec);
  ~TimedLaunch();
  TimedLaunch(TimedLaunch&&) noexcept;
  TimedLaunch& operator=(TimedLaunch&&) noexcept;

  /// Launches once on a poisoned output and compares. `launch_s` (may be null): the seconds of that
  /// launch on the CPU, 0 on a GPU, where they are too few to matter. Errors: as GemmPlan::Launch
  /// and ScratchProblem::Compare; a wrong result is a report that is not ok().
  Result<ErrorReport> Check(double* launch_s = nullptr);

  /// Microseconds a launch, cold. On the CPU one launch on the next set; on a GPU a CUDA graph of
  /// LaunchesPerSample launches over the sets in turn, made at the first call, its time over their
  /// number. `sustained`: a GPU repeats the graph for 4 ms, so that this launch's own power counts
  /// in its clock. `give_up` (may be null) is asked while the CPU products of other threads are
  /// waited for; true ends that, as a minute does. Errors: as GemmPlan::Launch; FAILED_PRECONDITION
  /// when the kernel launches nothing on the stream it is given, or other threads' products did not
  /// end in time.
  Result<double> SampleUs(bool sustained = false, const std::function<bool()>& give_up = nullptr);

 private:
  struct Impl;
  explicit TimedLaunch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
