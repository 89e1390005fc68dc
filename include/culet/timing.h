// A launch checked and timed as it runs in a model: on inputs that no cache holds, and on a GPU
// between other launches. What the tuner and `culet bench` measure with.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/gemm.h"
#include "culet/grouped_scratch.h"
#include "culet/kernel.h"
#include "culet/scratch.h"
#include "culet/status.h"

namespace culet {

/// Options of a ScratchProblem whose sets together exceed a CPU's last-level cache, or three times
/// a GPU's L2, whose replacement policy keeps part of rotating inputs. At most a quarter of the
/// memory, so that measuring beside a loaded model cannot evict it, and 256 sets.
ScratchOptions ColdInputs(const DeviceInfo& device, const GemmDesc& desc);

/// The launches of one sample: 1 on the CPU. On a GPU every set once, and so many that the sample
/// lasts at least 600 us if each takes `launch_us`; at most 256, and at least two of launches below
/// 500 us.
int LaunchesPerSample(const DeviceInfo& device, int sets, double launch_us) noexcept;

class TimedLaunch;

/// What launches of a problem are checked and timed on: ColdInputs, or of a grouped product a
/// GroupedScratch.
class TimingInputs {
 public:
  /// `routing`: as GroupedScratchOptions. Errors: as ScratchProblem::Create,
  /// GroupedScratch::Create.
  static Result<TimingInputs> Create(const DeviceInfo& device, const GemmDesc& desc,
                                     std::function<bool()> stop = nullptr,
                                     std::optional<GroupedRouting> routing = {});
  /// Must not outlive this, nor this be moved while it lives. Errors: as Gemm::Plan.
  Result<TimedLaunch> Prepare(Gemm& gemm, const LaunchSpec& spec);
  /// Null for a plain product.
  const GroupedScratch* grouped() const noexcept { return grouped_ ? &*grouped_ : nullptr; }

 private:
  TimingInputs() = default;
  std::optional<ScratchProblem> plain_;
  std::optional<GroupedScratch> grouped_;
};

/// One LaunchSpec prepared on every set of a ScratchProblem. Both must outlive it.
class TimedLaunch {
 public:
  struct Impl;
  /// Plans, because a plan binds B. Errors: as Gemm::Plan.
  static Result<TimedLaunch> Create(Gemm& gemm, ScratchProblem& scratch, const LaunchSpec& spec);
  /// The same of a grouped product.
  static Result<TimedLaunch> Create(Gemm& gemm, GroupedScratch& scratch, const LaunchSpec& spec);
  ~TimedLaunch();
  TimedLaunch(TimedLaunch&&) noexcept;
  TimedLaunch& operator=(TimedLaunch&&) noexcept;

  /// Launches once on a poisoned output and compares; a wrong result of a grouped product is an
  /// error, as GroupedScratch::Check. `launch_s` (may be null): the seconds of that
  /// launch on the CPU, 0 on a GPU, where they are too few to matter. Errors: as GemmPlan::Launch
  /// and ScratchProblem::Compare; a wrong result is a report that is not ok().
  Result<ErrorReport> Check(double* launch_s = nullptr);

  /// Microseconds a launch, cold. On the CPU one launch on the next set; on a GPU a CUDA graph of
  /// LaunchesPerSample launches over the sets in turn, recorded at the first call; the result is
  /// its time over their number. `sustained`: a GPU repeats the graph for 4 ms, so that this
  /// launch's own power sets the clock. `give_up` (may be null) is called while waiting for CPU
  /// products of other threads; true ends the wait, as a minute does. Errors: as GemmPlan::Launch;
  /// FAILED_PRECONDITION when the kernel launches nothing on the stream it is given, or other
  /// threads' products did not end in time.
  Result<double> SampleUs(bool sustained = false, const std::function<bool()>& give_up = nullptr);

 private:
  explicit TimedLaunch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
