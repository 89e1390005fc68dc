// Rows whose largest element lies in one rank's part or another's, or in both.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "culet/tensor.h"

namespace culet {

struct ArgMaxRows {
  std::vector<std::vector<float>> rows;  // whole
  std::vector<std::int32_t> wanted;      // -1 where an element is NaN

  /// The rank's columns, and the ArgMax of each row of them.
  std::vector<float> PartOf(const RankParts& parts, std::vector<std::int32_t>& local) const {
    std::vector<float> part;
    for (const std::vector<float>& row : rows) {
      const std::size_t begin = part.size();
      part.insert(part.end(), row.begin() + parts.first(),
                  row.begin() + parts.first() + parts.size_of(parts.rank));
      local.push_back(First(part, begin));
    }
    return part;
  }

  /// The first of the largest behind `begin`, NaN before all.
  static std::int32_t First(const std::vector<float>& x, std::size_t begin) {
    std::size_t best = begin;
    for (std::size_t i = begin; i < x.size() && !std::isnan(x[best]); ++i) {
      if (x[i] > x[best] || std::isnan(x[i])) best = i;
    }
    return static_cast<std::int32_t>(best - begin);
  }
};

/// `cols`: of all ranks, at least 8.
inline ArgMaxRows RowsForArgMax(int count, int cols) {
  ArgMaxRows made;
  std::mt19937 random(20261128);
  std::uniform_int_distribution<int> small(-3, 3), at(0, cols - 1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int r = 0; r < count; ++r) {
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (float& x : row) x = static_cast<float>(small(random));  // many equal ones
    const auto any = [&]() -> float& { return row[static_cast<std::size_t>(at(random))]; };
    if (r % 8 == 1) row.assign(row.size(), -kInfinity);
    if (r % 8 == 2) any() = kInfinity;
    if (r % 8 == 3) any() = std::numeric_limits<float>::quiet_NaN();
    if (r % 8 == 4) row.assign(row.size(), -0.0f), row.back() = 0.0f;
    if (r % 8 == 5) {
      for (float& x : row) x = -1e-30f * static_cast<float>(1 + at(random));
    }
    const std::int32_t best = ArgMaxRows::First(row, 0);
    made.wanted.push_back(std::isnan(row[static_cast<std::size_t>(best)]) ? -1 : best);
    made.rows.push_back(std::move(row));
  }
  return made;
}

}  // namespace culet
