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

/// The bytes from the first to behind the last element; -1 when they, or those from one row to the
/// next, do not fit in ptrdiff_t. Requires: rows, cols, ld >= 1.
constexpr std::int64_t ByteExtent(const MatrixLayout& layout) noexcept {
  const auto size = static_cast<std::int64_t>(SizeOf(layout.type));
  std::int64_t pitch = 0;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(layout.ld, size, &pitch) ||
      __builtin_mul_overflow(OuterOf(layout) - 1, pitch, &bytes) ||
      __builtin_add_overflow(bytes, InnerOf(layout) * size, &bytes)) {
    return -1;
  }
  return bytes;
}

/// A matrix as rows of `inner_bytes`, `pitch_bytes` apart.
struct Footprint {
  std::int64_t total_bytes = 0;
  std::int64_t inner_bytes = 0;
  std::int64_t pitch_bytes = 0;
};

inline Footprint FootprintOf(const MatrixLayout& layout) noexcept {
  if (layout.pack != 0) {
    const std::int64_t bytes = PackedBytes(layout);
    return {bytes, bytes, bytes};
  }
  const auto size = static_cast<std::int64_t>(SizeOf(layout.type));
  return {ByteExtent(layout), InnerOf(layout) * size, layout.ld * size};
}

/// A bias vector as one row: its length is the extent of D along its axis.
constexpr MatrixLayout LayoutOf(const Bias& bias, const MatrixLayout& d) noexcept {
  return RowMajor(bias.type, 1, bias.axis == Bias::Axis::kN ? d.cols : d.rows);
}

/// Whether two matrices share a byte. Column slices of one buffer (equal pitch, disjoint columns)
/// do not, although their ranges interleave; other interleavings count as shared.
inline bool Overlap(const void* a, const Footprint& fa, const void* b,
                    const Footprint& fb) noexcept {
  if (a == nullptr || b == nullptr) return false;
  const auto pa = reinterpret_cast<std::uintptr_t>(a);
  const auto pb = reinterpret_cast<std::uintptr_t>(b);
  if (pa + static_cast<std::uintptr_t>(fa.total_bytes) <= pb ||
      pb + static_cast<std::uintptr_t>(fb.total_bytes) <= pa) {
    return false;
  }
  if (fa.pitch_bytes != fb.pitch_bytes) return true;
  const auto pitch = static_cast<std::uintptr_t>(fa.pitch_bytes);
  // b's first column counted from a's, wrapping at the pitch.
  const std::uintptr_t ahead = pb >= pa ? (pb - pa) % pitch : (pitch - (pa - pb) % pitch) % pitch;
  return ahead < static_cast<std::uintptr_t>(fa.inner_bytes) ||
         ahead + static_cast<std::uintptr_t>(fb.inner_bytes) > pitch;
}

}  // namespace culet
