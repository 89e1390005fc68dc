// Kernels timed side by side on one problem: what `culet bench` measures.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "culet/scratch.h"
#include "culet/status.h"
#include "culet/timing.h"

namespace culet::cli {

/// One launch to be timed, and what came of it.
struct Contender {
  LaunchSpec spec;
  bool is_choice = false;   ///< what the engine would launch
  bool is_untuned = false;  ///< what it would launch if nothing had ever been measured
  Status status;            ///< not ok: why it was not timed
  ErrorReport error;
  std::vector<double> samples_us;

  /// Whether there is a time of a correct result.
  bool timed() const { return status.ok() && !samples_us.empty(); }
  double MedianUs() const;
  /// Half the interquartile range.
  double SpreadUs() const;
};

/// "sm90_fp8_block/256x128@swizzle=2@splits=1": a launch as --kernels takes it.
std::string LaunchName(const LaunchSpec& spec);

/// A kernel's id, or the beginning of several, and how it is to be launched.
struct LaunchPattern {
  std::string name;
  std::optional<int> swizzle, splits, variant;  ///< not given: as predicted best
  bool serial = false;  ///< "@serial": without programmatic dependent launch
};

/// Which kernels take part.
struct Selection {
  enum Kind {
    kChoice,  ///< the choice alone
    kBest,    ///< the choice and the three kernels predicted best beside it
    kAll,     ///< every feasible launch
    kNamed,   ///< those that `patterns` name
  } kind = kBest;
  bool with_choice = false;  ///< beside those that `patterns` name
  std::vector<LaunchPattern> patterns;
};

/// "choice", "best", "all" or a comma-separated list of LaunchPatterns, "choice" among them.
/// Errors: INVALID_ARGUMENT, in a sentence, for an empty list or a pattern that is none.
Result<Selection> ParseSelection(const std::string& text);

/// Errors: NOT_FOUND for a name that no kernel has.
Status CheckNames(const Registry& registry, const Selection& selection);

/// The contenders for a problem, the choice first where it takes part; the reference only when it
/// is named, or when nothing else takes the problem. A kernel that is named but refuses is there
/// with its reason. Errors: as Gemm::Choose.
Result<std::vector<Contender>> SelectContenders(Gemm& gemm, const GemmDesc& desc,
                                                const Selection& selection);

/// Adds what `untuned`, an engine whose cache is empty, launches, unless it is there.
/// Errors: as Gemm::Choose.
Status AddUntuned(Gemm& gemm, Gemm& untuned, const GemmDesc& desc,
                  std::vector<Contender>& contenders);

/// Seconds of a clock that only goes forward.
double SteadySeconds();

struct MeasureOptions {
  int rounds = 10;
  double budget_s = 0;  ///< 0: none. Contenders that it leaves no time for have no samples
  double limit_s = 0;   ///< 0: none. The same for the choice and the first; >= budget_s
  std::function<double()> clock_s = SteadySeconds;  ///< what both are counted by
  double drop_ratio = 0;  ///< 0: none. After `drop_after` rounds, slower than this times the best
  int drop_after = 3;
  std::function<bool(double share, const Contender& current)> on_sample;  ///< false: stop
  std::optional<GroupedRouting> routing;               ///< of grouped products; none: all
  std::function<void(const TimingInputs&)> on_inputs;  ///< what is launched, before it is
  std::function<bool()> stop;  ///< asked more often, also while inputs are made; true: stop
};

/// Checks each contender once against the reference, on poisoned output, then times all in
/// interleaved rounds, cold (culet/timing.h). What is predicted not to fit into the time left is
/// not begun; the choice and the first contender may take all of `limit_s`. Errors: as
/// ScratchProblem::Create; a contender's own go into its status.
Status MeasureContenders(Gemm& gemm, const GemmDesc& desc, const MeasureOptions& options,
                         std::vector<Contender>& contenders);

}  // namespace culet::cli
