// The SIMD levels of this machine, one after the other in one process.
#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdint>

#include "base/host_simd.h"

namespace culet {

/// Calls `body` with dispatch at each level that CULET_SIMD and the machine leave, best first.
template <class F>
void AtEachSimdLevel(F body) {
  const std::int64_t all = SimdTargets();
  for (std::int64_t rest = all; rest != 0; rest &= rest - 1) {
    const std::int64_t level = rest & -rest;
    hwy::GetChosenTarget().Update(level);
    SCOPED_TRACE(hwy::TargetName(level));
    body();
  }
  hwy::GetChosenTarget().Update(all);
}

}  // namespace culet
