// The SIMD families against a double-precision oracle of their own: exact integers first,
// where any wrong element, scale or order shows as inequality, then normal data within a bound.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/simd_targets.h"
// Behind the choice of targets.
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cpu_simd_problem.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

using namespace simd_test;  // NOLINT: the problems are this file's vocabulary
using enum DataType;

KernelList SimdKernels() {
  KernelList kernels;
  const DeviceInfo host = HostDevice();
  AddCpuSimdSkinny(host, kernels);
  AddCpuSimdBlocked(host, kernels);
  return kernels;
}

bool OneRowOnly(const Kernel& kernel) { return kernel.desc().tile_m == 1; }
bool IsSkinny(const Kernel& kernel) { return kernel.id().find("/skinny/") != std::string::npos; }

// The targets that the kernels are compiled for and this machine has, best first.
std::vector<std::int64_t> Targets() {
  constexpr std::int64_t kFallback = HWY_STATIC_TARGET;  // also stands in for those left out
  std::vector<std::int64_t> targets;
  for (std::int64_t rest = SimdTargets() & ~kFallback; rest != 0; rest &= rest - 1) {
    targets.push_back(rest & -rest);
  }
  targets.push_back(kFallback);
  return targets;
}

class CpuSimd : public testing::Test {
 protected:
  void TearDown() override { UseTarget(0); }

  // 0: what the machine has.
  static void UseTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  // test(kernel, what) for each kernel on each target; `what` names both. Kernels that take one row
  // only: for problems of one row.
  template <class F>
  void ForEach(bool skinny_too, F&& test, bool one_row = false) {
    static const std::vector<std::int64_t> targets = Targets();  // before the first UseTarget
    for (const std::int64_t target : targets) {
      UseTarget(target);
      for (const auto& kernel : kernels_) {
        if (OneRowOnly(*kernel) && !one_row) continue;
        if (skinny_too || !IsSkinny(*kernel)) {
          test(*kernel, kernel->id() + " on " + hwy::TargetName(target));
        }
      }
    }
  }

  // Every kernel that takes the case by its family's statement; a refusal is a failure.
  void ExpectRight(const Case& c, Data data) {
    Problem problem(c, data);
    problem.ComputeExpected();
    ForEach(
        c.m <= 16 && c.order_b == Order::kColMajor,
        [&](Kernel& kernel, std::string what) {
          Problem fresh = problem;
          EXPECT_EQ(fresh.Check(kernel), "") << what << ": " << testing::PrintToString(c);
        },
        c.m == 1);
  }

  const KernelList kernels_ = SimdKernels();
};

struct Format {
  DataType a, b, d;
};
constexpr Format kFormats[] = {
    {kFloat32, kFloat32, kFloat32},    {kFloat16, kFloat16, kFloat16},
    {kBfloat16, kBfloat16, kBfloat16}, {kFloat32, kBfloat16, kFloat32},
    {kFloat32, kFloat16, kFloat32},    {kFloat8_e4m3, kFloat8_e4m3, kBfloat16},
};

TEST_F(CpuSimd, IntegersAreExactForEveryRowCount) {
  for (const Format& f : kFormats) {
    for (const int m : {1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64, 65, 100}) {
      ExpectRight({.a = f.a, .b = f.b, .d = f.d, .m = m, .n = 37, .k = 150}, Data::kIntegers);
    }
  }
}

// One more row than a pass over B takes.
TEST_F(CpuSimd, SecondPassOverTheRows) {
  ExpectRight({.a = kBfloat16, .b = kBfloat16, .d = kBfloat16, .m = 513, .n = 17, .k = 19},
              Data::kIntegers);
  ExpectRight({.a = kFloat8_e4m3, .b = kFloat8_e4m3, .d = kFloat32, .m = 1030, .n = 5, .k = 130},
              Data::kIntegers);
}

TEST_F(CpuSimd, IntegersAreExactAroundEveryEdgeOfN) {
  for (const Format& f : kFormats) {
    for (const int n : {1, 2, 3, 4, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257}) {
      ExpectRight({.a = f.a, .b = f.b, .d = f.d, .m = 5, .n = n, .k = 65, .pad = 3},
                  Data::kIntegers);
    }
  }
}

