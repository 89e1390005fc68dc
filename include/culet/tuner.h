// Tuner: proposes what to measure next. Pure: the caller launches, checks and times.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// How long to look, and when two times count as equal.
struct TunerOptions {
  double budget_s = 0;         ///< 0: no limit. Checked between measurements
  int rounds = 5;              ///< samples a surviving candidate gets
  int max_candidates = 24;     ///< best predicted kept; the default is always among them
  int clusters = 5;            ///< groups of alike kernels that survive the first round
  double drop_ratio = 1.25;    ///< after a round, a candidate slower than this times the best goes
  double noise = 0.02;         ///< relative; the band is at least this, at least the spreads
  std::function<double()> clock_s;  ///< seconds; null: the steady clock
};

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

  /// Share of the work done, 0 to 1, for progress bars; never falls.
  double progress() const noexcept;
  bool out_of_budget() const noexcept;

  /// The winner with median, spread and baseline; origin kMeasured.
  /// Errors: UNSUPPORTED with every reason when all candidates were dropped;
  /// RESOURCE_EXHAUSTED when the budget ended before any sample.
  Result<LaunchSpec> Winner() const;

  /// Median and spread of each candidate still measured, fastest first.
  std::vector<LaunchSpec> Standings() const;
  const std::vector<Dropped>& dropped() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
