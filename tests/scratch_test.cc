// Synthetic problems: where their operands lie, what they hold, and that Compare sees every damage.
#include "culet/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/verify.h"
#include "gemm/scratch_oracle.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

GemmDesc Plain(DataType type, int m, int n, int k) {
  GemmDesc desc;
  desc.a.type = desc.b.type = desc.d.type = type;
  desc.m = m;
  desc.n = n;
  desc.k = k;
  return desc;
}

GemmDesc Fp8Block(int m, int n, int k) {
  GemmDesc desc = Plain(DataType::kFloat8_e4m3, m, n, k);
  desc.d.type = DataType::kBfloat16;
  desc.a.quant = {QuantType::kK, 128};
  desc.b.quant = {QuantType::kB, 128};
  desc.a.scale_type = desc.b.scale_type = DataType::kFloat32;
  return desc;
}

ScratchProblem Make(const GemmDesc& desc, const ScratchOptions& options = {}) {
  auto scratch = ScratchProblem::Create(HostDevice(), desc, options);
  EXPECT_TRUE(scratch.ok()) << scratch.status().ToString() << " for " << ToString(desc);
  return *std::move(scratch);
}

void RunReference(const ScratchProblem& scratch, int set = 0) {
  static KernelList* const kernels = [] {
    auto* list = new KernelList;
    AddCpuReference(HostDevice(), *list);
    return list;
  }();
  Workspace workspace;
  auto& kernel = static_cast<ArgsKernel&>(*kernels->front());
  ASSERT_EQ(kernel.Run(scratch.args(set), 0, 1, workspace, nullptr), 0);
}

std::int64_t At(const MatrixLayout& layout, int row, int col) {
  return layout.order == Order::kRowMajor ? row * layout.ld + col : row + col * layout.ld;
}
double Get(const void* data, const MatrixLayout& layout, int row, int col) {
  return LoadAsDouble(data, layout.type, At(layout, row, col));
}
void SetD(const GemmArgs& args, int row, int col, double value) {
  StoreFromDouble(args.D, args.Ddesc.type, At(args.Ddesc, row, col), value);
}

void ExpectExactClass(const void* data, const MatrixLayout& layout, int alignment,
                      const std::string& what) {
  if (layout.type == DataType::kNull) return;
  const auto pointer = reinterpret_cast<std::uintptr_t>(data);
  const auto pitch = static_cast<std::uint64_t>(layout.ld) * SizeOf(layout.type);
  const auto align = static_cast<std::uint64_t>(alignment);
  EXPECT_EQ(pointer % align, 0u) << what;
  EXPECT_EQ(pitch % align, 0u) << what;
  if (alignment == 16) return;
  EXPECT_NE(pointer % (2 * align), 0u) << what;
  EXPECT_NE(pitch % (2 * align), 0u) << what;
}

TEST(Scratch, EveryConformanceProblemIsItsOwnKeyWithExactAlignments) {
  for (const GemmDesc& desc : ConformanceProblems(0, true)) {
    for (const std::size_t gap : {0, 24}) {
      ScratchOptions options;
      options.gap_bytes = gap;
      const ScratchProblem scratch = Make(desc, options);
      const GemmArgs& args = scratch.args();
      const auto described = Describe(args, 0);
      ASSERT_TRUE(described.ok()) << described.status().ToString();
      EXPECT_EQ(*described, desc) << ToString(desc);
      ExpectExactClass(args.A, args.Adesc, desc.a.align, "A of " + ToString(desc));
      ExpectExactClass(args.B, args.Bdesc, desc.b.align, "B of " + ToString(desc));
      ExpectExactClass(args.U, args.Udesc, desc.a.scale_align, "U of " + ToString(desc));
      ExpectExactClass(args.V, args.Vdesc, desc.b.scale_align, "V of " + ToString(desc));
      ExpectExactClass(args.C, args.Cdesc, desc.c.align, "C of " + ToString(desc));
      ExpectExactClass(args.D, args.Ddesc, desc.d.align, "D of " + ToString(desc));
      const std::int64_t line = desc.a.order == Order::kRowMajor ? desc.k : desc.m;
      const auto size = static_cast<std::int64_t>(SizeOf(desc.a.type));
      EXPECT_GE((args.Adesc.ld - line) * size, static_cast<std::int64_t>(gap));
    }
  }
}

