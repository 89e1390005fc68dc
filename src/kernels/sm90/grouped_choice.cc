#include "kernels/sm90/grouped_choice.h"

#include <algorithm>
#include <cmath>

namespace culet::sm90 {

GroupedChoice ChooseGrouped(const GroupedProblem& problem, DataType type, bool gated,
                            const GroupedUse& use, int sms) {
  // Groups that get rows, and rows of each, if tokens choose at random.
  const double share = std::min(use.active / std::max(use.experts, 1.0), 1.0);
  const double reached =
      std::max(problem.groups * (1 - std::pow(1 - share, std::max(use.tokens, 1.0))), 1.0);
  const double rows = use.tokens * share * problem.groups / reached;
  const bool scaled = type == DataType::kFloat8_e4m3;
  const int wanted = rows <= 20 ? 32 : scaled ? 160 : rows <= 80 ? 128 : 224;
  GroupedChoice choice;
  for (const GroupedSwapKernel& kernel : GroupedSwapKernels()) {
    if (kernel.gated == gated && kernel.format->type == type && kernel.tokens == wanted &&
        WhyNotGrouped(problem, *kernel.format, gated) == nullptr) {
      choice.kernel = &kernel;
    }
  }
  if (choice.kernel == nullptr || rows > choice.kernel->split_tokens) return choice;
  const double tiles = std::ceil(reached) * std::ceil(problem.n / (gated ? 64.0 : 128.0));
  while (choice.splits < kMostGroupedSplits && tiles * choice.splits * 2 <= sms) {
    choice.splits *= 2;
  }
  return choice;
}

}  // namespace culet::sm90
