// Kernels timed side by side on one problem: what `culet bench` measures.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "culet/gemm.h"
#include "culet/scratch.h"
#include "culet/status.h"

namespace culet::cli {

/// One launch to be timed, and what came of it.
struct Contender {
  LaunchSpec spec;
  bool is_choice = false;  ///< what the engine would launch
  Status status;           ///< not ok: why it was not timed
  ErrorReport error;
  std::vector<double> samples_us;

  /// Whether there is a time of a correct result.
  bool timed() const { return status.ok() && !samples_us.empty(); }
  double MedianUs() const;
  /// Half the interquartile range.
  double SpreadUs() const;
};

/// Which kernels take part.
struct Selection {
  enum Kind {
    kBest,   ///< the choice and the three kernels predicted best beside it
    kAll,    ///< every feasible launch
    kNamed,  ///< the best predicted launch of each kernel that `names` name
  } kind = kBest;
  /// A kernel's id, or the beginning of several.
  std::vector<std::string> names;
};

/// "best", "all" or a comma-separated list of ids.
Selection ParseSelection(const std::string& text);

/// Errors: NOT_FOUND for a name that no kernel has.
Status CheckNames(const Registry& registry, const Selection& selection);

/// The contenders for a problem; the reference only when it is named, or when nothing else takes
/// the problem. A kernel that is named but refuses is there with its reason.
/// Errors: as Gemm::Choose.
Result<std::vector<Contender>> SelectContenders(Gemm& gemm, const GemmDesc& desc,
                                                const Selection& selection);

struct MeasureOptions {
  int rounds = 10;
  double budget_s = 0;    ///< 0: none. Ends after the first complete round behind it
  double drop_ratio = 0;  ///< 0: none. After three rounds, slower than this times the best
  std::function<bool(double share, const Contender& current)> on_sample;  ///< false: stop
};

/// Checks each contender once against the reference, on poisoned output, then times all in
/// interleaved rounds over input sets that together exceed the last-level cache.
/// Errors: as ScratchProblem::Create; a contender's own go into its status.
Status MeasureContenders(Gemm& gemm, const GemmDesc& desc, const MeasureOptions& options,
                         std::vector<Contender>& contenders);

}  // namespace culet::cli