TEST(Scratch, WhatBeginsAsAllocatedIsOfTheSameClass) {
  for (const GemmDesc& desc : ConformanceProblems(0, true)) {
    const ScratchProblem scratch = Make(desc, {.sets = 2, .as_allocated = true, .stop = {}});
    for (const int set : {0, 1}) {
      const GemmArgs& args = scratch.args(set);
      const auto described = Describe(args, 0);
      ASSERT_TRUE(described.ok()) << described.status().ToString();
      EXPECT_EQ(*described, desc) << ToString(desc);
      for (const void* data : {args.A, args.U, args.V, args.C, static_cast<const void*>(args.D)})
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0u) << ToString(desc);
      if (desc.b.pack == 0) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(args.B) % 256, 0u);
    }
  }
}

TEST(Scratch, GapsAndSurroundingsOfInputsAreNaN) {
  ScratchOptions options;
  options.gap_bytes = 16;
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8_e4m3}) {
    GemmDesc desc = Plain(type, 5, 6, 7);
    desc.d.type = DataType::kFloat32;
    const ScratchProblem scratch = Make(desc, options);
    const GemmArgs& args = scratch.args();
    const std::int64_t ld = args.Adesc.ld;
    for (std::int64_t i = -ld; i < 6 * ld; ++i) {
      const bool inside = i >= 0 && i / ld < 5 && i % ld < 7;
      EXPECT_EQ(std::isnan(LoadAsDouble(args.A, type, i)), !inside) << ToString(type) << " " << i;
    }
  }
}

TEST(Scratch, SetsRotateOverMoreThanAskedWithEqualInputs) {
  ScratchOptions options;
  options.rotate_bytes = std::size_t{1} << 20;
  const GemmDesc desc = Plain(DataType::kBfloat16, 3, 100, 200);
  const ScratchProblem scratch = Make(desc, options);
  EXPECT_GT(scratch.sets() * MinimumBytes(desc), 0.7 * (1 << 20));
  std::set<const void*> addresses;
  for (int i = 0; i < scratch.sets(); ++i) {
    const GemmArgs& args = scratch.args(i);
    addresses.insert(args.B);
    ASSERT_EQ(Get(args.B, args.Bdesc, 199, 99), Get(scratch.args(0).B, args.Bdesc, 199, 99));
  }
  EXPECT_EQ(addresses.size(), static_cast<std::size_t>(scratch.sets()));
  EXPECT_EQ(&scratch.args(scratch.sets()), &scratch.args(0));
  const GemmArgs &first = scratch.args(0), &last = scratch.args(scratch.sets() - 1);
  EXPECT_GT(static_cast<const char*>(last.A) - static_cast<const char*>(first.A),
            static_cast<std::ptrdiff_t>(options.rotate_bytes * 9 / 10));

  options.rotate_bytes = 0;
  options.sets = 3;
  EXPECT_EQ(Make(desc, options).sets(), 3);
}

TEST(Scratch, RowsAndColumnsDoNotDependOnTheOtherSizes) {
  for (const Order order : {Order::kRowMajor, Order::kColMajor}) {
    GemmDesc small = Fp8Block(1, 3, 300), large = Fp8Block(9, 7, 300);
    small.a.order = large.a.order = small.a.scale_order = large.a.scale_order = order;
    small.b.order = large.b.order = order;
    const ScratchProblem a = Make(small), b = Make(large);
    for (int i = 0; i < 300; ++i) {
      ASSERT_EQ(Get(a.args().A, a.args().Adesc, 0, i), Get(b.args().A, b.args().Adesc, 0, i));
      for (int col = 0; col < 3; ++col) {
        ASSERT_EQ(Get(a.args().B, a.args().Bdesc, i, col), Get(b.args().B, b.args().Bdesc, i, col));
      }
    }
    for (int group = 0; group < 3; ++group) {
      ASSERT_EQ(Get(a.args().U, a.args().Udesc, 0, group),
                Get(b.args().U, b.args().Udesc, 0, group));
    }
  }
  ScratchOptions other;
  other.seed = 2;
  const GemmDesc desc = Plain(DataType::kFloat32, 1, 1, 8);
  const ScratchProblem a = Make(desc), b = Make(desc, other), c = Make(desc);
  EXPECT_NE(std::memcmp(a.args().A, b.args().A, 32), 0);
  EXPECT_EQ(std::memcmp(a.args().A, c.args().A, 32), 0);
}

