// Which grouped kernel a problem gets where nothing was measured: by what is known before routing.
#pragma once

#include "kernels/sm90/grouped/swap.h"

namespace culet::sm90 {

/// What routing does on average: each of `tokens` tokens goes to `active` of `experts` experts, of
/// which the problem's groups are some or all.
struct GroupedUse {
  double tokens = 1, active = 1, experts = 1;
};

struct GroupedChoice {
  const GroupedSwapKernel* kernel = nullptr;  ///< null: none takes the problem
  int splits = 1;                             ///< CTAs that share K
};

/// `type`: of A and B. `sms`: multiprocessors.
GroupedChoice ChooseGrouped(const GroupedProblem& problem, DataType type, bool gated,
                            const GroupedUse& use, int sms);

}  // namespace culet::sm90
