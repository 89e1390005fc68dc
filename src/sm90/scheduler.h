// The static order of tiles: which tile a persistent CTA or cluster computes at which step.
#pragma once

#include <cstdint>

#include "sm90/descriptor.h"

namespace culet::sm90 {

/// Division of 0 <= n < 2^31 by a divisor that the host knows, by one multiplication. A division
/// takes a thread some 150 clocks, and a launch begins with finding its first tile.
/// (Granlund and Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994.)
/// Requires: divisor >= 1.
struct Divisor {
  std::uint32_t multiplier = 0;  // 0: divides by 1
  int shift = 0;

  constexpr Divisor() = default;
  constexpr explicit Divisor(int divisor) {
    if (divisor == 1) return;
    int bits = 1;  // ceil(log2(divisor))
    while ((std::uint64_t{1} << bits) < static_cast<std::uint64_t>(divisor)) ++bits;
    multiplier =
        static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + bits)) + divisor - 1) / divisor);
    shift = bits - 1;
  }
  CULET_HOST_DEVICE constexpr int Quotient(int n) const {
    if (multiplier == 0) return n;
    return static_cast<int>((std::uint64_t{static_cast<std::uint32_t>(n)} * multiplier) >> 32 >>
                            shift);
  }
};

/// A grid of tiles in supergroups of `group` rows of tiles. Within one, tiles are ordered column by
/// column, so a wave of CTAs reads about `group` rows of tiles of A and wave / group columns of B.
/// Requires: tiles_m, tiles_n, group >= 1 and count() < 2^31.
class TileOrder {
 public:
  constexpr TileOrder() = default;
  constexpr TileOrder(int tiles_m, int tiles_n, int group)
      : tiles_m_(tiles_m),
        tiles_n_(tiles_n),
        group_(group < tiles_m ? group : tiles_m),
        per_group_(group_ * tiles_n),
        rest_(tiles_m % group_),
        by_group_area_(per_group_),
        by_group_(group_),
        by_rest_(rest_ == 0 ? 1 : rest_) {}

  CULET_HOST_DEVICE constexpr int count() const { return tiles_m_ * tiles_n_; }
  /// Whether there is one supergroup: then each tile of B is needed during one stretch of time
  /// only.
  CULET_HOST_DEVICE constexpr bool sweeps_once() const { return group_ == tiles_m_; }

  /// The tile at position `index` < count().
  CULET_HOST_DEVICE constexpr void At(int index, int& tile_m, int& tile_n) const {
    const int number = by_group_area_.Quotient(index);
    const int first = number * group_, in_group = index - number * per_group_;
    const bool whole = tiles_m_ - first >= group_;
    tile_n = (whole ? by_group_ : by_rest_).Quotient(in_group);
    tile_m = first + in_group - tile_n * (whole ? group_ : rest_);
  }

 private:
  int tiles_m_ = 1, tiles_n_ = 1;
  int group_ = 1, per_group_ = 1;
  int rest_ = 0;  // rows of the last supergroup where it is not whole
  Divisor by_group_area_, by_group_, by_rest_;
};

/// A piece of D that a CTA computes.
struct Tile {
  int row, column;  ///< where it begins: a row of A and D, a column of its group's B
  int rows;         ///< from `row` to the end of the matrix or of the group
  int group;        ///< whose B; 0 where there is one
};

/// The k-blocks of part `part` of `parts`. Parts differ by one block at most, the larger ones
/// first.
CULET_HOST_DEVICE constexpr void SplitRange(int blocks, int parts, int part, int& begin, int& end) {
  const int base = blocks / parts, extra = blocks % parts;
  begin = part * base + (part < extra ? part : extra);
  end = begin + base + (part < extra ? 1 : 0);
}

}  // namespace culet::sm90
