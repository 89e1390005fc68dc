// The grouped kernels for few rows a group, of a list of instances.
#pragma once

#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "kernels/sm90/grouped/skinny_kernel.cuh"

namespace culet::sm90 {

template <class C>
GroupedSkinnyKernel MakeGroupedSkinny(const GroupedSkinnyInstance& instance) {
  return {.instance = instance,
          .function = reinterpret_cast<const void*>(&GroupedSkinny<C>),
          .format = &C::Policy::kInfo,
          .gated = C::kGated,
          .warp_bytes = C::kWarpBytes};
}

/// The kernels of a list, each plain and gated.
template <class Policy, class List>
std::span<const GroupedSkinnyKernel> GroupedSkinnyInstances() {
  constexpr int kCount = static_cast<int>(std::size(List::kAll));
  static const auto kernels = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return std::array<GroupedSkinnyKernel, 2 * kCount>{
        MakeGroupedSkinny<GroupedSkinnyConfig<Policy, List, kIndex / 2, kIndex % 2 == 1>>(
            List::kAll[kIndex / 2])...};
  }
  (std::make_integer_sequence<int, 2 * kCount>());
  return kernels;
}

}  // namespace culet::sm90
