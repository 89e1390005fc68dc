// The bound on FP8 products of a GPU, against Hopper's matrix unit in software: right arithmetic
// stays inside on normal and on extreme data, an accumulator of fewer bits does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "culet/model.h"
#include "gemm/scratch_fill.h"
#include "gemm/scratch_layout.h"
#include "gemm/scratch_oracle.h"

namespace culet {
namespace {

constexpr int kInterval = 128, kInstruction = 32;

// `value` truncated towards zero to multiples of 2^exponent.
double Truncated(double value, int exponent) {
  return std::ldexp(std::trunc(std::ldexp(value, -exponent)), exponent);
}

// The exponent of an E4M3 number as the unit sees it: subnormal numbers are not normalised.
int ExponentOf(double value) { return std::max(std::ilogb(value), -6); }

// An interval as wgmma adds it: the addends of an instruction aligned to the largest, of which
// `bits` are kept. Values without their scales. A product counts by its factors' exponents.
double Unit(const std::vector<double>& a, const std::vector<double>& b, int begin, int end,
            int bits) {
  double sum = 0;
  for (int first = begin; first < end; first += kInstruction) {
    const int last = std::min(end, first + kInstruction);
    int most = -1000;
    if (sum != 0) most = std::ilogb(sum);
    for (int i = first; i < last; ++i) {
      if (a[i] * b[i] != 0) most = std::max(most, ExponentOf(a[i]) + ExponentOf(b[i]));
    }
    const int grid = most - bits + 1;
    double next = Truncated(sum, grid);
    for (int i = first; i < last; ++i) next += Truncated(a[i] * b[i], grid);
    sum = next;
  }
  return sum;
}

struct Worst {
  double over_bound = 0;
  double relative_l2 = 0;
};

// All elements of a product computed so, against the oracle.
Worst Compare(const GemmDesc& desc, Fill fill, int bits) {
  ScratchOptions options;
  options.fill = fill;
  options.alpha = 0.7f;
  const auto at = Arrange(desc, 0);
  EXPECT_TRUE(at.ok());
  std::vector<std::byte> block(at->bytes);
  EXPECT_TRUE(FillBlock(desc, *at, options, block.data()).ok());
  const Oracle oracle = *MakeOracle(desc, *at, options, block.data(), {14, kInterval});
  const auto load = [&](const Region& region, int row, int col) {
    return LoadAsDouble(block.data() + region.data, region.layout.type,
                        IndexOf(region.layout, row, col));
  };
  Worst worst;
  double error2 = 0, reference2 = 0;
  std::size_t index = 0;
  for (const int row : oracle.rows) {
    for (const int col : oracle.cols) {
      std::vector<double> a, b;
      for (int i = 0; i < desc.k; ++i) {
        a.push_back(load(at->a, row, i));
        b.push_back(load(at->b, i, col));
      }
      float sum = 0;
      for (int begin = 0; begin < desc.k; begin += kInterval) {
        const int block_k = begin / kInterval;
        const float scale = static_cast<float>(load(at->u, row, block_k)) *
                            static_cast<float>(load(at->v, block_k, col / kInterval));
        const int end = std::min(desc.k, begin + kInterval);
        sum += scale * static_cast<float>(Unit(a, b, begin, end, bits));
      }
      const double value = RoundTo(desc.d.type, options.alpha * sum);
      const double reference = oracle.reference[index], slack = oracle.slack[index];
      ++index;
      worst.over_bound =
          std::max(worst.over_bound,
                   OverBound(value, reference, AllowedAround(reference, slack, desc.d.type)));
      if (!std::isfinite(reference)) continue;
      error2 += (value - reference) * (value - reference);
      reference2 += reference * reference;
    }
  }
  worst.relative_l2 = std::sqrt(error2 / reference2);
  return worst;
}

GemmDesc Problem(int m, int n, int k) {
  const auto desc = MakeDesc(Format::kFp8Block, m, n, k, 900, DataType::kFloat32);
  EXPECT_TRUE(desc.ok());
  return *desc;
}

TEST(Fp8Bound, HoldsForTheMeasuredUnit) {
  for (const int k : {2, 16, 32, 128, 272, 1040}) {
    for (const Fill fill : {Fill::kIntegers, Fill::kNormal, Fill::kExtreme}) {
      const Worst worst = Compare(Problem(24, 40, k), fill, 14);
      EXPECT_LE(worst.over_bound, 1.0) << "k " << k << " fill " << static_cast<int>(fill);
      if (fill == Fill::kNormal) {
        EXPECT_LE(worst.relative_l2, 1.5e-4) << "k " << k;
      }
    }
  }
}

// A product of 96 and the smallest subnormal number aligns the others as if that were 2^-6: seen on
// an H200, where the last bit of the second product is lost.
TEST(Fp8Bound, SubnormalNumbersAreNotNormalised) {
  const std::vector<double> a = {96, -0.02734375}, b = {-0.001953125, -0.140625};
  EXPECT_EQ(Unit(a, b, 0, 2, 14), -0.1837158203125);
}

TEST(Fp8Bound, IsNoneForAUnitOfFewerBits) {
  EXPECT_GT(Compare(Problem(24, 40, 272), Fill::kNormal, 11).over_bound, 1.0);
  EXPECT_GT(Compare(Problem(24, 40, 272), Fill::kExtreme, 11).over_bound, 1.0);
}

}  // namespace
}  // namespace culet