TEST(Scratch, FillsHoldWhatTheyPromise) {
  ScratchOptions options;
  const GemmDesc desc = Fp8Block(16, 16, 512);
  options.fill = Fill::kIntegers;
  {
    const ScratchProblem scratch = Make(desc, options);
    const GemmArgs& args = scratch.args();
    std::set<double> values, scales;
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 512; ++i) values.insert(Get(args.A, args.Adesc, row, i));
      for (int group = 0; group < 4; ++group) scales.insert(Get(args.U, args.Udesc, row, group));
    }
    EXPECT_EQ(values, (std::set<double>{-2, -1, 1, 2}));
    EXPECT_EQ(scales, (std::set<double>{1, 2, 4}));
  }
  options.fill = Fill::kNormal;
  {
    const ScratchProblem scratch = Make(Plain(DataType::kFloat32, 64, 1, 512), options);
    double sum = 0, squares = 0;
    for (int row = 0; row < 64; ++row) {
      for (int i = 0; i < 512; ++i) {
        const double value = Get(scratch.args().A, scratch.args().Adesc, row, i);
        sum += value;
        squares += value * value;
      }
    }
    EXPECT_NEAR(sum / (64 * 512), 0, 0.05);
    EXPECT_NEAR(squares / (64 * 512), 1, 0.1);
  }
  options.fill = Fill::kExtreme;
  {
    const ScratchProblem scratch = Make(Plain(DataType::kFloat32, 8, 8, 64), options);
    RunReference(scratch);
    const GemmArgs& args = scratch.args();
    int nans = 0, infinities = 0;
    for (int row = 0; row < 8; ++row) {
      for (int col = 0; col < 8; ++col) {
        const double value = Get(args.D, args.Ddesc, row, col);
        EXPECT_EQ(std::isnan(value) && row != 7 && col != 7,
                  (row == 4 || col == 4) && row != 7 && col != 7);
        nans += std::isnan(value);
        infinities += std::isinf(value);
      }
    }
    EXPECT_GE(nans, 15);
    EXPECT_GE(infinities, 12);
    const auto report = scratch.Compare();
    ASSERT_TRUE(report.ok());
    EXPECT_TRUE(report->ok()) << report->ToString();
  }
}

class Damage : public testing::Test {
 protected:
  // Row-major with a gap, so that every kind of neighbour exists.
  static ScratchProblem Right() {
    ScratchOptions options;
    options.gap_bytes = 8;
    ScratchProblem scratch = Make(Plain(DataType::kFloat32, 9, 11, 40), options);
    RunReference(scratch);
    const auto report = scratch.Compare();
    EXPECT_TRUE(report.ok() && report->ok());
    EXPECT_EQ(report->checked, 99u);
    return scratch;
  }
  static ErrorReport After(const ScratchProblem& scratch) {
    const auto report = scratch.Compare();
    EXPECT_TRUE(report.ok());
    EXPECT_FALSE(report->ok()) << "the damage was not seen";
    return *report;
  }
};

TEST_F(Damage, OneWrongElement) {
  const ScratchProblem scratch = Right();
  const GemmArgs& args = scratch.args();
  const double right = Get(args.D, args.Ddesc, 8, 10);
  for (const double wrong : {right * 1.001, right / 2, -right, 0.0, kNaN, kInfinity}) {
    SetD(args, 8, 10, wrong);
    const ErrorReport report = After(scratch);
    EXPECT_EQ(report.worst_row, 8);
    EXPECT_EQ(report.worst_col, 10);
    EXPECT_GT(report.max_over_bound, 1.0);
    EXPECT_NE(report.ToString().find("D(8, 10)"), std::string::npos) << report.ToString();
  }
  SetD(args, 8, 10, right * (1 + 0x1p-23));  // one rounding more is allowed
  EXPECT_TRUE(scratch.Compare()->ok());
}

