// How a product is cut into parts for the threads of culet's pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "culet/desc.h"

namespace culet::onednn {

/// How D is cut: parts of `rows` x `cols`, the last ones smaller.
struct Grid {
  int m, n;
  int rows, cols;

  int row_parts() const noexcept { return (m - 1) / rows + 1; }
  int col_parts() const noexcept { return (n - 1) / cols + 1; }
  int parts() const noexcept { return row_parts() * col_parts(); }
};

/// Columns for all rows of D (a pass over 512 of them), which all threads take one by one. A part
/// goes through FP32 sums of the thread's own: the library's fast products write dense matrices
/// only.
Grid GridByColumns(int m, int n, int threads) noexcept;

/// Rows, a part a thread, with all columns of D, which the library writes itself.
Grid GridByRows(int m, int n, int threads) noexcept;

/// Ways to cut a problem: by columns, and by rows where a thread has enough of them.
int VariantsFor(const GemmDesc& desc, int threads) noexcept;

/// Whether `variant` cuts by rows; variant 0 is the way that is expected to be faster.
bool CutsByRows(const GemmDesc& desc, int threads, int variant) noexcept;

/// The shapes of a grid's parts: inner ones, and those at the right and lower edges.
struct Shape {
  int rows, cols;
};
std::array<Shape, 4> ShapesOf(const Grid& grid) noexcept;

/// The first shape that equals shapes[i]: most grids have one or two.
std::size_t FirstLike(const std::array<Shape, 4>& shapes, std::size_t i) noexcept;

}  // namespace culet::onednn
