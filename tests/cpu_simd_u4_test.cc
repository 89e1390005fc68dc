// cpu_simd/u4, /e2m1, /int8 and /e4m3 against sums in double of weights that are dequantised
// exactly.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/gemm.h"

namespace culet {
namespace {

struct Problem {
  int m, n, k;
  int group;  // 0: a whole column
  DataType scales = DataType::kFloat16, zeros = DataType::kBfloat16, a = DataType::kFloat32;
  DataType b = DataType::kUint4;
  QuantType quant = QuantType::kK;  // or kB, kTensor; a group of 0 and kK is kRow
};

class U4 : public testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    const Problem& p = GetParam();
    group_ = p.group == 0 ? p.k : p.group;
    groups_ = (p.k + group_ - 1) / group_;
    shared_ = p.quant == QuantType::kB ? group_ : p.quant == QuantType::kTensor ? p.n : 1;
    ld_ = groups_ + groups_ % 2;
    const auto fill = [&](DataType type, std::int64_t count, auto next) {
      std::vector<std::byte> data(static_cast<std::size_t>(BytesOf(type, count)));
      for (std::int64_t i = 0; i < count; ++i) StoreFromDouble(data.data(), type, i, next());
      return data;
    };
    std::normal_distribution<double> normal;
    std::uniform_int_distribution<int> code(0, 15);
    b_.resize(static_cast<std::size_t>(BytesOf(p.b, std::int64_t{p.n} * p.k)));
    for (std::byte& byte : b_) byte = static_cast<std::byte>(code(random_) | code(random_) << 4);
    if (p.b == DataType::kFloat8_e4m3) {
      for (std::byte& byte : b_) {
        if ((byte & std::byte{0x7f}) == std::byte{0x7f}) byte = std::byte{0x38};  // a NaN
      }
    }
    const bool narrow = p.zeros == DataType::kUint4;
    v_ = fill(p.scales, std::int64_t{p.n} * ld_, [&] { return normal(random_) * 0.01; });
    if (p.zeros != DataType::kNull) {
      zeros_ = fill(p.zeros, std::int64_t{p.n} * ld_,
                    [&] { return narrow ? code(random_) : code(random_) + 1; });
    }
    a_ = fill(p.a, std::int64_t{p.m} * p.k, [&] { return normal(random_); });
  }

  GemmArgs Args(void* d) const {
    const Problem& p = GetParam();
    GemmArgs args;
    args.A = a_.data();
    args.Adesc = RowMajor(p.a, p.m, p.k);
    args.B = b_.data();
    args.Bdesc = ColMajor(p.b, p.k, p.n);
    args.V = v_.data();
    args.Vdesc = ColMajor(p.scales, groups_, (p.n + shared_ - 1) / shared_);
    args.Vdesc.ld = ld_;
    args.operation.quant_b = {p.group == 0 && p.quant == QuantType::kK ? QuantType::kRow : p.quant,
                              p.group};
    if (!zeros_.empty()) args.operation.zero_b = {zeros_.data(), p.zeros};
    args.D = d;
    args.Ddesc = RowMajor(DataType::kFloat32, p.m, p.n);
    return args;
  }

  // By the kernel that the engine chooses, with poison in its workspace.
  void Run(void* d) const {
    Gemm gemm = *Gemm::Create();
    const auto plan = gemm.Plan(Args(d));
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const DataType b = GetParam().b;
    EXPECT_EQ(plan->spec().kernel->id(), b == DataType::kUint4         ? "cpu_simd/u4"
                                         : b == DataType::kFloat4_e2m1 ? "cpu_simd/e2m1"
                                         : b == DataType::kFloat8_e4m3 ? "cpu_simd/e4m3"
                                                                       : "cpu_simd/int8");
    std::vector<std::byte> memory(plan->workspace_size().partials + 256, std::byte{0xff});
    void* at = memory.data();
    std::size_t space = memory.size();
    Workspace workspace;
    workspace.partials = std::align(256, memory.size() - 256, at, space);
    workspace.partials_size = memory.size() - 256;
    LaunchPointers pointers;
    pointers.A = a_.data();
    pointers.D = d;
    const Status run = plan->Launch(pointers, workspace);
    ASSERT_TRUE(run.ok()) << run.ToString();
  }

  double WeightAt(int n, int k) const {
    const Problem& p = GetParam();
    const std::int64_t at = std::int64_t{n / shared_} * ld_ + k / group_;
    const double code = LoadAsDouble(b_.data(), p.b, std::int64_t{n} * p.k + k);
    const double zero = zeros_.empty() ? 0 : LoadAsDouble(zeros_.data(), p.zeros, at);
    return (code - zero) * LoadAsDouble(v_.data(), p.scales, at);
  }

  std::mt19937 random_{7};
  int group_ = 0, groups_ = 0, ld_ = 0, shared_ = 1;
  std::vector<std::byte> a_, b_, v_, zeros_;
};

