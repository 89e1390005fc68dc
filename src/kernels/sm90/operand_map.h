// The tensor map of an operand, alike for all formats and families: rows of bytes, k-blocks of 128.
#pragma once

#include <cstdint>

#include "kernels/sm90/policy.h"
#include "sm90/descriptor.h"

namespace culet::sm90 {

/// `rows` rows of `k` elements, `ld` apart; a box brings a k-block of `box_rows` of them.
inline TensorMapPlan BytesPlan(int k, int rows, std::int64_t ld, int element_bytes, int box_rows) {
  TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(k) * static_cast<std::uint64_t>(element_bytes);
  plan.outer = static_cast<std::uint64_t>(rows);
  plan.pitch_bytes = static_cast<std::uint64_t>(ld) * static_cast<std::uint64_t>(element_bytes);
  plan.box_inner = kBlockBytes;
  plan.box_outer = static_cast<std::uint32_t>(box_rows);
  return plan;
}

}  // namespace culet::sm90
