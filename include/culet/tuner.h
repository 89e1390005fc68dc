// Tuner: proposes what to measure next. Pure: the caller launches, checks and times.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// How long to look, and when two times count as equal. What is not set is the default of
/// ForDevice.
struct TunerOptions {
  double budget_s = 0;  ///< 0: no limit. From construction, checked between measurements; below 0
                        ///< (what a caller had left) it is spent
  std::optional<int> rounds;          ///< samples a surviving candidate gets
  std::optional<int> quick_rounds;    ///< of these before the sustained ones, which replace them
  std::optional<double> settle_s;     ///< of samples beyond these at most, while who is ahead of
                                      ///< the default is open
  std::optional<int> max_candidates;  ///< best predicted kept; the default is always among them
  std::optional<int> clusters;        ///< groups of alike kernels that survive the first round
  std::optional<double> drop_ratio;   ///< after a round, a candidate slower than this times the
                                      ///< best goes
  std::optional<double> noise;      ///< relative; the band is at least this, at least the error of
                                    ///< the median of two candidates' ratios
  std::function<double()> clock_s;  ///< seconds; null: the steady clock. Must not throw
};

/// Fills in the options that are not set: 9 rounds; on the CPU, where a sample is one launch, all
/// of them quick, half a second to settle, 24 candidates, 5 clusters, a drop ratio of 1.25 and a
/// noise of 0.01; on a GPU, where a sample is the mean of many launches and takes less time, 5
/// quick rounds, none to settle, 160, 12, 1.1 and 0.005. Without it a Tuner takes those of the CPU.
TunerOptions ForDevice(TunerOptions options, const DeviceInfo& device);

/// A candidate that was not timed to the end, and why.
struct Dropped {
  LaunchSpec spec;
  Status reason;
};

/// Chooses among candidates by interleaved rounds. The first candidate is the default: it wins
/// unless another is faster by more than the noise band, so reruns and ranks agree and the winner
/// is never slower than the default.
///   while (const LaunchSpec* spec = tuner.Next()) tuner.Report(measure(*spec));
/// The order of proposals depends on the candidates and the reported times alone.
///  1. When there are more groups of alike candidates (Cluster) than `clusters`, one leader of each
///     is sampled twice; the best groups and the default's go on, whole and from the start.
///  2. All candidates left are sampled `rounds` times, in a new order each round. After a round
///     those slower than drop_ratio times the best are dropped (after the first only beyond its
///     square: one sample may be an outlier). The default stays. From the sixth round on candidates
///     with three samples or more are dropped beyond two fifths of the ratio's excess. Sustained
///     samples replace those of the quick rounds. Rounds continue, up to eight times as many within
///     half of settle_s, while it is undecided whether a candidate beats the default.
///  3. The first candidate within `noise` of the best median is measured again, alternating with
///     the default, for as many rounds; only these samples decide. If the default wins, the next
///     one is tried.
/// A default that fails is replaced by the first candidate that did not.
class Tuner {
 public:
  explicit Tuner(std::vector<LaunchSpec> candidates, TunerOptions options = {});
  ~Tuner();

  /// The candidate to measure now, or null when done. Requires: Report or Drop answered the last.
  const LaunchSpec* Next();

  /// One cold sample of the candidate that Next proposed, in microseconds; > 0 and finite, anything
  /// else drops it.
  void Report(double time_us);

  /// The candidate failed, refused, or gave a wrong result; it is never timed again.
  void Drop(Status reason);

  /// Whether the proposed candidate needs a sustained sample: the remaining ones are so close that
  /// the power each draws, and with it a GPU's clock, may decide.
  bool sustained() const noexcept;

  /// Share of the work done, 0 to 1, for progress bars; never falls.
  double progress() const noexcept;
  bool out_of_budget() const noexcept;

  /// The winner with median, spread and baseline; origin kMeasured, `when` is left to the caller.
  /// Before the end, or out of budget, the best that the samples so far support: with fewer than
  /// three of them a candidate must beat the default by drop_ratio.
  /// Errors: UNSUPPORTED with every reason when all candidates were dropped;
  /// RESOURCE_EXHAUSTED when the budget ended before any sample; FAILED_PRECONDITION before the
  /// first sample.
  Result<LaunchSpec> Winner() const;

  /// Median and spread of each candidate still measured, fastest first.
  std::vector<LaunchSpec> Standings() const;
  const std::vector<Dropped>& dropped() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
