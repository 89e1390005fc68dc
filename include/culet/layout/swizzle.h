// Swizzle policies: permutations of offsets that spread the rows of a tile over the banks of shared
// memory.
#pragma once

#include <concepts>
#include <cstdint>

#include "culet/layout/host_device.h"

namespace culet {

/// XORs `Bits` bits of an offset, those from bit Base + Shift up, into the bits from Base up:
///
///     offset  ....YYY.....XXX....     (X at Base, Y at Base + Shift)
///     result  ....YYY.....ZZZ....     Z = X ^ Y
///
/// The lowest Base bits stay, so runs of 2^Base offsets stay together. Y does not change, so a
/// second application undoes the first.
template <int Bits, int Base, int Shift>
struct Swizzle {
  static_assert(Bits >= 0, "a swizzle cannot move a negative number of bits");
  static_assert(Base >= 0, "a swizzle's lowest target bit is bit 0");
  static_assert(Shift >= Bits, "the bits read and the bits changed must not overlap");
  static_assert(Base + Bits + Shift < 63, "an offset has at most 63 bits");

  /// Each aligned run of so many offsets is mapped onto itself.
  static constexpr std::int64_t kBlock = std::int64_t{1} << (Base + Bits);

  template <std::integral Offset>
  CULET_HOST_DEVICE static constexpr auto apply(Offset offset) noexcept {
    static_assert(Base + Bits + Shift < static_cast<int>(8 * sizeof(Offset)),
                  "the offset's type lacks the bits that the swizzle reads");
    constexpr auto kTarget = static_cast<Offset>(((std::int64_t{1} << Bits) - 1) << Base);
    return static_cast<Offset>(offset ^ ((offset >> Shift) & kTarget));
  }
};

/// The swizzle that leaves offsets as they are.
struct Identity {
  static constexpr std::int64_t kBlock = 1;

  template <std::integral Offset>
  CULET_HOST_DEVICE static constexpr auto apply(Offset offset) noexcept {
    return offset;
  }
};

}  // namespace culet
