// SmemLayoutV2: where element (s, c) of a tile lies in shared memory. SmemAccessor: the tile as a
// function of (s, c).
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

#include "culet/layout/host_device.h"
#include "culet/layout/swizzle.h"

namespace culet {

/// S rows of C elements, cut into sub-tiles of S0 x C0 (-1: the whole extent). Sub-tiles follow
/// each other row by row; inside one, rows are contiguous and Swizzle_ permutes the offsets.
template <int S_, int C_, int S0_ = -1, int C0_ = -1, class Swizzle_ = Identity>
struct SmemLayoutV2 {
  static_assert(S_ > 0 && C_ > 0, "a layout has at least one row and one column");
  static_assert(S0_ > 0 || S0_ == -1, "S0 is a number of rows, or -1 for all of them");
  static_assert(C0_ > 0 || C0_ == -1, "C0 is a number of columns, or -1 for all of them");

  static constexpr int S = S_;
  static constexpr int C = C_;
  static constexpr int S0 = S0_ == -1 ? S : S0_;
  static constexpr int C0 = C0_ == -1 ? C : C0_;
  using Swizzle = Swizzle_;

  static_assert(static_cast<std::int64_t>(S) * C <= std::numeric_limits<int>::max(),
                "a tile in shared memory has at most 2^31 - 1 elements");
  static constexpr int kSize = S * C;
  static constexpr int kTileSize = S0 * C0;

  static_assert(S % S0 == 0, "S must be a multiple of S0: sub-tiles are whole");
  static_assert(C % C0 == 0, "C must be a multiple of C0: sub-tiles are whole");
  static_assert(kTileSize % Swizzle::kBlock == 0,
                "the swizzle would leave its sub-tile: S0 * C0 must be a multiple of its block, "
                "2^(Base + Bits) elements");

  /// The offset of element (s, c), counted from `offset`: the start of a pipeline stage, say, which
  /// the swizzle does not touch. Units: elements. Requires: 0 <= s < S, 0 <= c < C.
  template <std::integral Offset = int>
  CULET_HOST_DEVICE static constexpr Offset apply(int s, int c, Offset offset = 0) noexcept {
    const int tile = s / S0 * (C / C0) + c / C0;
    return offset + tile * kTileSize + Swizzle::apply(s % S0 * C0 + c % C0);
  }
};

/// A pointer to a tile in shared memory, indexed as its layout says.
template <class T, class Layout>
class SmemAccessor {
 public:
  CULET_HOST_DEVICE constexpr explicit SmemAccessor(T* data) noexcept : data_(data) {}

  CULET_HOST_DEVICE constexpr T& operator()(int s, int c) const noexcept {
    return data_[Layout::apply(s, c)];
  }

 private:
  T* data_;
};

}  // namespace culet
