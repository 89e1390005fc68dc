// What an epilogue does with a product's sums before they are stored, for host and device.
#pragma once

#include <cstdint>

#include "culet/layout/host_device.h"

namespace culet::sm90 {

/// An element of D, C or the bias.
enum class OutputType : std::int8_t { kBf16 = 0, kF16 = 1, kF32 = 2 };

CULET_HOST_DEVICE constexpr int BytesOf(OutputType type) { return type == OutputType::kF32 ? 4 : 2; }

/// x = alpha * scale_a[row] * scale_b[column] * sum + beta * c[row, column] + bias[column]
/// A null pointer leaves out its term, or its factor if it is a scale.
struct EpilogueParams {
  float alpha = 1.0f;
  float beta = 0.0f;
  const float* scale_a = nullptr;  ///< of rows of A, or of all of it: per-row and per-tensor scales
  const float* scale_b = nullptr;  ///< of columns of B, or of all of it
  int scale_a_step = 0;            ///< elements between the scales of two rows; 0: one for all
  int scale_b_step = 0;
  const void* c = nullptr;
  std::int64_t ldc = 0;  ///< elements; C is row-major
  int up_column = 0;  ///< of paired columns the first of up in B, C and the bias; 0: by eights
  const void* bias = nullptr;
  int bias_step = 1;  ///< 0 and bias_row_step 1: one value a row
  int bias_row_step = 0;
  OutputType c_type = OutputType::kBf16;
  OutputType bias_type = OutputType::kBf16;
  OutputType d_type = OutputType::kBf16;
  /// The factor of products that have no other factor (Promote).
  float one = 1.0f;
  float* d_scale = nullptr;  ///< of an epilogue that quantises: for each row and 128 columns of D
  int d_scale_row = 0;       ///< elements between the scales of two rows ...
  int d_scale_block = 0;     ///< ... and of two blocks of columns
};

/// Whether D is more than the rounded product.
CULET_HOST_DEVICE constexpr bool ChangesSums(const EpilogueParams& e) {
  return e.alpha != 1.0f || e.scale_a != nullptr || e.scale_b != nullptr || e.c != nullptr ||
         e.bias != nullptr;
}

/// Whether D is alpha and scales times the product, in BF16.
CULET_HOST_DEVICE constexpr bool OnlyScalesToBf16(const EpilogueParams& e) {
  return e.d_type == OutputType::kBf16 && e.bias == nullptr && (e.c == nullptr || e.beta == 0.0f);
}

/// Whether D is alpha times the product, in BF16.
CULET_HOST_DEVICE constexpr bool OnlyRoundsToBf16(const EpilogueParams& e) {
  return OnlyScalesToBf16(e) && e.scale_a == nullptr && e.scale_b == nullptr;
}

}  // namespace culet::sm90