TEST_F(Damage, IntegersLeaveNoSlack) {
  ScratchOptions options;
  options.fill = Fill::kIntegers;
  options.alpha = -2.0f;
  GemmDesc desc = Plain(DataType::kFloat32, 9, 11, 40);
  desc.c.type = DataType::kFloat32;
  options.beta = 0.5f;
  const ScratchProblem scratch = Make(desc, options);
  RunReference(scratch);
  ASSERT_TRUE(scratch.Compare()->ok());
  const double right = Get(scratch.args().D, scratch.args().Ddesc, 4, 5);
  SetD(scratch.args(), 4, 5, std::nextafter(static_cast<float>(right), 1e9f));
  EXPECT_GT(After(scratch).max_over_bound, 1.0);
}

TEST_F(Damage, UnwrittenElements) {
  ScratchProblem scratch = Right();
  ASSERT_TRUE(scratch.PoisonOutput().ok());
  ErrorReport report = After(scratch);
  EXPECT_EQ(report.unwritten, 99u);
  EXPECT_NE(report.ToString().find("99 elements of D were not written"), std::string::npos);
  // A NaN that arithmetic makes is a wrong value, not an unwritten one.
  RunReference(scratch);
  SetD(scratch.args(), 3, 3, kNaN);
  report = After(scratch);
  EXPECT_EQ(report.unwritten, 0u);
}

TEST_F(Damage, WritesAroundD) {
  ScratchProblem scratch = Right();
  const GemmArgs& args = scratch.args();
  auto* d = static_cast<float*>(args.D);
  for (const std::int64_t at :
       {std::int64_t{-1}, std::int64_t{-200}, std::int64_t{11}, 9 * args.Ddesc.ld - 1,
        9 * args.Ddesc.ld, 9 * args.Ddesc.ld + 200}) {
    d[at] = 0;
    const ErrorReport report = After(scratch);
    EXPECT_FALSE(report.guards_intact) << at;
    EXPECT_EQ(report.unwritten, 0u);
    ASSERT_TRUE(scratch.PoisonOutput().ok());
    RunReference(scratch);
    EXPECT_TRUE(scratch.Compare()->ok()) << "PoisonOutput did not renew the guards";
  }
}

TEST_F(Damage, WritesToInputs) {
  for (int operand = 0; operand < 2; ++operand) {
    ScratchProblem scratch = Right();
    const GemmArgs& args = scratch.args();
    const void* input = operand == 0 ? args.A : args.B;
    static_cast<float*>(const_cast<void*>(input))[2] += 1;
    EXPECT_FALSE(After(scratch).guards_intact);
    ASSERT_TRUE(scratch.PoisonOutput().ok());
    RunReference(scratch);
    EXPECT_TRUE(scratch.Compare()->ok()) << "PoisonOutput did not renew the inputs";
  }
}

TEST(Scratch, LargeOutputsAreSampledAtEdgesAndScannedWhole) {
  ScratchProblem scratch = Make(Plain(DataType::kFloat32, 2100, 2200, 33));
  RunReference(scratch);
  const GemmArgs& args = scratch.args();
  auto report = scratch.Compare();
  ASSERT_TRUE(report.ok() && report->ok()) << report->ToString();
  EXPECT_EQ(report->checked, 64u * 256u);
  for (const auto& [row, col] : {std::pair(0, 0), {2099, 2199}, {2095, 2190}, {0, 63}, {0, 64}}) {
    const double right = Get(args.D, args.Ddesc, row, col);
    SetD(args, row, col, right + 10);
    EXPECT_FALSE(scratch.Compare()->ok()) << row << " " << col;
    SetD(args, row, col, right);
  }
  ASSERT_TRUE(scratch.PoisonOutput().ok());
  std::vector<std::byte> right;
  {
    ScratchProblem other = Make(Plain(DataType::kFloat32, 2100, 2200, 33));
    RunReference(other);
    right = *other.OutputBytes();
  }
  std::memcpy(args.D, right.data(), right.size());
  ASSERT_EQ(args.Ddesc.ld, 2200);
  for (int i = 0; i < 2100; i += 137) {
    const int col = (i * 31 + 7) % 2200;
    const double value = Get(args.D, args.Ddesc, i, col);
    const std::uint32_t poison = 0x7fa5a5a5u;
    std::memcpy(static_cast<float*>(args.D) + At(args.Ddesc, i, col), &poison, 4);
    EXPECT_EQ(scratch.Compare()->unwritten, 1u) << i;
    SetD(args, i, col, value);
  }
}

