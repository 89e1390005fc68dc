#include "kernels/onednn/grid.h"

#include <algorithm>

namespace culet::onednn {
namespace {

constexpr int kUsualCols = 512;
// Fewer rows a thread are no use: each thread converts all of B.
constexpr int kLeastRows = 64;

// Parts of at most `most` columns, of all rows up to 512, and no thread without a part.
Grid ByColumns(const GemmDesc& desc, int threads, int most) noexcept {
  // Of 2112 columns one of two threads had 1152 with steps of 64, which took 7 % longer.
  constexpr int kMostRows = 512, kStep = 32;
  const int passes = (desc.m - 1) / kMostRows + 1;
  const int of_thread = (desc.n - 1) / threads + 1;  // columns
  const int parts = (of_thread - 1) / most + 1;
  const int cols = (of_thread - 1) / parts + 1;
  return {desc.m, desc.n, (desc.m - 1) / passes + 1,
          std::min(desc.n, (cols + kStep - 1) / kStep * kStep)};
}

}  // namespace

Grid GridByColumns(const GemmDesc& desc, int threads) noexcept {
  // Measured on two cores with AMX: with few rows and long columns wide parts are up to a third
  // slower.
  const bool narrow = desc.m <= 64 && desc.k > 8192;
  return ByColumns(desc, threads, narrow ? kUsualCols / 4 : kUsualCols);
}

Ways WaysFor(const GemmDesc& desc, int threads) noexcept {
  Ways ways;
  const auto add = [&](const Grid& grid, bool by_rows) {
    for (int i = 0; i < ways.count; ++i) {
      const Grid& other = ways.variants[static_cast<std::size_t>(i)].grid;
      if (other.rows == grid.rows && other.cols == grid.cols) return;
    }
    ways.variants[static_cast<std::size_t>(ways.count++)] = {grid, by_rows};
  };
  const int rows = desc.m / threads;
  const Grid by_rows{desc.m, desc.n, (desc.m - 1) / threads + 1, desc.n};
  // Measured on two cores with AMX; for F32 they are equal.
  if (rows >= 2 * kLeastRows && desc.a.type == DataType::kBfloat16) add(by_rows, true);
  add(GridByColumns(desc, threads), false);
  if (rows >= kLeastRows) add(by_rows, true);
  add(ByColumns(desc, threads, kUsualCols / 4), false);
  add(ByColumns(desc, threads, kUsualCols), false);
  // A thread's sums stay in its second-level cache.
  if (desc.m <= 128 && ways.count < 4) add(ByColumns(desc, threads, kUsualCols * 4), false);
  return ways;
}

std::array<Shape, 4> ShapesOf(const Grid& grid) noexcept {
  const int last_rows = grid.m - (grid.row_parts() - 1) * grid.rows;
  const int last_cols = grid.n - (grid.col_parts() - 1) * grid.cols;
  return {{{grid.rows, grid.cols},
           {grid.rows, last_cols},
           {last_rows, grid.cols},
           {last_rows, last_cols}}};
}

std::size_t FirstLike(const std::array<Shape, 4>& shapes, std::size_t i) noexcept {
  std::size_t same = 0;
  while (shapes[same].rows != shapes[i].rows || shapes[same].cols != shapes[i].cols) ++same;
  return same;
}

}  // namespace culet::onednn
