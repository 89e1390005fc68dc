#include "kernels/onednn/grid.h"

#include <algorithm>

namespace culet::onednn {
namespace {

// Fewer rows a thread are no use: each thread converts all of B.
constexpr int kLeastRows = 64;

}  // namespace

Grid GridByColumns(int m, int n, int threads) noexcept {
  constexpr int kMostCols = 512, kMostRows = 512, kStep = 64;
  const int passes = (m - 1) / kMostRows + 1;
  const int of_thread = (n - 1) / std::max(1, threads) + 1;  // columns
  const int parts = (of_thread - 1) / kMostCols + 1;
  const int cols = (of_thread - 1) / parts + 1;
  return {m, n, (m - 1) / passes + 1, std::min(n, (cols + kStep - 1) / kStep * kStep)};
}

Grid GridByRows(int m, int n, int threads) noexcept {
  return {m, n, (m - 1) / std::max(1, threads) + 1, n};
}

int VariantsFor(const GemmDesc& desc, int threads) noexcept {
  return desc.m / std::max(1, threads) >= kLeastRows ? 2 : 1;
}

bool CutsByRows(const GemmDesc& desc, int threads, int variant) noexcept {
  if (VariantsFor(desc, threads) < 2) return false;
  const bool first =
      desc.a.type == DataType::kBfloat16 && desc.m / std::max(1, threads) >= 2 * kLeastRows;
  return first == (variant == 0);
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
