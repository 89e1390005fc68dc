// Infinities and NaN: every CPU kernel, at every m and SIMD level, has those of the definition
// (docs/numerics.md), whatever its own order of additions does.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "cpu_simd_problem.h"
#include "culet/device.h"
#include "culet/registry.h"
#include "simd_levels.h"

namespace culet {
namespace {

using namespace simd_test;  // NOLINT: the problems are this file's vocabulary

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kN = 34, kK = 300;

bool Same(double a, double b) {
  if (std::isnan(b)) return std::isnan(a);
  if (std::isinf(b)) return a == b;
  return std::fabs(a - b) <= 0.01 * std::fabs(b) + 1e-3;
}

class CpuOverflow : public testing::Test {
 protected:
  // `change` puts something extreme into a problem of whole numbers. All kernels must then have the
  // reference's infinities and NaN; `rows` of them are checked against `expected`, too.
  static void Expect(Case c, const std::function<void(Problem&)>& change,
                     const std::function<bool(double)>& expected) {
    c.n = kN;
    c.k = kK;
    int launches = 0;
    for (const int m : {1, 3, 8, 16, 17}) {
      c.m = m;
      Problem right(c, Data::kIntegers);
      change(right);
      ASSERT_EQ(right.Run(*Builtin().Find("cpu_reference")), "");
      EXPECT_TRUE(expected(right.d().at(0, 0))) << right.d().at(0, 0);
      const GemmDesc desc = *Describe(right.Args(), 0);
      AtEachSimdLevel([&] {
        for (Kernel* kernel : Builtin().kernels()) {
          if (!Takes(*kernel, desc)) continue;
          Problem problem(c, Data::kIntegers);
          change(problem);
          if (kernel->desc().backend == Backend::kLibrary) {
            ASSERT_TRUE(RunPrepared(*kernel, problem.Args(), desc)) << kernel->id();
          } else {
            ASSERT_EQ(problem.Run(*kernel), "") << kernel->id();
          }
          ++launches;
          for (int row = 0; row < m; ++row) {
            for (int col = 0; col < kN; ++col) {
              ASSERT_TRUE(Same(problem.d().at(row, col), right.d().at(row, col)))
                  << kernel->id() << " m=" << m << " at " << row << ", " << col << ": "
                  << problem.d().at(row, col) << " for " << right.d().at(row, col);
            }
          }
        }
      });
    }
    // At each m and level, the one of the reference and two of own kernels at least.
    EXPECT_GE(launches, 3 * 5 * __builtin_popcountll(SimdTargets()));
  }

 private:
  static Registry& Builtin() {
    static Registry registry = Registry::Builtin(HostDevice());
    return registry;
  }

