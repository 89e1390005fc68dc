// Operand formats of Hopper's tensor core.
//
// In every format one wgmma takes 32 bytes of K, and a row of a tile is 128 bytes. Tensor maps,
// rings, descriptors and swizzles therefore count bytes. A k-block is 128 bytes of K: 128 elements
// of E4M3, 64 of BF16 or F16.
#pragma once

#include <cstdint>

#include "sm90/descriptor.h"

namespace culet::sm90 {

inline constexpr int kBlockBytes = 128;  ///< of K: a row of an operand's tile

struct E4m3 {
  static constexpr int kBytes = 1;
  static constexpr int kBlockK = kBlockBytes / kBytes;  ///< elements
};
struct Bf16 {
  static constexpr int kBytes = 2;
  static constexpr int kBlockK = kBlockBytes / kBytes;
};
struct F16 {
  static constexpr int kBytes = 2;
  static constexpr int kBlockK = kBlockBytes / kBytes;
};

}  // namespace culet::sm90