TEST(Scratch, OutputBytesAreTheLinesWithoutGaps) {
  ScratchOptions options;
  options.gap_bytes = 12;
  GemmDesc desc = Plain(DataType::kFloat32, 2, 3, 4);
  desc.d.order = desc.c.order = Order::kColMajor;
  const ScratchProblem scratch = Make(desc, options);
  for (int row = 0; row < 2; ++row) {
    for (int col = 0; col < 3; ++col) SetD(scratch.args(), row, col, 10 * row + col);
  }
  const auto bytes = scratch.OutputBytes();
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(bytes->size(), 24u);
  float values[6];
  std::memcpy(values, bytes->data(), 24);
  EXPECT_EQ((std::vector<float>(values, values + 6)), (std::vector<float>{0, 10, 1, 11, 2, 12}));
}

TEST(Scratch, WorkspaceGrowsAndIsInitialised) {
  ScratchProblem scratch = Make(Plain(DataType::kFloat32, 1, 1, 1));
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1000}, std::size_t{100000}}) {
    WorkspaceSize size;
    size.barriers = size.partials = bytes;
    const auto workspace = scratch.workspace(size);
    ASSERT_TRUE(workspace.ok()) << workspace.status().ToString();
    EXPECT_GE((*workspace)->barriers_size, bytes);
    const auto* barriers = static_cast<char*>((*workspace)->barriers);
    EXPECT_TRUE(std::all_of(barriers, barriers + bytes, [](char c) { return c == 0; }));
    if (bytes > 0) std::memset((*workspace)->barriers, 1, bytes);
  }
}

TEST(Scratch, BadRequestsAreRefusedWithTheirName) {
  const GemmDesc good = Plain(DataType::kBfloat16, 4, 4, 4);
  const auto expect = [&](const std::string& word, auto change) {
    GemmDesc desc = good;
    ScratchOptions options;
    change(desc, options);
    const auto scratch = ScratchProblem::Create(HostDevice(), desc, options);
    ASSERT_FALSE(scratch.ok()) << word;
    EXPECT_NE(scratch.status().message().find(word), std::string::npos)
        << "'" << word << "' is not in: " << scratch.status().message();
  };
  using Options = ScratchOptions;
  expect("desc.m is 0", [](GemmDesc& d, Options&) { d.m = 0; });
  expect("desc.k is -1", [](GemmDesc& d, Options&) { d.k = -1; });
  expect("desc.a.align is 1", [](GemmDesc& d, Options&) { d.a.align = 1; });
  expect("desc.d.align is 12", [](GemmDesc& d, Options&) { d.d.align = 12; });
  expect("desc.b.align is 32", [](GemmDesc& d, Options&) { d.b.align = 32; });
  expect("desc.arch is 900", [](GemmDesc& d, Options&) { d.arch = 900; });
  expect("Adesc.type", [](GemmDesc& d, Options&) { d.a.type = DataType::kNull; });
  expect("not the key", [](GemmDesc& d, Options&) { d.num = 2; });
  expect("desc.b.pack is 3", [](GemmDesc& d, Options&) { d.b.pack = 3; });
  expect("not the key", [](GemmDesc& d, Options&) { d.a.scale_type = DataType::kFloat32; });
  expect("group size 0", [](GemmDesc& d, Options&) {
    d.a.quant.type = QuantType::kK, d.a.scale_type = DataType::kFloat32;
  });
  expect("options.sets is 0", [](GemmDesc&, Options& o) { o.sets = 0; });
  expect("options.beta is 0", [](GemmDesc& d, Options& o) { d.c.type = d.d.type, o.beta = 0.0f; });
  GemmDesc huge = good;
  huge.m = huge.n = huge.k = std::numeric_limits<int>::max();
  const auto scratch = ScratchProblem::Create(HostDevice(), huge);
  ASSERT_FALSE(scratch.ok());
  EXPECT_EQ(scratch.status().code(), StatusCode::kResourceExhausted);
}

