// How far a right kernel may be from the double-precision product; docs/numerics.md derives it.
#pragma once

#include "culet/desc.h"
#include "culet/scratch.h"

namespace culet {

/// Sum of a b, and of |a b|.
struct Sums {
  double value = 0, magnitude = 0;
};

/// Elements along K with their scales. `reaches`: their size as a matrix unit sees them that does
/// not normalise subnormal numbers, 0 for 0; null if that does not matter.
struct Factors {
  const double* values = nullptr;
  const double* reaches = nullptr;
};

/// A value before its rounding to D's type, and the error that it may have.
struct Bounded {
  double value = 0;
  double slack = 0;
};

/// The accumulator that the bound on a kernel's result supposes. A problem that allows
/// Accumulate::kFast allows it of every kernel that keeps fewer than 24 bits.
inline Accumulator AccumulatorFor(const KernelDesc& kernel, const GemmDesc& problem) noexcept {
  Accumulator accumulator = AccumulatorOf(kernel);
  if (problem.accumulate == Accumulate::kFast) accumulator.promotion_k = 0;
  return accumulator;
}

/// How arithmetic in FP32, with partial sums in `accumulator`, may err.
class ErrorModel {
 public:
  ErrorModel(const GemmDesc& desc, const ScratchOptions& options, const Accumulator& accumulator);

  /// Whether ProductSlack reads the reaches.
  bool needs_reaches() const noexcept { return interval_ > 0; }

  /// Of alpha * (sum of a b): `a`, `b` of length k, and their sums.
  double ProductSlack(const Factors& a, const Factors& b, int k, double alpha,
                      const Sums& sums) const noexcept;

  /// Of what is added to it.
  double AddendSlack(double addends) const noexcept {
    return exact_epilogue_ ? 0 : addend_ * addends;
  }

  /// silu(gate) * up.
  Bounded GatedSilu(const Bounded& gate, const Bounded& up) const noexcept;

 private:
  double Gamma(double roundings) const noexcept {
    return roundings * unit_ / (1 - roundings * unit_);
  }
  double UnitError(const Factors& a, const Factors& b, int k) const noexcept;

  Accumulator accumulator_;
  double unit_;
  bool exact_;
  bool exact_epilogue_;
  double product_ = 0, addend_ = 0, underflow_ = 0;
  int interval_ = 0;      // elements that the matrix unit sums; 0: sums are FP32's
  int instruction_ = 0;   // products that it adds at once
  int product_bits_ = 0;  // of one product
};

}  // namespace culet
