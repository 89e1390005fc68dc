// The gated epilogues of the CPU's kernels at every SIMD level: gates of all of FP32's range, and
// outputs that are quantised. Sums, scales and what is added are the conformance suite's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/quantize.h"
#include "culet/registry.h"
#include "simd_levels.h"
#include "whole_range.h"

namespace culet {
namespace {

using enum DataType;

// Weights of ups; those of gates are 1. K is 1: gates are what A holds.
constexpr float kUps[] = {1, -2, 0.5f, 3, -0.25f, 1e-3f, 7, -1};
constexpr int kN = 304;  // 152 columns of D: a group and a partial one

class CpuGated : public testing::Test {
 protected:
  static Registry& Builtin() {
    static Registry registry = Registry::Builtin(HostDevice());
    return registry;
  }

  static bool IsUp(GateOrder order, int col) {
    return order == GateOrder::kHalves ? col >= kN / 2 : col % 16 >= 8;
  }
  static float UpOf(int col) { return kUps[col % 8]; }

  CpuGated() : b_(kN) {}

  GemmArgs Args(const float* a, int m, GateOrder order) {
    for (int col = 0; col < kN; ++col) {
      b_[static_cast<std::size_t>(col)] = IsUp(order, col) ? UpOf(col) : 1.0f;
    }
    d_.assign(static_cast<std::size_t>(m) * kN / 2, -7.0f);
    GemmArgs args;
    args.operation.epilogue = Epilogue::kGatedSilu;
    args.operation.gate_order = order;
    args.A = a;
    args.Adesc = RowMajor(kFloat32, m, 1);
    args.B = b_.data();
    args.Bdesc = ColMajor(kFloat32, 1, kN);
    args.D = d_.data();
    args.Ddesc = RowMajor(kFloat32, m, kN / 2);
    return args;
  }

  static void Launch(Kernel& kernel, const GemmArgs& args, const GemmDesc& desc) {
    const WorkspaceSize size = kernel.workspace_size(desc, 0, 1);
    std::vector<std::byte> memory(size.total() + 256);
    void* data = memory.data();
    std::size_t space = memory.size();
    std::align(256, size.total(), data, space);
    auto workspace = InitWorkspace(size, data, size.total());
    ASSERT_TRUE(workspace.ok());
    const Status status = LaunchKernel(kernel, args, 0, 1, *workspace, nullptr);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  // test(kernel, desc) for each kernel that takes it, at each level.
  template <class F>
  static void ForEach(const GemmArgs& args, F test) {
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    AtEachSimdLevel([&] {
      for (Kernel* kernel : Builtin().kernels()) {
        if (kernel->is_feasible(*desc)) test(*kernel, *desc);
      }
    });
  }

  std::vector<float> b_, d_;
};

TEST_F(CpuGated, GatesOfTheWholeRange) {
  const std::vector<float> all = WholeRange();
  for (const GateOrder order : {GateOrder::kEights, GateOrder::kHalves}) {
    for (const int m : {16, static_cast<int>(all.size())}) {
      for (std::size_t first = 0; first + static_cast<std::size_t>(m) <= all.size();
           first += static_cast<std::size_t>(m) * (m == 16 ? 5 : 1)) {
        const float* const x = all.data() + first;
        const GemmArgs args = Args(x, m, order);
        ForEach(args, [&](Kernel& kernel, const GemmDesc& desc) {
          std::fill(d_.begin(), d_.end(), -7.0f);
          Launch(kernel, args, desc);
          for (int row = 0; row < m; ++row) {
            for (int col = 0; col < kN / 2; ++col) {
              const float found = d_[static_cast<std::size_t>(row * (kN / 2) + col)];
              const double up = double{x[row]} * UpOf(col);
              const double amount = std::isfinite(up) ? 0x1p-148 * (1 + std::fabs(up)) : 0;
              ASSERT_TRUE(IsNear(found, SiluInDouble(x[row]) * up, 0x1p-19, amount))
                  << kernel.id() << ": silu(" << x[row] << ") * " << up << " is " << found;
            }
          }
        });
      }
    }
  }
}

// The codes and scales are those of QuantizeGroups, of the same kernel's FP32.
TEST_F(CpuGated, QuantisesAsTheLibraryDoes) {
  constexpr int kMost = 600, kGroups = 2;
  std::vector<float> x(kMost);
  for (int i = 0; i < kMost; ++i) x[static_cast<std::size_t>(i)] = std::sin(0.7f * i) * 6;
  x[1] = std::numeric_limits<float>::quiet_NaN();
  x[2] = 3e38f;
  x[3] = 0;
  x[4] = 1e-21f;  // a subnormal scale
  for (const GateOrder order : {GateOrder::kEights, GateOrder::kHalves}) {
    for (const int m : {1, 5, 16, 17, kMost}) {
      for (const Order of_scales : {Order::kRowMajor, Order::kColMajor}) {
        const GemmArgs plain = Args(x.data(), m, order);
        std::vector<std::uint8_t> codes(d_.size()), expected(d_.size());
        std::vector<float> w(static_cast<std::size_t>(m) * kGroups), scales(w.size());
        const MatrixLayout layout = of_scales == Order::kRowMajor ? RowMajor(kFloat32, m, kGroups)
                                                                  : ColMajor(kFloat32, m, kGroups);
        GemmArgs args = plain;
        args.operation.epilogue = Epilogue::kGatedSiluQuant;
        args.operation.quant_d = {{QuantType::kK, 128}, w.data(), layout};
        args.D = codes.data();
        args.Ddesc.type = kFloat8_e4m3;
        const GemmDesc plain_desc = *Describe(plain, 0);
        int launches = 0;
        ForEach(args, [&](Kernel& kernel, const GemmDesc& desc) {
          if (kernel.desc().backend == Backend::kReference) return;
          ++launches;
          Launch(kernel, plain, plain_desc);
          const Status made = QuantizeGroups(d_.data(), plain.Ddesc, expected.data(), args.Ddesc,
                                             scales.data(), layout);
          ASSERT_TRUE(made.ok()) << made.ToString();
          Launch(kernel, args, desc);
          for (std::size_t i = 0; i < w.size(); ++i) {
            ASSERT_TRUE(w[i] == scales[i] || (std::isnan(w[i]) && std::isnan(scales[i])))
                << kernel.id() << " " << i;
          }
          for (std::size_t i = 0; i < codes.size(); ++i) {
            const bool nan = std::isnan(x[i / (kN / 2)]) || x[i / (kN / 2)] > 1e38f;
            ASSERT_EQ(codes[i], nan ? 0x7f : expected[i]) << kernel.id() << " " << i;
          }
        });
        EXPECT_GE(launches, 2);
      }
    }
  }
}

}  // namespace
}  // namespace culet