TEST(Scratch, CountsBytesAndOperations) {
  GemmDesc desc = Fp8Block(3, 200, 300);
  EXPECT_EQ(Operations(desc), 2.0 * 3 * 200 * 300);
  EXPECT_EQ(MinimumBytes(desc), 3 * 300 + 4 * 3 * 3 + 300 * 200 + 4 * 3 * 2 + 2 * 3 * 200);
  desc.c.type = DataType::kFloat32;
  desc.type_bias = DataType::kFloat32;
  desc.bias_axis = Bias::Axis::kM;
  EXPECT_EQ(MinimumBytes(desc),
            3 * 300 + 4 * 3 * 3 + 300 * 200 + 4 * 3 * 2 + 2 * 3 * 200 + 4 * 3 * 200 + 4 * 3);
}

TEST(Scratch, TimingPassesFailuresOn) {
  const auto time = TimeLaunchUs(HostDevice(), [] { return Status(); });
  ASSERT_TRUE(time.ok());
  EXPECT_GE(*time, 0);
  const auto failed = TimeLaunchUs(HostDevice(), [] { return Status(StatusCode::kIo, "no"); });
  EXPECT_EQ(failed.status().code(), StatusCode::kIo);
}

// The acceptance rule by itself.
TEST(Bounds, AnIntervalHoldsTheRoundingsOfAllAllowedValues) {
  const DataType bf16 = DataType::kBfloat16;
  const Interval exact = AllowedAround(1.0 + 0x1p-9, 0, bf16);
  EXPECT_EQ(exact.low, 1.0);
  EXPECT_EQ(exact.high, 1.0);
  const Interval across = AllowedAround(1.0 + 0x1p-8, 0x1p-20, bf16);  // around a tie
  EXPECT_EQ(across.low, 1.0);
  EXPECT_EQ(across.high, 1.0 + 0x1p-7);
  EXPECT_EQ(AllowedAround(65519, 2, DataType::kFloat16).high, kInfinity);
  EXPECT_EQ(AllowedAround(65519, 2, DataType::kFloat16).low, 65504);
}

TEST(Bounds, RatiosExceedOneExactlyOutside) {
  const auto over = [](double value, double reference, double slack, DataType type) {
    return OverBound(value, reference, AllowedAround(reference, slack, type));
  };
  const DataType f32 = DataType::kFloat32, f16 = DataType::kFloat16;
  EXPECT_EQ(over(2, 2, 0, f32), 0);
  EXPECT_LE(over(1.0 + 0x1p-11, 1.0, 0x1p-11, f32), 1);
  EXPECT_GT(over(1.0 + 0x1p-11 + 0x1p-22, 1.0, 0x1p-11, f32), 1);
  EXPECT_LE(over(1.0, 1.0 + 0x1p-12, 0, f16), 1);
  EXPECT_GT(over(1.0 + 0x1p-10, 1.0 + 0x1p-12, 0, f16), 1);
  EXPECT_EQ(over(kNaN, kNaN, 0, f32), 0);
  EXPECT_EQ(over(1, kNaN, 0, f32), kInfinity);
  EXPECT_EQ(over(kNaN, 1, 1e30, f32), kInfinity);
  EXPECT_EQ(over(kInfinity, kInfinity, 0, f32), 0);
  EXPECT_GT(over(-kInfinity, kInfinity, 0, f32), 1);
  EXPECT_GT(over(1e38, kInfinity, 0, f32), 1);
  EXPECT_GT(over(kInfinity, 1e30, 1, f32), 1);
  EXPECT_LE(over(kInfinity, 70000, 1, f16), 1);
  EXPECT_GT(over(65504, 70000, 1, f16), 1);
  EXPECT_LE(over(kInfinity, 65519, 2, f16), 1);
  EXPECT_LE(over(65504, 65519, 2, f16), 1);
}

}  // namespace
}  // namespace culet
