// Arg max of rows.
#include <cmath>

#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {

void ArgMax(const float* x, std::int32_t* out, std::int64_t rows, std::int64_t cols) {
  HostPool().Run(static_cast<int>(rows), [=](int row, int) {
    const float* const in = x + row * cols;
    std::int64_t best = 0;
    for (std::int64_t i = 0; i < cols && !std::isnan(in[best]); ++i) {
      if (in[i] > in[best] || std::isnan(in[i])) best = i;
    }
    out[row] = static_cast<std::int32_t>(best);
  });
}

}  // namespace culet::ops
