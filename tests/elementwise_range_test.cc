// Operations element by element and the exponential, over all of FP32's range, at every SIMD level.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elementwise_range_test.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

// `count` is a multiple of all vectors' lanes.
void ExpOfAll(const float* x, float* out, std::size_t count) {
  const F32 d;
  for (std::size_t i = 0; i < count; i += kLanes) {
    hn::StoreU(ExpOf(d, hn::LoadU(d, x + i)), d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/float_types.h"
#include "kernels/ops/ops.h"
#include "simd_levels.h"
#include "whole_range.h"

namespace culet {
HWY_EXPORT(ExpOfAll);

namespace {

constexpr double kLastPlace = 0x1p-23;  // of itself
constexpr double kSmallest = 0x1p-149;

TEST(ElementwiseRange, Exponential) {
  std::vector<float> x = WholeRange();
  x.resize(x.size() / 64 * 64);
  AtEachSimdLevel([&] {
    std::vector<float> out(x.size());
    HWY_DYNAMIC_DISPATCH(ExpOfAll)(x.data(), out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(IsNear(out[i], std::exp(double{x[i]}), 4 * kLastPlace, 2 * kSmallest))
          << "exp(" << x[i] << ") is " << out[i];
    }
  });
}

TEST(ElementwiseRange, Silu) {
  const std::vector<float> x = WholeRange();
  AtEachSimdLevel([&] {
    std::vector<float> out(x.size());
    ops::Silu(x.data(), out.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_TRUE(IsNear(out[i], SiluInDouble(x[i]), 6 * kLastPlace, 2 * kSmallest))
          << "silu(" << x[i] << ") is " << out[i];
      ASSERT_TRUE(x[i] > 0 || std::isnan(out[i]) || std::signbit(out[i]) == std::signbit(x[i]));
    }
  });
}

// Each number with others of all sizes.
TEST(ElementwiseRange, OperationsOnPairs) {
  const std::vector<float> x = WholeRange();
  const float inf = std::numeric_limits<float>::infinity();
  const float others[] = {0,         -0.0f,      1,      -3,
                          0x1p-149f, -0x1p-126f, 1e-20f, 7e19f,
                          -3.4e38f,  inf,        -inf,   std::numeric_limits<float>::quiet_NaN()};
  AtEachSimdLevel([&] {
    for (const float other : others) {
      const std::vector<float> y(x.size(), other);
      std::vector<float> sum(x.size()), product(x.size()), gated(x.size());
      ops::Add(x.data(), y.data(), sum.data(), x.size());
      ops::Mul(x.data(), y.data(), product.data(), x.size());
      ops::SwiGlu(x.data(), y.data(), gated.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        // Both are right to the bit: double holds a product, and rounds a sum where it may.
        const double a = x[i], b = other;
        ASSERT_TRUE(IsNear(sum[i], RoundTo(DataType::kFloat32, a + b), 0, 0)) << a << " + " << b;
        ASSERT_TRUE(IsNear(product[i], RoundTo(DataType::kFloat32, a * b), 0, 0))
            << a << " * " << b;
        // silu(a) is an FP32 first: one that is 0 there is 0 beside an infinity too.
        const double silu = RoundTo(DataType::kFloat32, SiluInDouble(a));
        const double amount = 2 * kSmallest * (std::isfinite(b) ? 1 + std::fabs(b) : 1);
        ASSERT_TRUE(IsNear(gated[i], silu * b, 7 * kLastPlace, amount))
            << "silu(" << a << ") * " << b << " is " << gated[i];
      }
    }
  });
}

TEST(ElementwiseRange, Cast) {
  const std::vector<float> x = WholeRange();
  for (const DataType to : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    std::vector<float> stored(x.size());
    ops::Cast(x.data(), DataType::kFloat32, stored.data(), to, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double found = LoadAsDouble(stored.data(), to, static_cast<std::int64_t>(i));
      ASSERT_TRUE(IsNear(found, RoundTo(to, x[i]), 0, 0)) << x[i] << " to " << ToString(to);
    }
  }
}

// Rows that are stored and picked in vectors.
TEST(ElementwiseRange, StoredRows) {
  const std::vector<float> x = WholeRange();
  const auto cols = static_cast<std::int64_t>(x.size());
  const std::int32_t first = 0;
  AtEachSimdLevel([&] {
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
      std::vector<float> stored(x.size()), picked(x.size());
      ops::KvWrite(x.data(), &first, stored.data(), type, 1, cols, 1);
      ops::PickRows(stored.data(), type, 1, cols, &first, picked.data(), 1, 0, 1);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(IsNear(picked[i], RoundTo(type, x[i]), 0, 0))
            << x[i] << " as " << ToString(type) << " is " << picked[i];
      }
    }
  });
}

}  // namespace
}  // namespace culet
#endif  // HWY_ONCE
