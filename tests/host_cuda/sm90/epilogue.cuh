// See host_cuda.h: what src/kernels/sm90/swap_finish.cuh takes of src/sm90/epilogue.cuh, on the
// CPU.
#pragma once

#include <cstdint>

#include "base/float_types.h"

namespace culet::sm90 {

inline uint32_t PackBf16(float low, float high) {
  return FloatToBfloat16(low) | uint32_t{FloatToBfloat16(high)} << 16;
}

}  // namespace culet::sm90
