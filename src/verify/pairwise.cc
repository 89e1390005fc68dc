#include "verify/pairwise.h"

#include <cstddef>

namespace culet {
namespace {

constexpr int kOpen = -1;

// Which pairs of levels have not met yet.
class OpenPairs {
 public:
  explicit OpenPairs(std::span<const int> levels) : levels_(levels) {
    first_.push_back(0);
    for (const int count : levels) first_.push_back(first_.back() + count);
    met_.assign(static_cast<std::size_t>(first_.back()) * first_.back(), false);
  }

  bool Open(int factor_a, int level_a, int factor_b, int level_b) const {
    return !met_[Index(factor_a, level_a, factor_b, level_b)];
  }

  void Close(const std::vector<int>& row) {
    const int factors = static_cast<int>(row.size());
    for (int a = 0; a < factors; ++a) {
      for (int b = 0; b < factors; ++b) met_[Index(a, row[a], b, row[b])] = true;
    }
  }

  // Sets the first open pair in an otherwise open row; false when every pair has met.
  bool StartRow(std::vector<int>& row) const {
    const int factors = static_cast<int>(levels_.size());
    for (int a = 0; a < factors; ++a) {
      for (int b = a + 1; b < factors; ++b) {
        for (int i = 0; i < levels_[a]; ++i) {
          for (int j = 0; j < levels_[b]; ++j) {
            if (!Open(a, i, b, j)) continue;
            row[a] = i;
            row[b] = j;
            return true;
          }
        }
      }
    }
    return false;
  }

 private:
  std::size_t Index(int factor_a, int level_a, int factor_b, int level_b) const {
    return static_cast<std::size_t>(first_[factor_a] + level_a) * first_.back() +
           static_cast<std::size_t>(first_[factor_b] + level_b);
  }

  std::span<const int> levels_;
  std::vector<int> first_;  // of each factor's levels in one numbering of all levels
  std::vector<bool> met_;
};

}  // namespace

std::vector<std::vector<int>> PairwiseRows(std::span<const int> levels) {
  const int factors = static_cast<int>(levels.size());
  OpenPairs pairs(levels);
  std::vector<std::vector<int>> rows;
  std::vector<int> row(levels.size(), kOpen);
  while (pairs.StartRow(row)) {
    for (int factor = 0; factor < factors; ++factor) {
      if (row[factor] != kOpen) continue;
      int best = 0, best_gain = -1;
      for (int step = 0; step < levels[factor]; ++step) {
        // Ties go to another level in each row, so that the filling varies too.
        const int level = (step + static_cast<int>(rows.size())) % levels[factor];
        int gain = 0;
        for (int other = 0; other < factors; ++other) {
          gain += row[other] != kOpen && pairs.Open(factor, level, other, row[other]);
        }
        if (gain > best_gain) {
          best = level;
          best_gain = gain;
        }
      }
      row[factor] = best;
    }
    pairs.Close(row);
    rows.push_back(row);
    row.assign(levels.size(), kOpen);
  }
  return rows;
}

}  // namespace culet
