#include "gemm/error_model.h"

#include <algorithm>
#include <cmath>

#include "base/float_types.h"
#include "gemm/scratch_fill.h"

// What a tensor core of b bits may lose, measured on Hopper's E4M3 products (b = 14): an instruction
// adds 32 products and the accumulator, each truncated towards zero, b bits below the largest, M.
// - A product whose own 8 bits end above the last place (at least M / 32) loses nothing; a smaller
//   one at most 2^(1-b) M and never more than itself. Positive products only lose and negative ones
//   only gain, so the larger of the two sums counts.
// - Subnormal numbers are not normalised: a product with one counts in M as if its factor were 2^-6.
// - The accumulator loses at most 2^(1-b) M, the result 2^(1-b) of itself.
// tests/fp8_bound_test.cc emulates such a unit: with 14 bits it stays within a third of the bound at
// a relative L2 error of 1.3e-4, and 11 bits are caught.
namespace culet {
namespace {

constexpr int kFp32Bits = 24;
constexpr int kInstructionBytes = 32;  // of A along K that a matrix instruction takes

bool IsPowerOfTwo(double value) noexcept {
  int exponent = 0;
  return std::fabs(std::frexp(value, &exponent)) == 0.5;
}

double Sigmoid(double x) noexcept { return 1 / (1 + std::exp(-x)); }

// |d silu / dx|.
double Slope(double x) noexcept {
  const double sigmoid = Sigmoid(x);
  return std::fabs(sigmoid * (1 + x * (1 - sigmoid)));
}

// The largest slope in [low, high]. It has its maxima at +-2.3994, 1.0998 and 0.0998 high.
double LargestSlope(double low, double high) noexcept {
  constexpr double kTurn = 2.3994;
  double slope = std::max(Slope(low), Slope(high));
  if (low < kTurn && high > kTurn) slope = std::max(slope, 1.0999);
  if (low < -kTurn && high > -kTurn) slope = std::max(slope, 0.0999);
  return slope;
}

}  // namespace

ErrorModel::ErrorModel(const GemmDesc& desc, const ScratchOptions& options,
                       const Accumulator& accumulator)
    : accumulator_(accumulator),
      unit_(desc.arch == 0 ? 0x1p-24 : 0x1p-23),  // GPUs' matrix units truncate
      exact_(options.fill == Fill::kIntegers && IntegersAreExact(desc, accumulator)),
      exact_epilogue_(exact_ && IsPowerOfTwo(options.alpha) &&
                      (desc.c.type == DataType::kNull || IsPowerOfTwo(options.beta))) {
  // Zero points are subtracted, from A and from B.
  const double roundings =
      desc.k + 6.0 + (desc.a.zero_type != DataType::kNull) + (desc.b.zero_type != DataType::kNull);
  product_ = Gamma(roundings);
  addend_ = Gamma(3);
  underflow_ = roundings * 0x1p-126;
  if (accumulator.bits >= kFp32Bits || exact_) return;
  interval_ = accumulator.promotion_k > 0 ? accumulator.promotion_k : desc.k;
  instruction_ = kInstructionBytes * 8 / std::max(BitsOf(desc.a.type), BitsOf(desc.b.type));
  product_bits_ = PrecisionOf(desc.a.type) + PrecisionOf(desc.b.type);
}

// The error bound of a matrix unit with few accumulator bits (scales are equal within an interval).
// An instruction adds its products and the accumulator: each addend is truncated towards zero,
// `bits` below the largest one. Products large enough to lose nothing, however the unit counts
// exponents, are left out; smaller ones lose at most a unit in the last place, or all they have.
// Positive and negative products err in opposite directions. `interval_` elements are summed before
// they move to FP32.
//
// Subnormal numbers are not normalised: a product with one is aligned as if the smallest normal
// number stood there.
double ErrorModel::UnitError(const Factors& a, const Factors& b, int k) const noexcept {
  const double last_place = std::ldexp(1.0, 1 - accumulator_.bits);
  const double whole = std::ldexp(1.0, product_bits_ + 1 - accumulator_.bits);
  double all = 0, sum = 0, error = 0;
  int at = 0;  // within the interval
  for (int begin = 0; begin < k;) {
    if (at == interval_) {
      all += error;
      sum = error = 0;
      at = 0;
    }
    const int count = std::min({instruction_, k - begin, interval_ - at});
    double largest = std::fabs(sum) + error;
    const double held = largest;
    for (int i = begin; i < begin + count; ++i) {
      largest = std::max(largest, a.reaches[i] * b.reaches[i]);
    }
    const double unit = last_place * largest;
    double losses = 0, signed_losses = 0;
    for (int i = begin; i < begin + count; ++i) {
      const double product = a.values[i] * b.values[i], size = std::fabs(product);
      const double loss = size < whole * largest ? std::min(size, unit) : 0.0;
      losses += loss;
      signed_losses += std::copysign(loss, product);
      sum += product;
    }
    // The larger of the losses of positive and of negative products.
    error += (losses + std::fabs(signed_losses)) / 2 + std::min(held, unit);
    error += last_place * (std::fabs(sum) + error);  // the result itself
    begin += count;
    at += count;
  }
  return all + error;
}

double ErrorModel::ProductSlack(const Factors& a, const Factors& b, int k, double alpha,
                                const Sums& sums) const noexcept {
  if (exact_) return exact_epilogue_ ? 0 : addend_ * std::fabs(alpha * sums.value);
  const double unit = interval_ > 0 ? UnitError(a, b, k) : 0;
  return std::fabs(alpha) * (product_ * sums.magnitude + unit) + underflow_;
}

Bounded ErrorModel::GatedSilu(const Bounded& gate, const Bounded& up) const noexcept {
  // exp(-x) errs by some units and by |x| of them for its argument; the sum, the quotient and the
  // product by some more, with one inverse for four of them by twelve. Where exp(-x) overflows or
  // its inverse is flushed, silu is 0 too soon.
  constexpr double kUnits = 12, kFlushed = 0x1p-119;
  const double x = gate.value;
  const double silu = x / (1 + std::exp(-x));
  const double largest_up = std::fabs(up.value) + up.slack;
  const double of_gate = LargestSlope(x - gate.slack, x + gate.slack) * gate.slack;
  // An approximate exponential loses 2^-23 of its argument on any device.
  const double of_silu =
      kUnits * unit_ * std::fabs(silu) + std::min(std::fabs(x), 128.0) * 0x1p-23 * std::fabs(silu);
  const double slack = largest_up * (of_gate + of_silu + kFlushed) + std::fabs(silu) * up.slack;
  return {silu * up.value, slack + 0x1p-126};
}

}  // namespace culet
