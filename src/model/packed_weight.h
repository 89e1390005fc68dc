// Weights of 4 bits as checkpoints pack them, unpacked to one description.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "culet/safetensors.h"
#include "culet/status.h"

namespace culet {

/// The tensors of one weight; null for those that a checkpoint lacks.
struct PackedTensors {
  const SafetensorsTensor* codes = nullptr;   ///< qweight, weight_packed
  const SafetensorsTensor* scales = nullptr;  ///< scales, weight_scale
  const SafetensorsTensor* zeros = nullptr;   ///< qzeros, weight_zero_point
  const SafetensorsTensor* order = nullptr;   ///< g_idx, weight_g_idx: the group of each column
  const SafetensorsTensor* shape = nullptr;   ///< weight_shape
};

/// Element (row, col) is (code - zero) * scale, with the zero and the scale of group col / group
/// elements of the row, and meets element order[col] of an input.
struct UnpackedWeight {
  std::vector<std::uint8_t> codes;   ///< (rows, cols): an even column in the low half of a byte
  std::vector<std::uint16_t> zeros;  ///< (rows, groups) BF16, which holds 0 to 16
  std::vector<std::byte> scales;     ///< (rows, groups)
  DataType scales_type = DataType::kNull;
  std::vector<std::int32_t> order;  ///< empty: column i meets element i
};

/// The weight (rows, cols) of the form that `coding` says.
/// Errors, each with the tensor's name, the value and what it must be: INVALID_ARGUMENT for a shape
/// that the others or the config contradict, sizes that the packing cannot have, a scale that is
/// zero or not finite, a group that does not exist or has too many columns; UNSUPPORTED for an
/// element type.
/// Requires: codes and scales, and zeros where coding.zeros.
Result<UnpackedWeight> Unpack(const PackedTensors& tensors, const WeightCoding& coding,
                              std::int64_t rows, std::int64_t cols);

}  // namespace culet
