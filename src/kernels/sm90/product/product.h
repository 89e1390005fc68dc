// One product as the Hopper families take it, whatever its format.
#pragma once

#include <cstdint>

#include "kernels/sm90/product/epilogue.h"

namespace culet::sm90 {

/// For 0 <= a < 2^31.
constexpr int CeilDiv(int a, int b) { return a / b + (a % b != 0 ? 1 : 0); }

/// D (m, n) row-major, of the kernel's output type, = A (m, k) row-major x B (k, n) column-major.
/// Strides of scales are in elements, so either order of U and V is served. Requires: a, b 16-byte
/// aligned, lda and ldb multiples of 16 (TMA).
struct ProductProblem {
  int m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0;  ///< elements
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  int scale_a_row = 0, scale_a_block = 0, scale_b_column = 0, scale_b_block = 0;
  float alpha = 1.0f;
  bool pdl = false;        ///< the kernel before does not write B or its scales
  bool pdl_chain = false;  ///< also, no kernel still in flight writes memory that the next kernel
                           ///< reads before its own wait
  /// Of kernels with a general epilogue, whose scales of rows and columns are here; alpha is above.
  EpilogueParams epilogue;
};

/// What changes between the launches of one plan; layouts and alignments stay.
struct GemmOperands {
  const void* a = nullptr;
  const float* scale_a = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  float* d_scale = nullptr;  ///< null: where it was
  float alpha = 1.0f;
  float beta = 0.0f;
};

}  // namespace culet::sm90