TEST_F(CpuSimd, IntegersAreExactAroundEveryEdgeOfK) {
  for (const Format& f : kFormats) {
    for (const int k : {1,  2,  3,   7,   8,   15,  16,  17,  31,  32,  33,  63,
                        64, 65, 127, 128, 129, 191, 192, 255, 256, 257, 513, 1029}) {
      ExpectRight({.a = f.a, .b = f.b, .d = f.d, .m = 3, .n = 9, .k = k, .pad = 1},
                  Data::kIntegers);
    }
  }
}

TEST_F(CpuSimd, MisalignedOperandsOrdersAndOutputs) {
  for (const Format& f : kFormats) {
    for (const DataType d : {kFloat32, kFloat16, kBfloat16}) {
      for (const Order order_a : {Order::kRowMajor, Order::kColMajor}) {
        for (const Order order_b : {Order::kColMajor, Order::kRowMajor}) {
          ExpectRight({.a = f.a,
                       .b = f.b,
                       .d = d,
                       .m = 7,
                       .n = 133,
                       .k = 140,
                       .order_a = order_a,
                       .order_b = order_b,
                       .pad = 5,
                       .offset = 1,
                       .order_u = order_b,
                       .order_v = order_a},
                      Data::kIntegers);
        }
      }
    }
  }
}

TEST_F(CpuSimd, AlphaBetaCAndBias) {
  for (const Format& f : kFormats) {
    for (const DataType c : {kNull, kFloat32, kFloat16, kBfloat16}) {
      for (const Bias::Axis axis : {Bias::Axis::kN, Bias::Axis::kM}) {
        ExpectRight({.a = f.a,
                     .b = f.b,
                     .d = f.d,
                     .m = 6,
                     .n = 69,
                     .k = 33,
                     .pad = 2,
                     .alpha = 0.5f,
                     .beta = -2.0f,
                     .c = c,
                     .bias = c == kNull ? f.d : c,
                     .bias_axis = axis},
                    Data::kIntegers);
      }
    }
    ExpectRight(
        {.a = f.a, .b = f.b, .d = f.d, .m = 18, .n = 21, .k = 40, .alpha = -3.0f, .bias = kFloat32},
        Data::kIntegers);
  }
}

TEST_F(CpuSimd, NormalDataStaysWithinTheBound) {
  for (const Format& f : kFormats) {
    for (const int m : {1, 11, 40}) {
      ExpectRight({.a = f.a,
                   .b = f.b,
                   .d = f.d,
                   .m = m,
                   .n = 70,
                   .k = 900,
                   .alpha = 0.7f,
                   .beta = 0.3f,
                   .c = kFloat32,
                   .bias = kFloat32},
                  Data::kNormal);
    }
  }
}

// Every code of every narrow type at every place in a vector: 16 rows of A pick 16 rows of B.
TEST_F(CpuSimd, EveryCodeDecodesExactly) {
  for (const DataType type : {kFloat8_e4m3, kFloat16, kBfloat16}) {
    const int k = 64, n = 1024;  // 65536 places
    const std::size_t size = SizeOf(type);
    Problem problem(
        {.a = type == kFloat8_e4m3 ? kFloat8_e4m3 : kFloat32, .b = type, .m = 16, .n = n, .k = k},
        Data::kIntegers);
    if (type == kFloat8_e4m3) {
      problem.u().Fill([] { return 1.0; });
      problem.v().Fill([] { return 1.0; });
    }
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j < n; ++j) {
        const auto code = static_cast<std::uint32_t>(j * k + i + j);  // a place meets many codes
        void* element = static_cast<std::byte*>(problem.b().data()) +
                        problem.b().index(i, j) * static_cast<std::int64_t>(size);
        std::memcpy(element, &code, size);
        // Zeros in A do not silence these; NanAndInfinity looks after them.
        if (!std::isfinite(problem.b().at(i, j))) problem.b().set(i, j, 0.0);
      }
    }
    for (int first = 0; first < k; first += 16) {
      for (int r = 0; r < 16; ++r) {
        for (int i = 0; i < k; ++i) problem.a().set(r, i, i == first + r ? 1.0 : 0.0);
      }
      ForEach(true, [&](Kernel& kernel, std::string what) {
        ASSERT_EQ(problem.Run(kernel), "") << what;
        for (int r = 0; r < 16; ++r) {
          for (int j = 0; j < n; ++j) {
            ASSERT_EQ(problem.d().at(r, j), problem.b().at(first + r, j))
                << what << ' ' << ToString(type) << " B[" << first + r << ", " << j << ']';
          }
        }
      });
    }
  }
}

