// Blocks of a GGUF tensor as numbers, or as codes with scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "culet/status.h"
#include "culet/types.h"
#include "model/gguf_file.h"

namespace culet {

/// Element (row, col) is (code - zero) * scale, with the zero and the scale of group col / group of
/// the row: exactly the file's value; of types with minima or offsets (Q4_1, Q5_1, Q4_K, Q5_K) that
/// to float32's precision.
struct GgufCodes {
  DataType type = DataType::kNull;  ///< kUint4, kInt8 or kFloat4_e2m1
  int group = 0;
  std::vector<std::byte> codes;  ///< (rows, cols); of 4 bits an even column in a byte's low half
  DataType scales_type = DataType::kNull;
  std::vector<std::byte> scales;  ///< (rows, cols / group)
  DataType zeros_type = DataType::kNull;
  std::vector<std::byte> zeros;  ///< as the scales; empty: none
};

/// Whether the type has codes: not F32, F16 and BF16.
bool HasCodes(const GgufTensor& tensor) noexcept;

/// GgufCodes::type. Requires: a known type with codes.
DataType CodesOf(const GgufTensor& tensor) noexcept;

/// Bytes that the codes, scales and zero points of the tensor will have.
std::size_t CodeBytes(const GgufTensor& tensor) noexcept;

/// The codes of a tensor. Errors: UNSUPPORTED for a type without codes, INVALID_ARGUMENT for a
/// scale that is not finite; these name the tensor. Requires: a known type.
Result<GgufCodes> UnpackGguf(const GgufTensor& tensor);

/// Row `row` as float32, each element rounded as the format's own library does. Requires: a known
/// type; cols() elements.
void LoadGgufRow(const GgufTensor& tensor, std::int64_t row, std::span<float> to) noexcept;

}  // namespace culet
