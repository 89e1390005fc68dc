// What all grouped kernels do alike: where a group's rows lie, and what becomes of gate and up.
#pragma once

#include <cstdint>

#include "kernels/sm90/grouped/problem.h"
#include "kernels/sm90/product/silu.cuh"

namespace culet::sm90 {

/// The rows of a group: [begin, end), cut off at the rows that there are.
__device__ __forceinline__ int2 GroupRange(const GroupedParams& p, int group) {
  const int start = p.starts[group];
  const int64_t end =
      p.counts != nullptr ? int64_t{start} + max(p.counts[group], 0) : int64_t{p.starts[group + 1]};
  return make_int2(max(start, 0), end < 0 ? 0 : static_cast<int>(end < p.rows ? end : p.rows));
}

__device__ __forceinline__ float GatedOf(const GroupedParams& p, float gate, float up) {
  if (p.gate == GroupedGate::kSilu) return Silu(gate) * up;
  gate = fminf(gate, p.limit);
  up = fminf(fmaxf(up, -p.limit), p.limit);
  return Silu(p.slope * gate) / p.slope * (up + 1.0f);
}

}  // namespace culet::sm90