TEST_P(U4, IsNearTheSumsInDouble) {
  const Problem& p = GetParam();
  std::vector<float> d(static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.n) + 16, -77.0f);
  Run(d.data());
  for (int i = 0; i < p.m; ++i) {
    for (int n = 0; n < p.n; ++n) {
      double sum = 0, size = 0;
      for (int k = 0; k < p.k; ++k) {
        const double product =
            LoadAsDouble(a_.data(), p.a, std::int64_t{i} * p.k + k) * WeightAt(n, k);
        sum += product;
        size += std::abs(product);
      }
      const float value = d[static_cast<std::size_t>(i) * static_cast<std::size_t>(p.n) +
                            static_cast<std::size_t>(n)];
      ASSERT_LE(std::abs(value - sum), 4e-7 * size + 1e-30) << i << ", " << n;
    }
  }
  for (std::size_t i = d.size() - 16; i < d.size(); ++i) EXPECT_EQ(d[i], -77.0f);
}

// One activation that is 1 gives a weight, bit by bit.
TEST_P(U4, OneHotRowsGiveExactWeights) {
  const Problem& p = GetParam();
  for (int i = 0; i < p.m; ++i) {
    for (int k = 0; k < p.k; ++k) {
      StoreFromDouble(a_.data(), p.a, std::int64_t{i} * p.k + k, k == (i * 37 + 5) % p.k ? 1 : 0);
    }
  }
  std::vector<float> d(static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.n));
  Run(d.data());
  for (int i = 0; i < p.m; ++i) {
    for (int n = 0; n < p.n; ++n) {
      const float value = d[static_cast<std::size_t>(i) * static_cast<std::size_t>(p.n) +
                            static_cast<std::size_t>(n)];
      ASSERT_EQ(value, static_cast<float>(WeightAt(n, (i * 37 + 5) % p.k))) << i << ", " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, U4,
    testing::Values(Problem{1, 64, 256, 128}, Problem{1, 67, 320, 64}, Problem{2, 130, 96, 32},
                    Problem{5, 3, 2, 0}, Problem{7, 70, 1000, 128}, Problem{17, 65, 2304, 128},
                    Problem{13, 128, 1154, 0}, Problem{40, 9, 384, 96},
                    Problem{3, 64, 256, 128, DataType::kBfloat16, DataType::kUint4},
                    Problem{6, 20, 128, 32, DataType::kFloat32, DataType::kNull},
                    Problem{4, 64, 192, 64, DataType::kFloat16, DataType::kBfloat16,
                            DataType::kBfloat16},
                    Problem{3, 67, 2320, 16}));

constexpr DataType kE2m1 = DataType::kFloat4_e2m1, kInt8 = DataType::kInt8,
                   kF32 = DataType::kFloat32, kPower = DataType::kFloat8_ue8m0,
                   kNone = DataType::kNull;

INSTANTIATE_TEST_SUITE_P(
    E2m1, U4,
    testing::Values(Problem{1, 64, 256, 32, kPower, kNone, kF32, kE2m1},
                    Problem{7, 67, 2880, 32, kPower, kNone, kF32, kE2m1},
                    Problem{13, 9, 50, 0, kF32, kNone, kF32, kE2m1},
                    Problem{2, 130, 336, 16, kF32, kNone, DataType::kBfloat16, kE2m1},
                    Problem{9, 65, 2320, 16, DataType::kFloat16, kNone, kF32, kE2m1}));

INSTANTIATE_TEST_SUITE_P(
    Int8, U4,
    testing::Values(Problem{1, 64, 256, 32, DataType::kFloat16, kNone, kF32, kInt8},
                    Problem{7, 67, 2880, 32, DataType::kFloat16, kNone, kF32, kInt8},
                    Problem{13, 9, 51, 0, kF32, kNone, kF32, kInt8},
                    Problem{2, 130, 336, 16, kF32, kNone, DataType::kBfloat16, kInt8},
                    Problem{9, 65, 2320, 16, kF32, kNone, kF32, kInt8},
                    Problem{3, 6, 16, 16, kF32, kNone, kF32, kInt8}));

constexpr DataType kE4m3 = DataType::kFloat8_e4m3, kBf16 = DataType::kBfloat16;

INSTANTIATE_TEST_SUITE_P(
    E4m3, U4,
    testing::Values(Problem{1, 64, 256, 0, kF32, kNone, kF32, kE4m3},
                    Problem{7, 67, 1001, 0, kF32, kNone, kBf16, kE4m3},
                    Problem{2, 130, 336, 16, kBf16, kNone, DataType::kFloat16, kE4m3},
                    Problem{3, 130, 300, 128, kF32, kNone, kF32, kE4m3, QuantType::kB},
                    Problem{17, 300, 640, 128, kF32, kNone, kBf16, kE4m3, QuantType::kB},
                    Problem{5, 70, 192, 64, kBf16, kNone, kF32, kE4m3, QuantType::kB},
                    Problem{6, 9, 51, 0, kF32, kNone, kF32, kE4m3, QuantType::kTensor}));

}  // namespace
}  // namespace culet