  // Libraries' kernels launch what they prepared.
  static bool RunPrepared(Kernel& kernel, const GemmArgs& args, const GemmDesc& desc) {
    const auto prepared = PrepareKernel(kernel, args, 0, 1);
    if (!prepared.ok()) return false;
    const WorkspaceSize size = kernel.workspace_size(desc, 0, 1);
    std::vector<std::byte> memory(size.total() + 256);
    void* data = memory.data();
    std::size_t space = memory.size();
    std::align(256, size.total(), data, space);
    auto workspace = InitWorkspace(size, data, size.total());
    return workspace.ok() && (*prepared)->Launch(args.alpha, args.A, args.U, args.beta, args.C,
                                                 args.D, *workspace, nullptr) == 0;
  }
};

Case Of(DataType type, DataType d = kFloat32) { return {.a = type, .b = type, .d = d}; }

bool IsNan(double x) { return std::isnan(x); }

TEST_F(CpuOverflow, InfiniteScales) {
  for (const QuantDesc& quant : {QuantDesc{QuantType::kK, 128}, QuantDesc{QuantType::kRow}}) {
    Case c = Of(kFloat8_e4m3);
    c.quant_a = quant;
    if (quant.type == QuantType::kRow) c.quant_b = quant;
    // Terms of both signs, and zeros.
    Expect(
        c, [](Problem& p) { p.u().set(0, 0, kInf); }, IsNan);
    Expect(
        c, [](Problem& p) { p.v().set(0, 0, -kInf); }, IsNan);
    Expect(
        c, [](Problem& p) { p.u().set(0, 0, kNaN); }, IsNan);
    // Of one sign alone.
    Expect(
        c,
        [](Problem& p) {
          p.a().Fill([] { return 1.0; }), p.b().Fill([] { return 2.0; });
          p.u().set(0, 0, kInf);
        },
        [](double x) { return x == kInf; });
    Expect(
        c, [](Problem& p) { p.u().set(0, 0, kInf), p.v().set(0, 0, 0); }, IsNan);
  }
}

TEST_F(CpuOverflow, ScalesWhoseProductOverflows) {
  const Case c = Of(kFloat8_e4m3);
  const auto fill = [](Problem& p, double a, double u, double v) {
    p.a().Fill([&] { return a; }), p.b().Fill([] { return 1.0; });
    p.u().Fill([&] { return u; }), p.v().Fill([&] { return v; });
  };
  Expect(
      c, [&](Problem& p) { fill(p, 1, 1e30, 1e30); }, [](double x) { return x == kInf; });
  Expect(
      c, [&](Problem& p) { fill(p, -1, 1e30, 1e30); }, [](double x) { return x == -kInf; });
  Expect(
      c, [&](Problem& p) { fill(p, 0, 1e30, 1e30); }, [](double x) { return x == 0; });
  // Large times small is neither.
  Expect(
      c, [&](Problem& p) { fill(p, 1, 1e30, 1e-30); }, [](double x) { return x > 299; });
  // Sums of blocks that overflow and cancel.
  Expect(
      c,
      [&](Problem& p) {
        fill(p, 1, 3e30, 1e6);
        for (int row = 0; row < p.a().layout().rows; ++row) {
          for (int k = 0; k < kK; ++k) p.a().set(row, k, k < 150 ? 256 : -256);
        }
      },
      [](double x) { return x == 0; });
}

TEST_F(CpuOverflow, SumsThatOverflow) {
  for (const DataType type : {kFloat32, kBfloat16}) {
    for (const DataType d : {kFloat32, kBfloat16}) {
      const Case c = Of(type, d);
      const auto fill = [](Problem& p, const std::function<double(int)>& a) {
        for (int row = 0; row < p.a().layout().rows; ++row) {
          for (int k = 0; k < kK; ++k) p.a().set(row, k, a(k));
        }
        p.b().Fill([] { return 0x1p60; });
      };
      // Every product overflows, the sum is 0, or one product.
      Expect(
          c, [&](Problem& p) { fill(p, [](int k) { return k % 2 == 0 ? 0x1p90 : -0x1p90; }); },
          [](double x) { return x == 0; });
      Expect(
          c,
          [&](Problem& p) {
            fill(p, [](int k) { return k == 0 ? 0x1p40 : k % 2 == 0 ? 0x1p90 : -0x1p90; });
          },
          [](double x) { return x == -kInf; });
      Expect(
          c, [&](Problem& p) { fill(p, [](int) { return 0x1p90; }); },
          [](double x) { return x == kInf; });
      // No product does, their sum on the way.
      Expect(
          c, [&](Problem& p) { fill(p, [](int k) { return k < 150 ? 0x1p67 : -0x1p67; }); },
          [](double x) { return x == 0; });
    }
  }
}

TEST_F(CpuOverflow, AlphaAndC) {
  Case c = Of(kFloat32);
  c.alpha = 1e38f;
  c.beta = -1e38f;
  c.c = kFloat32;
  // Both 1e38 times 300.
  Expect(
      c,
      [](Problem& p) {
        p.a().Fill([] { return 1.0; }), p.b().Fill([] { return 1.0; });
        auto args = p.Args();
        auto* values = static_cast<float*>(const_cast<void*>(args.C));
        for (std::int64_t i = 0; i < args.Cdesc.rows; ++i) {
          std::fill_n(values + i * args.Cdesc.ld, args.Cdesc.cols, 300.0f);
        }
      },
      [](double x) { return x == 0; });
}

TEST_F(CpuOverflow, InfinitiesAndNaNOfElements) {
  for (const DataType type : {kFloat32, kFloat16, kBfloat16}) {
    Case c = Of(type, type);
    const auto ones = [](Problem& p) {
      p.a().Fill([] { return 1.0; }), p.b().Fill([] { return 1.0; });
    };
    Expect(
        c, [&](Problem& p) { ones(p), p.a().set(0, 7, kInf); }, [](double x) { return x == kInf; });
    Expect(
        c, [&](Problem& p) { ones(p), p.a().set(0, 7, kInf), p.a().set(0, 200, -kInf); }, IsNan);
    Expect(
        c, [&](Problem& p) { ones(p), p.a().set(0, 7, kInf), p.b().set(7, 0, 0); }, IsNan);
    Expect(
        c, [&](Problem& p) { ones(p), p.b().set(kK - 1, 0, kNaN); }, IsNan);
  }
}

}  // namespace
}  // namespace culet
