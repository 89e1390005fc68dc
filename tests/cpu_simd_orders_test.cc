// The SIMD families beyond K-major weights with scales of blocks: E4M3 with one scale a row, a
// column or a matrix, and weights whose columns lie beside each other, on every target.
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

constexpr Order kOrders[] = {Order::kColMajor, Order::kRowMajor};
constexpr QuantDesc kWhole[] = {{QuantType::kTensor}, {QuantType::kRow}};

class CpuSimdOrders : public testing::Test {
 protected:
  void TearDown() override { UseTarget(0); }

  // 0: what the machine has.
  static void UseTarget(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

  static std::vector<std::int64_t> Targets() {
    std::vector<std::int64_t> targets;
    constexpr std::int64_t kFallback = HWY_STATIC_TARGET;
    for (std::int64_t rest = SimdTargets() & ~kFallback; rest != 0; rest &= rest - 1) {
      targets.push_back(rest & -rest);
    }
    targets.push_back(kFallback);
    return targets;
  }

  // test(kernel, what) for each kernel that takes the problem, on each target; a blocked one and,
  // up to 16 rows but for groups of columns, a skinny one do.
  template <class F>
  static void ForEach(Problem& problem, int m, F&& test) {
    const GemmDesc desc = *Describe(problem.Args(), 0);
    for (const std::int64_t target : Targets()) {
      UseTarget(target);
      KernelList kernels;
      AddCpuSimdSkinny(HostDevice(), kernels);
      const std::size_t skinny = kernels.size();
      AddCpuSimdBlocked(HostDevice(), kernels);
      std::size_t takers[2] = {};
      for (std::size_t i = 0; i < kernels.size(); ++i) {
        if (!kernels[i]->why(desc).ok()) continue;
        ++takers[i < skinny ? 0 : 1];
        test(*kernels[i], kernels[i]->id() + " on " + hwy::TargetName(target));
      }
      if (m <= 16 && desc.b.quant.type != QuantType::kK) {
        EXPECT_GT(takers[0], 0u) << "no skinny kernel";
      }
      EXPECT_GT(takers[1], 0u) << "no blocked kernel";
    }
  }

  static void ExpectRight(const Case& c, Data data = Data::kIntegers) {
    Problem problem(c, data);
    problem.ComputeExpected();
    ForEach(problem, c.m, [&](Kernel& kernel, const std::string& what) {
      Problem fresh = problem;
      EXPECT_EQ(fresh.Check(kernel), "") << what << ": " << testing::PrintToString(c);
    });
  }
};

// An E4M3 problem.
Case Scaled(int m, int n, int k, QuantDesc a, QuantDesc b, Order order_b) {
  Case c{.a = kFloat8_e4m3, .b = kFloat8_e4m3, .d = kFloat32, .m = m, .n = n, .k = k};
  c.order_b = order_b;
  c.quant_a = a;
  c.quant_b = b;
  return c;
}

TEST_F(CpuSimdOrders, ScalesOfRowsColumnsAndMatrices) {
  for (const QuantDesc& a : kWhole) {
    for (const QuantDesc& b : kWhole) {
      for (const Order order_b : kOrders) {
        for (const int m : {1, 2, 7, 16, 33}) {
          ExpectRight(Scaled(m, 300, 128, a, b, order_b));
          ExpectRight(Scaled(m, 133, 300, a, b, order_b));
        }
        Case c = Scaled(5, 140, 260, a, b, order_b);
        c.pad = 3;
        c.offset = 1;
        c.order_u = Order::kColMajor;
        c.order_v = Order::kColMajor;
        c.alpha = 0.5f;
        c.beta = 2.0f;
        c.bias = kFloat32;
        ExpectRight(c);
        ExpectRight(c, Data::kNormal);
      }
    }
  }
}

// Both operands of a weight's gradient have a scale for 128 elements along K: of a row of A, of a
// column of B.
TEST_F(CpuSimdOrders, ScalesOfGroupsOfColumns) {
  constexpr QuantDesc kGroups = {QuantType::kK, 128};
  for (const Order order_b : kOrders) {
    for (const int n : {1, 7, 16, 17, 33, 127, 128, 129, 300}) {
      ExpectRight(Scaled(17, n, 300, kGroups, kGroups, order_b));
    }
    for (const int k : {1, 127, 128, 129, 515}) {
      ExpectRight(Scaled(3, 140, k, kGroups, kGroups, order_b));
    }
    Case c = Scaled(33, 140, 260, kGroups, kGroups, order_b);
    c.pad = 3;
    c.offset = 1;
    c.alpha = 0.5f;
    c.beta = 1.0f;  // D itself, as gradients accumulate
    c.bias = kFloat32;
    for (const Order order_v : kOrders) {
      c.order_u = c.order_v = order_v;
      ExpectRight(c);
      ExpectRight(c, Data::kNormal);
    }
  }
}

TEST_F(CpuSimdOrders, RowsOfWeightsAroundEveryEdge) {
  constexpr struct {
    DataType a, b;
  } kTypes[] = {{kFloat32, kFloat32},
                {kFloat16, kFloat16},
                {kBfloat16, kBfloat16},
                {kFloat32, kBfloat16},
                {kFloat8_e4m3, kFloat8_e4m3}};
  for (const auto& [a, b] : kTypes) {
    const auto expect = [a = a, b = b](int m, int n, int k, int pad) {
      Case c{.a = a, .b = b, .d = kFloat32, .m = m, .n = n, .k = k};
      c.order_b = Order::kRowMajor;
      c.pad = pad;
      c.offset = pad;
      ExpectRight(c);
    };
    for (const int m : {1, 2, 3, 5, 6, 7, 12, 16, 17}) expect(m, 200, 150, 0);
    for (const int n : {1, 15, 16, 17, 63, 64, 65, 127, 129, 513, 1100}) expect(3, n, 37, 1);
    for (const int k : {1, 15, 16, 17, 127, 128, 129, 300}) expect(5, 70, k, 3);
  }
}

TEST_F(CpuSimdOrders, RowsOfWeightsWithNormalData) {
  for (const DataType type : {kFloat32, kFloat16, kBfloat16, kFloat8_e4m3}) {
    Case c{.a = type, .b = type, .d = kBfloat16, .m = 9, .n = 260, .k = 517};
    c.order_a = Order::kColMajor;
    c.order_b = Order::kRowMajor;
    ExpectRight(c, Data::kNormal);
  }
}

// A NaN in a weight reaches its column and no other, in either order and with any scales.
TEST_F(CpuSimdOrders, NanReachesItsColumnAlone) {
  for (const Order order_b : kOrders) {
    for (const QuantDesc& quant : {QuantDesc{QuantType::kB, 128}, QuantDesc{QuantType::kRow}}) {
      const bool blocks = quant.type == QuantType::kB;
      const int m = 3, n = 131, k = 140;
      const Case c =
          Scaled(m, n, k, blocks ? QuantDesc{QuantType::kK, 128} : QuantDesc{QuantType::kRow},
                 quant, order_b);
      Problem problem(c, Data::kIntegers);
      problem.a().Fill([] { return 1.0; });
      for (int column = 0; column < n; column += 3) {
        for (const std::uint8_t nan : {0x7f, 0xff}) {
          static_cast<std::uint8_t*>(
              problem.b().data())[problem.b().index((column * 7 + nan) % k, column)] = nan;
        }
      }
      ForEach(problem, m, [&](Kernel& kernel, const std::string& what) {
        ASSERT_EQ(problem.Run(kernel), "") << what;
        for (int row = 0; row < m; ++row) {
          for (int column = 0; column < n; ++column) {
            ASSERT_EQ(std::isnan(problem.d().at(row, column)), column % 3 == 0)
                << what << " row " << row << " column " << column;
          }
        }
      });
    }
  }
}

// Few columns of D: the twins of the skinny kernels take them, however D lies. The scales of A and
// B come to them exchanged.
TEST_F(CpuSimdOrders, FewColumns) {
  constexpr struct {
    DataType a, b, d;
  } kTypes[] = {{kFloat32, kFloat32, kFloat32},         {kFloat16, kFloat16, kFloat16},
                {kBfloat16, kBfloat16, kFloat32},       {kFloat32, kBfloat16, kBfloat16},
                {kFloat8_e4m3, kFloat8_e4m3, kFloat32}, {kFloat8_e4m3, kFloat8_e4m3, kBfloat16}};
  const auto expect = [](const Case& c, Data data) {
    Problem problem(c, data);
    problem.ComputeExpected();
    const GemmDesc desc = *Describe(problem.Args(), 0);
    for (const std::int64_t target : Targets()) {
      UseTarget(target);
      KernelList kernels;
      AddCpuSimdSkinny(HostDevice(), kernels);
      int takers = 0;
      for (const auto& kernel : kernels) {
        const auto twin = transpose(*kernel);
        if (!twin->why(desc).ok()) continue;
        ++takers;
        Problem fresh = problem;
        EXPECT_EQ(fresh.Check(*twin), "")
            << twin->id() << " on " << hwy::TargetName(target) << ": " << testing::PrintToString(c);
      }
      EXPECT_GT(takers, 0) << hwy::TargetName(target) << ": " << testing::PrintToString(c);
    }
  };
  for (const auto& [a, b, d] : kTypes) {
    for (const Order order_d : kOrders) {
      for (const int n : {1, 2, 7, 16}) {
        Case c{.a = a, .b = b, .d = d, .m = 149, .n = n, .k = 300};
        c.order_d = order_d;
        expect(c, Data::kIntegers);
        c.beta = 0.5f;  // C is D itself
        c.alpha = 2.0f;
        c.bias = kFloat32;
        c.pad = 3;
        c.offset = 1;
        expect(c, Data::kIntegers);
        c.bias_axis = Bias::Axis::kM;
        c.c = kBfloat16;
        c.order_c = order_d == Order::kRowMajor ? Order::kColMajor : Order::kRowMajor;
        expect(c, Data::kNormal);
      }
    }
  }
  for (const QuantDesc& a : kWhole) {
    for (const QuantDesc& b : kWhole)
      expect(Scaled(200, 3, 260, a, b, Order::kColMajor), Data::kNormal);
  }
}

// Few rows of a D in columns.
TEST_F(CpuSimdOrders, FewRowsOfADInColumns) {
  for (const DataType type : {kFloat32, kBfloat16, kFloat8_e4m3}) {
    for (const Order order_b : kOrders) {
      for (const int m : {1, 3, 16}) {
        Case c{.a = type, .b = type, .d = kBfloat16, .m = m, .n = 270, .k = 150};
        c.order_b = order_b;
        c.order_d = Order::kColMajor;
        c.pad = 1;
        Problem problem(c, Data::kIntegers);
        problem.ComputeExpected();
        for (const std::int64_t target : Targets()) {
          UseTarget(target);
          KernelList kernels;
          AddCpuSimdSkinny(HostDevice(), kernels);
          for (const auto& kernel : kernels) {
            if (!kernel->why(*Describe(problem.Args(), 0)).ok()) continue;
            Problem fresh = problem;
            EXPECT_EQ(fresh.Check(*kernel), "")
                << kernel->id() << ": " << testing::PrintToString(c);
          }
        }
      }
    }
  }
}

TEST_F(CpuSimdOrders, OtherScalesAreRefusedWithTheOnesThatAreTaken) {
  KernelList kernels;
  AddCpuSimdBlocked(HostDevice(), kernels);
  const auto reason = [&](QuantDesc a, QuantDesc b) {
    Problem problem(Scaled(2, 200, 200, a, b, Order::kColMajor), Data::kIntegers);
    return std::string(kernels[0]->why(*Describe(problem.Args(), 0)).reason());
  };
  EXPECT_NE(reason({QuantType::kRow}, {QuantType::kB, 128}).find("blocks only for both"),
            std::string::npos);
  EXPECT_NE(reason({QuantType::kK, 64}, {QuantType::kB, 128}).find("1 x 128"), std::string::npos);
  EXPECT_NE(reason({QuantType::kK, 128}, {QuantType::kB, 64}).find("128 x 128"), std::string::npos);
}

}  // namespace
}  // namespace culet
