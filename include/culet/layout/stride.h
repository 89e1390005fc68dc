// Stride: offsets of a strided access with any mix of static and dynamic strides.
#pragma once

#include <cstdint>

#include "culet/layout/host_device.h"

namespace culet {

/// Two strides in elements; their dot product with an index pair is an offset:
///
///     const Stride row_major{ld, std::integral_constant<int, 1>{}};
///     data[row_major(row, column)]
///
/// A stride is an integer, or a std::integral_constant, which takes no space and no register. The
/// product is 64 bits wide whatever the strides' types: a weight of 2^31 elements is not rare.
template <class T0, class T1>
class Stride {
 public:
  CULET_HOST_DEVICE constexpr Stride(T0 stride0, T1 stride1) noexcept
      : stride0_(stride0), stride1_(stride1) {}

  CULET_HOST_DEVICE constexpr std::int64_t operator()(std::int64_t index0,
                                                      std::int64_t index1) const noexcept {
    return index0 * ValueOf(stride0_) + index1 * ValueOf(stride1_);
  }

 private:
  // Not the constant's own conversion operator: device code may not call it.
  template <class T>
  CULET_HOST_DEVICE static constexpr std::int64_t ValueOf(const T& stride) noexcept {
    if constexpr (requires { T::value; }) {
      return T::value;
    } else {
      return stride;
    }
  }

  [[no_unique_address]] T0 stride0_;
  [[no_unique_address]] T1 stride1_;
};

}  // namespace culet
