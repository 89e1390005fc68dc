// Lists of a family's kernels.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

namespace culet::sm90 {

/// All kernels of the lists, in their order.
template <class Kernel>
std::vector<Kernel> Joined(std::initializer_list<std::span<const Kernel>> lists) {
  std::vector<Kernel> all;
  for (const auto list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

}  // namespace culet::sm90
