// Few rows that hold every pair: the test cases of many independent choices.
#pragma once

#include <span>
#include <vector>

namespace culet {

/// Rows of one level for each factor, 0 <= level < levels[factor], such that any two levels of any
/// two factors meet in some row. Greedy: near the product of the two largest level counts, where
/// the full cross would be the product of all. Deterministic.
std::vector<std::vector<int>> PairwiseRows(std::span<const int> levels);

}  // namespace culet
