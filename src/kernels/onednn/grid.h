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

/// Ways to cut a product that the library writes to D itself: by columns, whose parts all threads
/// take one by one, and where each of `threads` threads has enough rows by rows, a part a thread.
int VariantsFor(const GemmDesc& desc, int threads) noexcept;

/// Whether `variant` cuts by rows; variant 0 is the way that is expected to be faster.
bool CutsByRows(const GemmDesc& desc, int threads, int variant) noexcept;

/// The grid of a variant.
Grid DirectGrid(const GemmDesc& desc, int threads, int variant) noexcept;

/// The grid of a product that passes through a thread's FP32 sums, which stay in its caches.
Grid SumsGrid(int m, int n, int threads) noexcept;

/// The shapes of a grid's parts: inner ones, and those at the right and lower edges.
struct Shape {
  int rows, cols;
};
std::array<Shape, 4> ShapesOf(const Grid& grid) noexcept;

/// The first shape that equals shapes[i]: most grids have one or two.
std::size_t FirstLike(const std::array<Shape, 4>& shapes, std::size_t i) noexcept;

}  // namespace culet::onednn
