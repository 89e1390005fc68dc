// cpu_reference against a triple loop in long double that computes every address by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/desc.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr DataType kFloats[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16,
                                DataType::kFloat8_e4m3};

// A matrix in memory of its own, NaN in the gaps between its lines.
struct Matrix {
  MatrixLayout layout;
  std::vector<std::uint32_t> storage;

  Matrix() = default;
  Matrix(DataType type, Order order, int rows, int cols, int gap) {
    layout = order == Order::kRowMajor ? RowMajor(type, rows, cols, cols + gap)
                                       : ColMajor(type, rows, cols, rows + gap);
    const auto lines = static_cast<std::size_t>(order == Order::kRowMajor ? rows : cols);
    storage.assign(lines * static_cast<std::size_t>(layout.ld) * SizeOf(type) / 4 + 1, 0xffffffffu);
  }
  bool present() const { return layout.type != DataType::kNull; }
  void* data() { return present() ? storage.data() : nullptr; }
  std::int64_t At(int r, int c) const {
    return layout.order == Order::kRowMajor ? r * layout.ld + c : c * layout.ld + r;
  }
  void Set(int r, int c, double value) {
    StoreFromDouble(storage.data(), layout.type, At(r, c), value);
  }
  double Get(int r, int c) const { return LoadAsDouble(storage.data(), layout.type, At(r, c)); }
  template <class Random>
  void Fill(Random& random, double low, double high) {
    std::uniform_real_distribution<double> uniform(low, high);
    for (int r = 0; r < layout.rows; ++r) {
      for (int c = 0; c < layout.cols; ++c) Set(r, c, uniform(random));
    }
  }
};

struct Problem {
  int m = 1, n = 1, k = 1;
  Matrix a, b, u, v, c, d, bias;
  Operation operation;
  float alpha = 1, beta = 0;

  GemmArgs Args() {
    GemmArgs args;
    args.operation = operation;
    if (bias.present()) args.operation.bias.data = bias.data();
    args.alpha = alpha;
    args.beta = beta;
    args.A = a.data();
    args.Adesc = a.layout;
    args.B = b.data();
    args.Bdesc = b.layout;
    args.U = u.data();
    args.Udesc = u.layout;
    args.V = v.data();
    args.Vdesc = v.layout;
    args.C = c.data();
    args.Cdesc = c.layout;
    args.D = d.data();
    args.Ddesc = d.layout;
    return args;
  }
};

std::unique_ptr<Kernel> Reference() {
  KernelList kernels;
  AddCpuReference(HostDevice(), kernels);
  EXPECT_EQ(kernels.size(), 1u);
  return std::move(kernels.front());
}

int Launch(Kernel& kernel, const GemmArgs& args) {
  Workspace workspace;
  return static_cast<ArgsKernel&>(kernel).Run(args, 0, 1, workspace, nullptr);
}

long double Expected(const Problem& p, const Matrix& c, int row, int col) {
  const QuantDesc qa = p.operation.quant_a, qb = p.operation.quant_b;
  long double sum = 0;
  for (int i = 0; i < p.k; ++i) {
    long double a = p.a.Get(row, i), b = p.b.Get(i, col);
    if (qa.type == QuantType::kTensor) a *= p.u.Get(0, 0);
    if (qa.type == QuantType::kRow) a *= p.u.Get(row, 0);
    if (qb.type == QuantType::kTensor) b *= p.v.Get(0, 0);
    if (qb.type == QuantType::kRow) b *= p.v.Get(0, col);
    if (qa.type == QuantType::kK) a *= p.u.Get(row, i / qa.group_size);
    if (qa.type == QuantType::kB) a *= p.u.Get(row / qa.group_size, i / qa.group_size);
    if (qb.type == QuantType::kK) b *= p.v.Get(i / qb.group_size, col);
    if (qb.type == QuantType::kB) b *= p.v.Get(i / qb.group_size, col / qb.group_size);
    sum += a * b;
  }
  long double value = p.alpha * sum;
  if (p.beta != 0) value += static_cast<long double>(p.beta) * c.Get(row, col);
  if (p.bias.present()) {
    value += p.operation.bias.axis == Bias::Axis::kN ? p.bias.Get(0, col) : p.bias.Get(0, row);
  }
  return value;
}