TEST_F(CpuSimd, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  for (const Format& f : kFormats) {
    for (const double special :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      if (f.b == kFloat8_e4m3 && std::isinf(special)) continue;  // E4M3 has none
      Problem problem({.a = f.a, .b = f.b, .d = f.d, .m = 6, .n = 40, .k = 200}, Data::kIntegers);
      problem.a().Fill([] { return 1.0; });
      problem.b().Fill([] { return 1.0; });
      problem.a().set(2, 199, special);
      problem.b().set(131, 17, -special);
      ForEach(true, [&](Kernel& kernel, std::string what) {
        ASSERT_EQ(problem.Run(kernel), "") << what;
        for (int r = 0; r < 6; ++r) {
          for (int c = 0; c < 40; ++c) {
            const double got = problem.d().at(r, c);
            const std::string where =
                what + " D[" + std::to_string(r) + ", " + std::to_string(c) + "] " + ToString(f.b);
            if (r != 2 && c != 17) {
              ASSERT_TRUE(std::isfinite(got)) << where;
            } else if (std::isnan(special) || (r == 2 && c == 17)) {
              ASSERT_TRUE(std::isnan(got)) << where;
            } else {
              ASSERT_EQ(got, r == 2 ? special : -special) << where;
            }
          }
        }
      });
    }
  }
}

// Sums that overflow a narrow output become infinite, ties go to even, subnormals survive.
TEST_F(CpuSimd, OutputsAreRoundedOnce) {
  const std::pair<double, double> half[] = {
      {65519.0, 65504.0},   {65520.0, std::numeric_limits<double>::infinity()},
      {2049.0, 2048.0},     {2051.0, 2052.0},
      {0x1p-24, 0x1p-24},   {0x1p-25, 0.0},
      {0x1.8p-24, 0x1p-23}, {-0x1.002p0, -0x1p0}};
  const std::pair<double, double> brain[] = {
      {0x1.01p0, 0x1p0},
      {0x1.03p0, 0x1.04p0},
      {0x1.010002p0, 0x1.02p0},
      {0x1.fffffep127, std::numeric_limits<double>::infinity()},
      {-0x1.03p-126, -0x1.04p-126}};
  const auto check = [&](DataType d, const auto& values) {
    const int n = static_cast<int>(std::size(values));
    Problem problem({.d = d, .m = 1, .n = n, .k = 1}, Data::kIntegers);
    problem.a().set(0, 0, 1.0);
    for (int j = 0; j < n; ++j) problem.b().set(0, j, values[j].first);
    ForEach(
        true,
        [&](Kernel& kernel, std::string what) {
          ASSERT_EQ(problem.Run(kernel), "") << what;
          for (int j = 0; j < n; ++j) {
            EXPECT_EQ(problem.d().at(0, j), values[j].second) << what << ' ' << values[j].first;
          }
        },
        true);
  };
  check(kFloat16, half);
  check(kBfloat16, brain);
}

TEST_F(CpuSimd, BitsDependNeitherOnThreadsNorOnRuns) {
  for (const Format& f : kFormats) {
    Problem problem({.a = f.a, .b = f.b, .d = kFloat32, .m = 13, .n = 700, .k = 300},
                    Data::kNormal);
    for (const auto& kernel : kernels_) {
      if (OneRowOnly(*kernel)) continue;
      std::vector<double> first;
      for (const int budget : {1, 0, 0, 3}) {
        problem.set_sm_budget(budget);
        ASSERT_EQ(problem.Run(*kernel), "");
        std::vector<double> all;
        for (int r = 0; r < 13; ++r) {
          for (int c = 0; c < 700; ++c) all.push_back(problem.d().at(r, c));
        }
        if (first.empty()) first = all;
        ASSERT_EQ(all, first) << kernel->id();
      }
    }
  }
}

