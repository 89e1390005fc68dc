// The arithmetic of the references: T is double or float.
//
// In FP32 each operator is one IEEE operation and each sum has the order written here, so the bits
// are the same everywhere. Files that include this are compiled without contraction and without
// relaxed rules (CMakeLists.txt), and use no std::inner_product and the like, whose instance the
// linker may take from a file that was compiled otherwise.
//
// The orders are those in which CPUs usually compute FP32: a matrix library adds fused products in
// the order of k, a block of k at a time; PyTorch takes means in four vectors of eight.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace culet {

/// a b + c, in FP32 with one rounding.
inline float MultiplyAdd(float a, float b, float c) { return std::fma(a, b, c); }
inline double MultiplyAdd(double a, double b, double c) { return a * b + c; }

/// The sum of a[i] b[i]: of each 256 elements in the order of i, then of these in their order.
template <class T>
T Dot(const T* a, const T* b, std::int64_t count) {
  constexpr std::int64_t kBlock = 256;
  T sum = 0;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    T block = 0;
    const std::int64_t end = std::min(count, first + kBlock);
    for (std::int64_t i = first; i < end; ++i) block = MultiplyAdd(a[i], b[i], block);
    sum += block;
  }
  return sum;
}

/// The sum of x[i]^2: square i goes to vector i / 8 mod 4, element i mod 8; then the vectors are
/// added, then the elements of their sum.
template <class T>
T SumOfSquares(const T* x, std::int64_t count) {
  constexpr std::size_t kLanes = 8, kVectors = 4;
  std::array<T, kVectors * kLanes> partial{};
  for (std::int64_t i = 0; i < count; ++i) {
    partial[static_cast<std::size_t>(i) % partial.size()] += x[i] * x[i];
  }
  T sum = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    T of_lane = 0;
    for (std::size_t v = 0; v < kVectors; ++v) of_lane += partial[v * kLanes + lane];
    sum += of_lane;
  }
  return sum;
}

/// e^x, rounded from double: C libraries differ in the last bit of FP32.
template <class T>
T Exp(T x) {
  return static_cast<T>(std::exp(static_cast<double>(x)));
}

template <class T>
T Silu(T x) {
  return x / (1 + Exp(-x));
}

}  // namespace culet
