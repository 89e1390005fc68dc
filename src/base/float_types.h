// Conversions between the element types, exact where the target can hold the value, else rounded
// once to nearest even.
#pragma once

#include <cstdint>

#include "culet/types.h"

namespace culet {

float Float16ToFloat(std::uint16_t bits) noexcept;
float Bfloat16ToFloat(std::uint16_t bits) noexcept;
float Float8E4m3ToFloat(std::uint8_t bits) noexcept;

std::uint16_t FloatToFloat16(float value) noexcept;
std::uint16_t FloatToBfloat16(float value) noexcept;
/// Saturates: what rounds above 448 becomes 448, NaN stays NaN.
std::uint8_t FloatToFloat8E4m3(float value) noexcept;

/// Elements first, first + stride, ... of an array of `type`; NaN for int32 and none. Of elements
/// of 4 bits the even ones are the low halves of their bytes.
void LoadLine(const void* data, DataType type, std::int64_t first, std::int64_t stride, int count,
              double* out) noexcept;

/// Element `index` of an array of `type`, as LoadLine.
double LoadAsDouble(const void* data, DataType type, std::int64_t index) noexcept;

/// Rounds once from double to `type`; int32 and none are left alone. Overflow gives infinity (E4M3:
/// 448; the integers, E2M1 and UE8M0: their end). UE8M0: the nearest power of two.
void StoreFromDouble(void* data, DataType type, std::int64_t index, double value) noexcept;

/// `value` rounded once to `type` and read back.
double RoundTo(DataType type, double value) noexcept;

/// The smallest positive normal number of `type`; 0 where there are no subnormal ones.
double SmallestNormalOf(DataType type) noexcept;

/// Significant bits of `type`, the hidden one included; 0 for int32 and none.
int PrecisionOf(DataType type) noexcept;

}  // namespace culet
