// Where a matrix lies in memory, in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "culet/packing.h"
#include "culet/problem.h"

namespace culet {

/// Inner and outer extents of a layout: inner elements are contiguous, outer ones `ld` apart.
constexpr int InnerOf(const MatrixLayout& layout) noexcept {
  return layout.order == Order::kRowMajor ? layout.cols : layout.rows;
}
constexpr int OuterOf(const MatrixLayout& layout) noexcept {
  return layout.order == Order::kRowMajor ? layout.rows : layout.cols;
}

/// The bytes from the first to behind the last element of all matrices; -1 when they, or those from
/// one row or matrix to the next, do not fit in ptrdiff_t. Requires: rows, cols, ld, num >= 1,
/// batch_stride >= 0.
constexpr std::int64_t ByteExtent(const MatrixLayout& layout) noexcept {
  std::int64_t bytes = BytesOf(layout.type, InnerOf(layout));
  const auto add = [&](std::int64_t count, std::int64_t elements) {
    // The steps of 4-bit elements are even.
    const auto size = static_cast<std::int64_t>(SizeOf(layout.type));
    std::int64_t step = IsSubByte(layout.type) ? elements / 2 : 0;
    return (!IsSubByte(layout.type) && __builtin_mul_overflow(elements, size, &step)) ||
           __builtin_mul_overflow(count, step, &step) ||
           __builtin_add_overflow(bytes, step, &bytes);
  };
  if (add(OuterOf(layout) - 1, layout.ld)) return -1;
  if (layout.num > 1 && add(layout.num - 1, layout.batch_stride)) return -1;
  return bytes;
}

/// A matrix as rows of `inner_bytes`, `pitch_bytes` apart; or several.
struct Footprint {
  std::int64_t total_bytes = 0;
  std::int64_t inner_bytes = 0;
  std::int64_t pitch_bytes = 0;
  bool batch = false;
};

inline Footprint FootprintOf(const MatrixLayout& layout) noexcept {
  if (layout.pack != 0) {
    const std::int64_t bytes = PackedBytes(layout);
    return {bytes, bytes, bytes};
  }
  return {ByteExtent(layout), BytesOf(layout.type, InnerOf(layout)),
          BytesOf(layout.type, layout.ld), layout.num > 1};
}

/// A bias vector as one row: one value for each column or row of the m x n product.
constexpr MatrixLayout LayoutOf(const Bias& bias, int m, int n) noexcept {
  return RowMajor(bias.type, 1, bias.axis == Bias::Axis::kN ? n : m);
}

/// Zero points lie as the scales that they belong to.
constexpr MatrixLayout LayoutOf(const ZeroPoints& zero, MatrixLayout scales) noexcept {
  scales.type = zero.type;
  return scales;
}

/// Whether C may be D itself: the same element of both is at the same place.
constexpr bool SamePlaces(const MatrixLayout& c, const MatrixLayout& d) noexcept {
  return c.type == d.type && c.order == d.order && c.rows == d.rows && c.cols == d.cols &&
         c.ld == d.ld && c.num == d.num && c.batch_stride == d.batch_stride;
}

/// Whether two matrices share a byte. Column slices of one buffer (equal pitch, disjoint columns)
/// do not, although their ranges interleave; other interleavings, and those of batches, count as
/// shared.
inline bool Overlap(const void* a, const Footprint& fa, const void* b,
                    const Footprint& fb) noexcept {
  if (a == nullptr || b == nullptr) return false;
  const auto pa = reinterpret_cast<std::uintptr_t>(a);
  const auto pb = reinterpret_cast<std::uintptr_t>(b);
  if (pa + static_cast<std::uintptr_t>(fa.total_bytes) <= pb ||
      pb + static_cast<std::uintptr_t>(fb.total_bytes) <= pa) {
    return false;
  }
  if (fa.batch || fb.batch || fa.pitch_bytes != fb.pitch_bytes) return true;
  const auto pitch = static_cast<std::uintptr_t>(fa.pitch_bytes);
  // b's first column counted from a's, wrapping at the pitch.
  const std::uintptr_t ahead = pb >= pa ? (pb - pa) % pitch : (pitch - (pa - pb) % pitch) % pitch;
  return ahead < static_cast<std::uintptr_t>(fa.inner_bytes) ||
         ahead + static_cast<std::uintptr_t>(fb.inner_bytes) > pitch;
}

}  // namespace culet
