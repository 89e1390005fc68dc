// A product that a kernel of Hopper's computes on the CPU, and what D must be.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "host_cuda/host_cuda.h"
#include "host_wgmma_values.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product.h"

namespace culet::sm90 {

/// Where the scales of A's rows and blocks of 128 of K lie.
enum class ScaleOrder {
  kBlocksInner,  ///< so that TMA can load them
  kRowsInner,    ///< the same
  kOdd           ///< rows an odd number of floats apart
};

struct ProductCase {
  int m = 0, n = 0, k = 0;
  OutputType d = OutputType::kBf16;
  ScaleOrder order = ScaleOrder::kBlocksInner;
  bool line_scales = false, tensor_scales = false;  ///< of formats whose epilogue scales
  bool bias = false, row_bias = false, c = false;
  bool halves = false;  ///< gate's columns before up's, not eight by eight
  float alpha = 1;
  bool pdl = false;
  std::vector<int> counts = {};  ///< rows of groups, whose B lie one behind the other
  bool offsets = false;          ///< groups are given without counts
};

inline DataType TypeOf(OutputType type) {
  return type == OutputType::kF32   ? DataType::kFloat32
         : type == OutputType::kF16 ? DataType::kFloat16
                                    : DataType::kBfloat16;
}

inline int RoundUp(int value, int unit) { return (value + unit - 1) / unit * unit; }

/// Makes a problem of `of`, lets `start` compute it, and compares D. Whole numbers and scales that
/// are powers of two leave one right result, but where silu is computed or D is quantised. `starts`
/// is null without groups.
inline void CheckProduct(
    const FormatInfo& format, EpilogueKind epilogue, const ProductCase& of,
    const std::function<cudaError_t(const ProductProblem&, const int* starts)>& start) {
  const bool scaled = format.sums == Sums::kBlockScaled, gated = IsGated(epilogue),
             quantises = epilogue == EpilogueKind::kGatedQuant;
  const int groups = of.counts.empty() ? 1 : static_cast<int>(of.counts.size());
  const int k_blocks = CeilDiv(of.k, 128), n_blocks = CeilDiv(of.n, 128);
  const int columns = gated ? of.n / 2 : of.n;  // of D
  const std::int64_t lda = of.k + 16, ldb = of.k + (groups > 1 ? 0 : 32),
                     ldd = RoundUp(columns, 16) + 16;
  const Elements a_given = WholeNumbers(format.type, of.m, of.k, lda, gated ? 1 : 3, 1);
  Elements a = a_given;
  const Elements b =
      WholeNumbers(format.type, std::int64_t{groups} * of.n, of.k, ldb, gated ? 1 : 2, 2);
  const int a_row = of.order == ScaleOrder::kRowsInner ? 1
                    : of.order == ScaleOrder::kOdd     ? k_blocks | 1
                                                       : RoundUp(k_blocks, 4);
  const int a_block = of.order == ScaleOrder::kRowsInner ? RoundUp(of.m, 4) : 1;
  const int b_column = of.order == ScaleOrder::kOdd ? k_blocks | 1 : RoundUp(k_blocks, 4);
  const std::vector<float> scale_a =
      PowersOfTwo(std::int64_t{of.m} * a_row + std::int64_t{k_blocks} * a_block, 3);
  const std::vector<float> scale_b = PowersOfTwo(std::int64_t{groups} * n_blocks * b_column, 4);
  const std::vector<float> lines_a = PowersOfTwo(of.m, 5), lines_b = PowersOfTwo(of.n, 6);
  const Elements bias =
      WholeNumbers(DataType::kBfloat16, 1, std::max(of.n, of.m), std::max(of.n, of.m), 9, 7);
  const std::int64_t ldc = RoundUp(of.n, 8) + 8;
  const Elements c = WholeNumbers(DataType::kFloat16, of.m, of.n, ldc, 9, 8);
  const DataType d_type = quantises ? DataType::kFloat8_e4m3 : TypeOf(of.d);
  Elements d(d_type, (of.m + 2) * ldd, quantises ? 72 : kUntouched);
  const int d_blocks = CeilDiv(columns, 128);
  std::vector<float> d_scale(Size((of.m + 1) * d_blocks), kUntouched);

  ProductProblem p;
  p.m = of.m, p.n = of.n, p.k = of.k;
  p.lda = lda, p.ldb = ldb, p.ldd = ldd;
  p.a = a.data(), p.b = b.data(), p.d = d.data();
  if (scaled) {
    p.scale_a = scale_a.data(), p.scale_b = scale_b.data();
    p.scale_a_row = a_row, p.scale_a_block = a_block;
    p.scale_b_column = b_column, p.scale_b_block = 1;
  }
  p.alpha = of.alpha;
  p.pdl = of.pdl;
  EpilogueParams& e = p.epilogue;
  e.d_type = of.d;
  if (of.line_scales || of.tensor_scales) {
    e.scale_a = lines_a.data(), e.scale_b = lines_b.data();
    e.scale_a_step = e.scale_b_step = of.line_scales;
  }
  if (of.bias || of.row_bias) e.bias = bias.data();
  if (of.row_bias) e.bias_step = 0, e.bias_row_step = 1;
  if (of.c) e.c = c.data(), e.ldc = ldc, e.c_type = OutputType::kF16, e.beta = 2;
  if (of.halves) e.up_column = of.n / 2;
  if (quantises) e.d_scale = d_scale.data(), e.d_scale_row = d_blocks, e.d_scale_block = 1;
  std::vector<int> starts(1), group_of;
  for (int g = 0; g < static_cast<int>(of.counts.size()); ++g) {
    group_of.insert(group_of.end(), Size(of.counts[Size(g)]), g);
    if (!of.offsets) group_of.push_back(-1);  // a row of none between groups
    starts.push_back(static_cast<int>(group_of.size()));
  }
  group_of.resize(Size(of.m), of.counts.empty() ? 0 : -1);
  if (of.pdl) {  // A is what the kernel before writes last
    for (std::int64_t i = 0; i < of.m * lda; ++i) a.Set(i, NAN);
    host_cuda::OnWait([&] { a = a_given; });
  }
  const cudaError_t error = start(p, of.counts.empty() ? nullptr : starts.data());
  host_cuda::OnWait(nullptr);
  ASSERT_EQ(error, cudaSuccess) << host_cuda::Fault();

  const std::vector<float> a_values = a_given.Values(of.m * lda),
                           b_values = b.Values(std::int64_t{groups} * of.n * ldb);
  const auto value = [&](int row, int column) {  // of the product, in B's order
    const std::int64_t matrix = group_of[Size(row)];
    double sum = 0;
    for (int block = 0; block * 128 < of.k; ++block) {
      const int first = block * 128;
      double part =
          Dot(&a_values[Size(row * lda + first)],
              &b_values[Size((matrix * of.n + column) * ldb + first)], std::min(of.k - first, 128));
      if (scaled)
        part *= double{scale_a[Size(row * a_row + block * a_block)]} *
                scale_b[Size((matrix * n_blocks + column / 128) * b_column + block)];
      sum += part;
    }
    sum *= of.alpha;
    if (of.line_scales) sum *= lines_a[Size(row)] * lines_b[Size(column)];
    if (of.tensor_scales) sum *= lines_a[0] * lines_b[0];
    if (of.c) sum += 2 * c.Get(row * ldc + column);
    if (of.bias) sum += bias.Get(column);
    if (of.row_bias) sum += bias.Get(row);
    return sum;
  };
  int wrong = 0;
  const auto fail = [&](int row, int column, double expected) {
    if (wrong++ < 5)
      ADD_FAILURE() << "row " << row << " column " << column << ": " << d.Get(row * ldd + column)
                    << " for " << expected;
  };
  for (int row = 0; row < of.m + 2; ++row) {
    const bool row_there = row < of.m && group_of[Size(row)] >= 0;
    std::vector<double> expected(Size(ldd), quantises ? 72 : kUntouched);
    for (int column = 0; row_there && column < columns; ++column) {
      if (!gated) {
        expected[Size(column)] = value(row, column);
        continue;
      }
      const int gate = of.halves ? column : column / 8 * 16 + column % 8;
      expected[Size(column)] =
          SiluOf(value(row, gate)) * value(row, gate + (of.halves ? of.n / 2 : 8));
    }
    for (int column = 0; column < ldd; ++column) {
      const double x = expected[Size(column)];
      const bool there = row_there && column < columns;
      if (!there || !quantises) {
        if (!IsNear(d, row * ldd + column, x, there && gated ? 64 : 0)) fail(row, column, x);
        continue;
      }
      const int first = column / 128 * 128, last = std::min(first + 128, columns);
      double largest = 0;
      for (int i = first; i < last; ++i) largest = std::max(largest, std::fabs(expected[Size(i)]));
      const double scale = largest / 448, given = d_scale[Size(row * d_blocks + column / 128)];
      if (std::fabs(given - scale) > scale * 0x1p-17) fail(row, column, scale);
      const double found = d.Get(row * ldd + column) * given;
      if (std::fabs(found - x) > std::max(std::fabs(x) * 0x1p-4, scale * 0x1p-10) * (1 + 0x1p-12))
        fail(row, column, x);
    }
  }
  for (int block = 0; block < d_blocks; ++block)
    EXPECT_EQ(d_scale[Size(of.m * d_blocks + block)], kUntouched);
  EXPECT_EQ(wrong, 0);
}

}  // namespace culet::sm90
