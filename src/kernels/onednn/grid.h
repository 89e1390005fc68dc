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

/// A way to cut a problem.
struct Way {
  Grid grid;
  /// By rows: a part a thread, with all columns of D, which the library writes itself. Else by
  /// columns, parts that all threads take one by one; they go through FP32 sums of the thread's
  /// own, since the library's fast products write dense matrices only.
  bool by_rows;
};

/// The ways to cut a problem for `threads` threads: the variants of a launch, the one that is
/// expected to be fastest first.
struct Ways {
  std::array<Way, 4> variants;
  int count = 0;
};
Ways WaysFor(const GemmDesc& desc, int threads) noexcept;

/// By columns, the width that serves most problems.
Grid GridByColumns(const GemmDesc& desc, int threads) noexcept;

/// The shapes of a grid's parts: inner ones, and those at the right and lower edges.
struct Shape {
  int rows, cols;
};
std::array<Shape, 4> ShapesOf(const Grid& grid) noexcept;

/// The first shape that equals shapes[i]: most grids have one or two.
std::size_t FirstLike(const std::array<Shape, 4>& shapes, std::size_t i) noexcept;

}  // namespace culet::onednn
