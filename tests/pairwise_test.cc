// Rows of levels that hold every pair of two factors' levels.
#include "verify/pairwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <set>
#include <vector>

namespace culet {
namespace {

TEST(Pairwise, CoversAllPairsInFewRows) {
  for (const std::vector<int>& levels :
       {std::vector<int>{1}, {3, 2}, {4, 3, 2, 2}, {5, 5, 5, 5}, {10, 9, 2, 3, 3, 2}}) {
    const auto rows = PairwiseRows(levels);
    std::set<std::array<int, 4>> met;
    for (const auto& row : rows) {
      ASSERT_EQ(row.size(), levels.size());
      for (int a = 0; a < static_cast<int>(row.size()); ++a) {
        ASSERT_GE(row[a], 0);
        ASSERT_LT(row[a], levels[a]);
        for (int b = a + 1; b < static_cast<int>(row.size()); ++b) {
          met.insert({a, row[a], b, row[b]});
        }
      }
    }
    std::size_t wanted = 0;
    std::vector<int> sorted = levels;
    std::ranges::sort(sorted, std::greater());
    for (std::size_t a = 0; a < levels.size(); ++a) {
      for (std::size_t b = a + 1; b < levels.size(); ++b) wanted += levels[a] * levels[b];
    }
    EXPECT_EQ(met.size(), wanted);
    if (levels.size() > 1) {
      EXPECT_LE(static_cast<int>(rows.size()), 2 * sorted[0] * sorted[1]);
    }
  }
}

}  // namespace
}  // namespace culet
