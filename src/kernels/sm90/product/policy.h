// Policies: operand format, how products become sums, and the epilogue. Schedules, rings and host
// code do not depend on the format.
#pragma once

#include <cstdint>

#include "culet/types.h"
#include "sm90/format.h"

namespace culet::sm90 {

/// How the products of k-blocks become the sums over K.
enum class Sums : std::int8_t {
  kBlockScaled,  ///< each k-block goes into FP32 sums with its scales, 1 x 128 of A by 128 x 128 of
                 ///< B
  kPromoted,     ///< each k-block goes into FP32 sums: tensor cores keep 14 bits of an FP8 sum
  kDirect        ///< the tensor core sums all of K
};

/// What the epilogue does with the sums.
enum class EpilogueKind : std::int8_t {
  kPlain,       ///< alpha; D in one type, known at compile time
  kGeneral,     ///< EpilogueParams, at run time
  kGated,       ///< kGeneral, then silu(gate) * up of groups of 16 columns: eight gate, eight up
  kGatedQuant,  ///< kGated, then E4M3 with one FP32 scale per 128 columns of a row of D
};

/// Whether gate and up columns are paired: D has half of the product's columns.
constexpr bool IsGated(EpilogueKind kind) {
  return kind == EpilogueKind::kGated || kind == EpilogueKind::kGatedQuant;
}

/// An operand format as the host knows it; ids of kernels begin with sm90_<name>_.
struct FormatInfo {
  const char* name;
  DataType type;
  int element_bytes;
  Sums sums;
};

/// E4M3 with block scales.
struct Fp8Block {
  using Format = E4m3;
  static constexpr FormatInfo kInfo = {"fp8", DataType::kFloat8_e4m3, 1, Sums::kBlockScaled};
};
/// E4M3 with per-tensor scales, or scales of A's rows and B's columns; promoted to FP32 within K.
struct Fp8Precise {
  using Format = E4m3;
  static constexpr FormatInfo kInfo = {"fp8_precise", DataType::kFloat8_e4m3, 1, Sums::kPromoted};
};
/// The same formats, summed over all of K in the tensor core's own accumulator.
struct Fp8Fast {
  using Format = E4m3;
  static constexpr FormatInfo kInfo = {"fp8_fast", DataType::kFloat8_e4m3, 1, Sums::kDirect};
};
struct Bf16Direct {
  using Format = Bf16;
  static constexpr FormatInfo kInfo = {"bf16", DataType::kBfloat16, 2, Sums::kDirect};
};
struct F16Direct {
  using Format = F16;
  static constexpr FormatInfo kInfo = {"f16", DataType::kFloat16, 2, Sums::kDirect};
};

}  // namespace culet::sm90
