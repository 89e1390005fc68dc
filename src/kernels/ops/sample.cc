// Tokens drawn from rows of logits: a row a thread.
#include <algorithm>

#include "base/sample_row.h"
#include "base/sampling_math.h"
#include "base/thread_pool.h"
#include "kernels/ops/ops.h"

namespace culet::ops {
namespace {

std::size_t RowBytes(std::int64_t cols) {
  return static_cast<std::size_t>(cols) * sizeof(std::uint64_t);
}

}  // namespace

void Sample(const SampleArgs& args) {
  const auto cols = static_cast<std::size_t>(args.cols);
  const auto threads = static_cast<int>(args.workspace_bytes / RowBytes(args.cols));
  HostPool().Run(
      static_cast<int>(args.rows),
      [&](int row, int thread) {
        const auto at = static_cast<std::size_t>(row);
        args.out[row] = sampling::SampleRow(
            {args.logits + at * cols, cols}, args.options + at * sampling::kWords,
            static_cast<std::uint32_t>(args.draws[row]) + args.first_draw,
            {args.workspace + static_cast<std::size_t>(thread) * cols, cols});
      },
      threads);
}

std::size_t SampleWorkspace(std::int64_t rows, std::int64_t cols) {
  const auto threads = std::min<std::int64_t>(rows, HostPool().threads());
  return static_cast<std::size_t>(threads) * RowBytes(cols);
}

}  // namespace culet::ops