TEST_F(CpuSimd, RefusesWithAReasonWhatItCannotDo) {
  GemmDesc good;
  good.a.type = good.b.type = good.d.type = kBfloat16;
  good.m = good.n = good.k = 8;
  const auto reason = [&](GemmDesc desc, bool skinny) {
    for (const auto& kernel : kernels_) {
      if (IsSkinny(*kernel) == skinny && !OneRowOnly(*kernel))
        return std::string(kernel->why(desc).reason());
    }
    return std::string();
  };
  for (const bool skinny : {true, false}) {
    EXPECT_EQ(reason(good, skinny), "");
    GemmDesc d = good;
    d.d.order = Order::kColMajor;
    EXPECT_EQ(reason(d, skinny).find("row-major") == std::string::npos, skinny);
    d.epilogue = Epilogue::kGatedSilu;
    d.n = 16;
    EXPECT_THAT(reason(d, skinny), testing::HasSubstr("row-major"));
    d = good;
    d.c.type = kFloat32;
    d.c.order = Order::kColMajor;
    EXPECT_EQ(reason(d, skinny).find("row-major") == std::string::npos, skinny);
    d = good;
    d.d.type = kFloat8_e4m3;
    EXPECT_THAT(reason(d, skinny), testing::HasSubstr("writes"));
    d = good;
    d.b.type = kFloat8_e4m3;
    EXPECT_THAT(reason(d, skinny), testing::HasSubstr("both A and B"));
    d = good;
    d.a.quant = {QuantType::kK, 128};
    EXPECT_THAT(reason(d, skinny), testing::HasSubstr("scales"));
    GemmDesc e = good;
    e.a.type = e.b.type = kFloat8_e4m3;
    e.a.quant = {QuantType::kK, 128};
    e.b.quant = {QuantType::kB, 128};
    e.a.scale_type = e.b.scale_type = kFloat32;
    EXPECT_EQ(reason(e, skinny), "");
    e.a.quant.group_size = 64;
    EXPECT_THAT(reason(e, skinny), testing::HasSubstr("1 x 128"));
    e.a.quant.group_size = 128;
    e.b.quant.type = QuantType::kK;
    EXPECT_THAT(reason(e, skinny), testing::HasSubstr(skinny ? "128 elements of a column" : ""));
    e.b.quant.group_size = 64;
    EXPECT_THAT(reason(e, skinny), testing::HasSubstr("128 x 128"));
    e.b.quant = {QuantType::kB, 128};
    e.b.scale_type = kFloat8_ue8m0;
    EXPECT_THAT(reason(e, skinny), testing::HasSubstr("float32 scales"));
  }
  GemmDesc d = good;
  d.m = 17;
  EXPECT_THAT(reason(d, true), testing::HasSubstr("16 rows"));
  EXPECT_EQ(reason(d, false), "");
}

TEST_F(CpuSimd, KernelsForOneRowRefuseTwo) {
  GemmDesc desc;
  desc.a.type = desc.b.type = desc.d.type = kBfloat16;
  desc.n = desc.k = 8;
  for (const auto& kernel : kernels_) {
    if (!OneRowOnly(*kernel)) continue;
    desc.m = 1;
    EXPECT_TRUE(kernel->why(desc).ok());
    desc.m = 2;
    EXPECT_THAT(std::string(kernel->why(desc).reason()), testing::HasSubstr("one row"));
  }
}

TEST_F(CpuSimd, ASmallWorkspaceIsRefusedAndNothingIsWritten) {
  for (const auto& kernel : kernels_) {
    Problem problem({.m = 3, .n = 20, .k = 40}, Data::kIntegers);
    Workspace workspace;
    EXPECT_EQ(static_cast<ArgsKernel&>(*kernel).Run(problem.Args(), 0, 1, workspace, nullptr),
              static_cast<int>(StatusCode::kResourceExhausted));
    EXPECT_TRUE(std::isnan(problem.d().at(0, 0)));
  }
}

}  // namespace
}  // namespace culet
