// E4M3 weights beside a NaN: the skinny family decodes without a look at each weight, and again
// where it finds one. Both codes of NaN at every place, and what stands beside them.
#include <gtest/gtest.h>

#include "base/simd_targets.h"
// Behind the choice of targets.
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu_simd_problem.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

using namespace simd_test;  // NOLINT: the problems are this file's vocabulary

class CpuSimdE4m3 : public testing::Test {
 protected:
  void TearDown() override { UseTarget(0); }

  // 0: what the machine has.
  static void UseTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  // test(kernel, what) for the skinny kernels that take `rows` rows, on each target.
  template <class F>
  void ForEach(int rows, F&& test) {
    std::vector<std::int64_t> targets;
    constexpr std::int64_t kFallback = HWY_STATIC_TARGET;
    for (std::int64_t rest = SimdTargets() & ~kFallback; rest != 0; rest &= rest - 1) {
      targets.push_back(rest & -rest);
    }
    targets.push_back(kFallback);
    for (const std::int64_t target : targets) {
      UseTarget(target);
      KernelList kernels;
      AddCpuSimdSkinny(HostDevice(), kernels);
      for (const auto& kernel : kernels) {
        if (rows > 1 && kernel->desc().tile_m == 1) continue;
        test(*kernel, kernel->id() + " on " + hwy::TargetName(target));
      }
    }
  }

  // A's ones pick every weight; all scales are 1.
  static Problem Ones(int m, int n, int k) {
    Problem problem({.a = kFloat8_e4m3, .b = kFloat8_e4m3, .d = kFloat32, .m = m, .n = n, .k = k},
                    Data::kIntegers);
    problem.a().Fill([] { return 1.0; });
    problem.u().Fill([] { return 1.0; });
    problem.v().Fill([] { return 1.0; });
    return problem;
  }
  static void SetCode(Problem& problem, int row, int column, std::uint8_t code) {
    static_cast<std::uint8_t*>(problem.b().data())[problem.b().index(row, column)] = code;
  }
};

TEST_F(CpuSimdE4m3, NanOfEitherSignAtEveryPlace) {
  for (const int k : {1, 31, 64, 130, 300}) {
    // Column j has its NaN at place j, so that a strip's tiles meet all of them.
    Problem problem = Ones(1, k, k);
    problem.b().Fill([] { return 0.5; });
    for (const std::uint8_t nan : {0x7f, 0xff}) {
      for (int j = 0; j < k; j += 2) SetCode(problem, j, j, nan);
      ForEach(1, [&](Kernel& kernel, const std::string& what) {
        ASSERT_EQ(problem.Run(kernel), "") << what;
        for (int j = 0; j < k; ++j) {
          if (j % 2 == 0) {
            ASSERT_TRUE(std::isnan(problem.d().at(0, j))) << what << " k=" << k << " column " << j;
          } else {
            ASSERT_EQ(problem.d().at(0, j), 0.5 * k) << what << " k=" << k << " column " << j;
          }
        }
      });
    }
  }
}

// Beside a column with NaN every other code keeps its value, subnormals, zeros and signs included.
TEST_F(CpuSimdE4m3, ABlockWithNanKeepsItsOtherColumns) {
  constexpr int kK = 128, kN = 128;
  for (const int m : {1, 3, 16}) {
    Problem problem = Ones(m, kN, kK);
    problem.b().Fill([] { return 0.0; });
    for (int j = 0; j < kN; ++j) {
      // Code j at one place and its negative at another, which A sees twice.
      SetCode(problem, (5 * j + 3) % kK, j, static_cast<std::uint8_t>(j == 0x7f ? 0 : j));
      SetCode(problem, (5 * j + 67) % kK, j, static_cast<std::uint8_t>(0x80 | (j == 0x7f ? 0 : j)));
    }
    for (int i = 0; i < kK; ++i) {
      for (int r = 0; r < m; ++r) problem.a().set(r, i, i % 2 == 0 ? 3.0 : 1.0);
    }
    for (int j = 0; j < kN; j += 2) SetCode(problem, j, j, j % 4 == 0 ? 0x7f : 0xff);
    ForEach(m, [&](Kernel& kernel, const std::string& what) {
      ASSERT_EQ(problem.Run(kernel), "") << what;
      for (int r = 0; r < m; ++r) {
        for (int j = 0; j < kN; ++j) {
          double expected = 0;
          for (int i = 0; i < kK; ++i) expected += problem.a().at(r, i) * problem.b().at(i, j);
          const double got = problem.d().at(r, j);
          if (j % 2 == 0) {
            ASSERT_TRUE(std::isnan(got)) << what << " D[" << r << ", " << j << ']';
          } else {
            ASSERT_EQ(got, expected) << what << " D[" << r << ", " << j << ']';
          }
        }
      }
    });
  }
}

}  // namespace
}  // namespace culet
