// The skinny kernels of a list of instances.
#pragma once

#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "kernels/sm90/skinny/held.cuh"

namespace culet::sm90 {

template <class C>
SkinnyKernel MakeSkinny(const SkinnyInstance& instance, void (*function)(typename C::Params),
                        void (*held)(typename C::Params)) {
  return {.instance = instance,
          .function = reinterpret_cast<const void*>(function),
          .held = reinterpret_cast<const void*>(held),
          .format = &C::Policy::kInfo,
          .epilogue = C::kEpilogue,
          .output = C::kOutput,
          .fusion = C::kFusion,
          .ring_bytes = C::kSlotBytes};
}

/// The kernels of a list.
template <class Policy, class List, EpilogueKind kEpilogue, OutputType kOutput = OutputType::kBf16>
std::span<const SkinnyKernel> SkinnyInstances() {
  constexpr int kCount = static_cast<int>(std::size(List::kAll));
  static const auto kernels = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    const auto make = []<int kAt>(std::integral_constant<int, kAt>) {
      using C = SkinnyConfig<Policy, List, kAt, kEpilogue, kOutput>;
      if constexpr (Policy::kInfo.sums == Sums::kDirect && Policy::Format::kBytes == 2) {
        return MakeSkinny<C>(List::kAll[kAt], &SkinnyGemm<C>, &SkinnyHeldGemm<C>);
      } else {
        return MakeSkinny<C>(List::kAll[kAt], &SkinnyGemm<C>, nullptr);
      }
    };
    return std::array<SkinnyKernel, kCount>{make(std::integral_constant<int, kIndex>{})...};
  }
  (std::make_integer_sequence<int, kCount>());
  return kernels;
}

/// The same kernels fused with the operations before and behind a product.
template <class Policy, class List, SkinnyFusion kFusion, EpilogueKind kEpilogue,
          OutputType kOutput = OutputType::kBf16>
std::span<const SkinnyKernel> FusedSkinnyInstances() {
  constexpr int kCount = static_cast<int>(std::size(List::kAll));
  static const auto kernels = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    const auto make = []<int kAt>(std::integral_constant<int, kAt>) {
      using C = SkinnyConfig<Policy, List, kAt, kEpilogue, kOutput, kFusion>;
      return MakeSkinny<C>(List::kAll[kAt], &SkinnyFusedGemm<C>, &SkinnyHeldFusedGemm<C>);
    };
    return std::array<SkinnyKernel, kCount>{make(std::integral_constant<int, kIndex>{})...};
  }
  (std::make_integer_sequence<int, kCount>());
  return kernels;
}

}  // namespace culet::sm90