// All of D, and the gaps around it, which must keep their NaNs.
void ExpectRight(Kernel& kernel, Problem& p, bool c_is_d = false) {
  const Matrix c = p.c;  // before the launch, which may be in place
  if (c_is_d) p.d = p.c;
  GemmArgs args = p.Args();
  if (c_is_d) args.C = p.d.data();
  const auto desc = Describe(args, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  ASSERT_TRUE(kernel.why(*desc).ok()) << kernel.why(*desc).reason();
  ASSERT_EQ(Launch(kernel, args), 0);
  const DataType type = p.d.layout.type;
  for (int row = 0; row < p.m; ++row) {
    for (int col = 0; col < p.n; ++col) {
      const long double expected = Expected(p, c, row, col);
      const double slack = 1e-13 * (1 + std::fabs(static_cast<double>(expected)));
      const double low = RoundTo(type, static_cast<double>(expected) - slack);
      const double high = RoundTo(type, static_cast<double>(expected) + slack);
      const double value = p.d.Get(row, col);
      ASSERT_TRUE(low <= value && value <= high)
          << ToString(*desc) << " D(" << row << ", " << col << ") is " << value << ", not "
          << static_cast<double>(expected);
    }
  }
  const bool rows = p.d.layout.order == Order::kRowMajor;
  const int lines = rows ? p.m : p.n, inner = rows ? p.n : p.m;
  for (int line = 0; line < lines; ++line) {
    for (std::int64_t i = inner; i < p.d.layout.ld; ++i) {
      ASSERT_TRUE(std::isnan(LoadAsDouble(p.d.data(), type, line * p.d.layout.ld + i)))
          << "the gap behind line " << line << " was written";
    }
  }
}

template <class Random>
QuantDesc RandomQuant(Random& random) {
  constexpr int kSizes[] = {1, 3, 16, 32, 100, 128};
  const auto type = static_cast<QuantType>(random() % 5);
  return {type, HasGroupSize(type) ? kSizes[random() % 6] : 0};
}

template <class Random>
Order RandomOrder(Random& random) {
  return random() % 2 != 0 ? Order::kRowMajor : Order::kColMajor;
}

Problem RandomProblem(std::mt19937& random, int m, int n, int k) {
  const auto type = [&] { return kFloats[random() % 4]; };
  const auto gap = [&] { return static_cast<int>(random() % 4); };
  Problem p;
  p.m = m;
  p.n = n;
  p.k = k;
  p.a = Matrix(type(), RandomOrder(random), m, k, gap());
  p.b = Matrix(type(), RandomOrder(random), k, n, gap());
  p.d = Matrix(type(), RandomOrder(random), m, n, gap());
  p.a.Fill(random, -2, 2);
  p.b.Fill(random, -2, 2);
  const QuantDesc qa = p.operation.quant_a = RandomQuant(random);
  const QuantDesc qb = p.operation.quant_b = RandomQuant(random);
  const auto groups = [](int extent, int size) { return (extent + size - 1) / size; };
  const auto groups_k = [&](const QuantDesc& quant) {
    return HasGroupSize(quant.type) ? groups(k, quant.group_size) : 1;
  };
  const auto groups_outer = [&](const QuantDesc& quant, int outer) {
    if (quant.type == QuantType::kTensor) return 1;
    return quant.type == QuantType::kB ? groups(outer, quant.group_size) : outer;
  };
  if (qa.type != QuantType::kNone) {
    p.u = Matrix(DataType::kFloat32, RandomOrder(random), groups_outer(qa, m), groups_k(qa), gap());
    p.u.Fill(random, 0.1, 2);
  }
  if (qb.type != QuantType::kNone) {
    p.v = Matrix(DataType::kFloat32, RandomOrder(random), groups_k(qb), groups_outer(qb, n), gap());
    p.v.Fill(random, 0.1, 2);
  }
  p.alpha = 0.75f + 0.1f * static_cast<float>(random() % 5);
  if (random() % 2 != 0) {
    p.beta = -0.3f;
    p.c = Matrix(type(), RandomOrder(random), m, n, gap());
    p.c.Fill(random, -4, 4);
  }
  if (random() % 2 != 0) {
    p.operation.bias.axis = random() % 2 != 0 ? Bias::Axis::kN : Bias::Axis::kM;
    p.operation.bias.type = kFloats[random() % 3];
    p.bias = Matrix(p.operation.bias.type, Order::kRowMajor, 1,
                    p.operation.bias.axis == Bias::Axis::kN ? n : m, 0);
    p.bias.Fill(random, -4, 4);
  }
  p.operation.sm_budget = static_cast<int>(random() % 3);
  return p;
}

TEST(Reference, RandomProblemsOfEveryMixture) {
  const auto kernel = Reference();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto extent = [&](unsigned most) { return 1 + static_cast<int>(random() % most); };
    Problem p = RandomProblem(random, extent(9), extent(40), extent(150));
    ExpectRight(*kernel, p);
    if (HasFatalFailure()) FAIL() << "in problem " << i;
  }
}

TEST(Reference, CrossesItsOwnTilesAndBlocks) {
  const auto kernel = Reference();
  std::mt19937 random(2);
  for (const auto& [m, n, k] : {std::tuple(33, 65, 513), {32, 32, 512}, {65, 3, 1025}}) {
    Problem p = RandomProblem(random, m, n, k);
    ExpectRight(*kernel, p);
  }
}

TEST(Reference, ComputesInPlace) {
  const auto kernel = Reference();
  std::mt19937 random(3);
  for (const Order order : {Order::kRowMajor, Order::kColMajor}) {
    Problem p = RandomProblem(random, 35, 37, 20);
    p.beta = 1.5f;
    p.c = Matrix(DataType::kFloat32, order, p.m, p.n, 3);
    p.c.Fill(random, -4, 4);
    ExpectRight(*kernel, p, true);
  }
}

