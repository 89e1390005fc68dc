// Rows of a plain weight rounded to codes and scales, as checkpoints store them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "culet/quantize_checkpoint.h"
#include "culet/types.h"

namespace culet {

/// A plain matrix in memory, whose elements may lie anywhere.
struct PlainMatrix {
  const std::byte* data = nullptr;
  DataType type = DataType::kNull;
  std::int64_t rows = 0, cols = 0;
};

/// Elements of a group, and rows and columns of a block, that share a scale.
inline constexpr std::int64_t kCheckpointGroup = 128;
/// Zero points of 4 bits in a word.
inline constexpr std::int64_t kZerosOfWord = 8;

/// What shares a scale: rows, and columns.
struct ScaleShape {
  std::int64_t rows, cols;
};
ScaleShape ScaleShapeOf(CheckpointFormat format, std::int64_t cols) noexcept;

/// Scales, of the matrix's type, row-major. A scale is amax / 7.5 of 4 bits, amax / 448 of E4M3,
/// and of 4 bits with zero points (most - least) / 15, where most >= 0 and least <= 0; rounded to
/// the type; 1 where all elements are 0, and the least number above 0 where it would be 0. False
/// for an element, or a scale, that is not finite.
bool WriteScales(const PlainMatrix& matrix, CheckpointFormat format, std::span<std::byte> to);

/// Zero points of kU4Asymmetric, -least / scale to nearest, 0 to 15: (ceil(rows / 8), groups) words
/// of 32 bits, each with those of eight rows, the first in its lowest bits.
/// Requires: what WriteScales returned true for.
void WriteZeros(const PlainMatrix& matrix, std::span<std::byte> to);

/// Codes by these scales, to nearest, ties to even: E4M3 with at most 448; or code + zero point of
/// 4 bits, 0 to 15, eight in a word of 32 bits, the first in its lowest bits. Without zero points
/// of its own the format has 8.
/// Requires: what WriteScales returned true for; of 4 bits cols a multiple of 8.
void WriteCodes(const PlainMatrix& matrix, CheckpointFormat format, std::span<std::byte> to);

}  // namespace culet
