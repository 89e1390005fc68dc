#include "kernels/sm90/grouped/choice.h"

#include <algorithm>
#include <cmath>

#include "kernels/sm90/product/product.h"
#include "sm90/format.h"

namespace culet::sm90 {

GroupedChoice ChooseGrouped(const GroupedProblem& problem, DataType type, bool gated,
                            const GroupedUse& use, int sms) {
  // Groups that get rows, and rows of each, if tokens choose at random.
  const double share = std::min(use.active / std::max(use.experts, 1.0), 1.0);
  const double reached =
      std::max(problem.groups * (1 - std::pow(1 - share, std::max(use.tokens, 1.0))), 1.0);
  const double rows = use.tokens * share * problem.groups / reached;
  const bool scaled = type == DataType::kFloat8_e4m3;
  const int wanted = rows <= 20 ? 32 : scaled ? 160 : rows <= 512 ? 128 : 224;
  GroupedChoice choice;
  for (const GroupedSwapKernel& kernel : GroupedSwapKernels()) {
    if (kernel.gated == gated && kernel.format->type == type && kernel.tokens == wanted &&
        WhyNotGrouped(problem, *kernel.format, gated) == nullptr) {
      choice.kernel = &kernel;
    }
  }
  if (choice.kernel == nullptr || 2 * rows > choice.kernel->split_tokens) return choice;
  // Two CTAs a tile where tiles leave CTAs without one, four where they leave most; a short K is
  // not worth the exchange. Measured on an H200 (bench/cuda_grouped.cc --all).
  const double tiles = reached * std::ceil(problem.n / (gated ? 64.0 : 128.0));
  const int k_blocks = CeilDiv(problem.k * choice.kernel->format->element_bytes, kBlockBytes);
  if (k_blocks >= 16 && tiles <= 2.3 * sms) choice.splits = 2;
  if (k_blocks >= 32 && tiles <= 0.3 * sms) choice.splits = 4;
  return choice;
}

}  // namespace culet::sm90
