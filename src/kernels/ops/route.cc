// The experts of each token.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/ops.h"

namespace culet::ops {

void Route(const float* logits, std::int64_t rows, int experts, int active, bool renormalize,
           std::int32_t* ids, float* shares) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* const in = logits + row * experts;
    std::int32_t* const id = ids + row * active;
    float* const share = shares + row * active;
    float most = -std::numeric_limits<float>::infinity();
    bool finite = true;
    for (int e = 0; e < experts; ++e) {
      finite = finite && !std::isnan(in[e]);
      most = std::max(most, in[e]);
    }
    double sum = 0;
    for (int e = 0; e < experts; ++e) sum += std::exp(static_cast<double>(in[e]) - most);
    // The next largest, `active` times; equal logits in the order of their numbers.
    double chosen = 0;
    for (int a = 0; a < active; ++a) {
      int best = -1;
      for (int e = 0; e < experts; ++e) {
        const bool taken = std::find(id, id + a, e) != id + a;
        if (!taken && (best < 0 || in[e] > in[best])) best = e;
      }
      id[a] = best;
      const double p = std::exp(static_cast<double>(in[best]) - most) / sum;
      share[a] = static_cast<float>(p);
      chosen += p;
    }
    for (int a = 0; a < active; ++a) {
      if (renormalize) share[a] = static_cast<float>(share[a] / chosen);
      if (!finite) share[a] = std::numeric_limits<float>::quiet_NaN();
    }
  }
}

}  // namespace culet::ops