TEST(Reference, RoundsOnceAtTheEnd) {
  const auto kernel = Reference();
  // 1 + 2^-8 + 2^-30 lies above the tie between the bfloat16 numbers 1 and 1 + 2^-7; rounded to
  // FP32 first it would be on the tie and go down.
  Problem p;
  p.k = 3;
  p.a = Matrix(DataType::kFloat32, Order::kRowMajor, 1, 3, 0);
  p.b = Matrix(DataType::kFloat32, Order::kRowMajor, 3, 1, 0);
  p.d = Matrix(DataType::kBfloat16, Order::kRowMajor, 1, 1, 0);
  for (int i = 0; i < 3; ++i) p.b.Set(i, 0, 1);
  p.a.Set(0, 0, 1);
  p.a.Set(0, 1, 0x1p-8);
  p.a.Set(0, 2, 0x1p-30);
  ASSERT_EQ(Launch(*kernel, p.Args()), 0);
  EXPECT_EQ(p.d.Get(0, 0), 1 + 0x1p-7);
}

TEST(Reference, NaNsAndInfinitiesStayInTheirRowsAndColumns) {
  const auto kernel = Reference();
  std::mt19937 random(4);
  Problem p;
  p.m = 4, p.n = 5, p.k = 6;
  p.a = Matrix(DataType::kFloat32, Order::kRowMajor, 4, 6, 1);
  p.b = Matrix(DataType::kBfloat16, Order::kColMajor, 6, 5, 1);
  p.d = Matrix(DataType::kFloat16, Order::kRowMajor, 4, 5, 1);
  p.a.Fill(random, 0.5, 1);
  p.b.Fill(random, 0.5, 1);
  p.a.Set(1, 5, kNaN);
  p.a.Set(2, 0, kInfinity);
  p.b.Set(3, 4, kNaN);
  p.b.Set(3, 2, -1e38f);
  ASSERT_EQ(Launch(*kernel, p.Args()), 0);
  for (int row = 0; row < 4; ++row) {
    for (int col = 0; col < 5; ++col) {
      const double value = p.d.Get(row, col);
      if (row == 1 || col == 4)
        EXPECT_TRUE(std::isnan(value)) << row << " " << col;
      else if (row == 2)
        EXPECT_EQ(value, kInfinity) << col;
      else if (col == 2)
        EXPECT_EQ(value, -kInfinity) << row;  // overflows binary16
      else
        EXPECT_TRUE(std::isfinite(value)) << row << " " << col;
    }
  }
}

TEST(Reference, AlphaZeroStillMultipliesAndBetaZeroDoesNotReadC) {
  const auto kernel = Reference();
  Problem p;
  p.a = Matrix(DataType::kFloat32, Order::kRowMajor, 1, 1, 0);
  p.b = p.a;
  p.d = p.a;
  p.c = p.a;
  p.a.Set(0, 0, kNaN);
  p.b.Set(0, 0, 1);
  p.c.Set(0, 0, kNaN);
  p.alpha = 0;
  ASSERT_EQ(Launch(*kernel, p.Args()), 0);
  EXPECT_TRUE(std::isnan(p.d.Get(0, 0)));
  p.a.Set(0, 0, 3);
  p.alpha = 2;
  ASSERT_EQ(Launch(*kernel, p.Args()), 0);
  EXPECT_EQ(p.d.Get(0, 0), 6);
}

TEST(Reference, RefusesWithAReason) {
  const auto kernel = Reference();
  GemmDesc desc;
  desc.a.type = desc.b.type = desc.d.type = DataType::kFloat32;
  desc.m = desc.n = desc.k = 1;
  ASSERT_TRUE(kernel->is_feasible(desc));
  const auto refused = [&](auto change) {
    GemmDesc changed = desc;
    change(changed);
    return !kernel->is_feasible(changed) && std::strlen(kernel->why(changed).reason()) > 0;
  };
  EXPECT_TRUE(refused([](GemmDesc& d) { d.arch = 900; }));
  EXPECT_TRUE(refused([](GemmDesc& d) { d.num = 2, d.group_axis = 0; }));
  EXPECT_TRUE(refused([](GemmDesc& d) { d.a.striding = Striding::kIndexed; }));
  EXPECT_TRUE(refused([](GemmDesc& d) { d.b.pack = 1; }));
  EXPECT_TRUE(refused([](GemmDesc& d) { d.a.type = DataType::kFloat8_ue8m0; }));
  // The strictest mode is kept, so that there is always an answer.
  desc.determinism = Determinism::kBatchInvariant;
  EXPECT_TRUE(kernel->is_feasible(desc));
  EXPECT_EQ(kernel->id(), "cpu_reference");
  EXPECT_EQ(kernel->desc().backend, Backend::kReference);
}

}  // namespace
}  // namespace culet
