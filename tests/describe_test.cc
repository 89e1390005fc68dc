// Describe: every error with the argument's name and value, and what makes two keys equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "culet/desc.h"
#include "culet/packing.h"
#include "culet/problem.h"
#include "gemm/extent.h"

namespace culet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kM = 5, kN = 200, kK = 300;

// Addresses alone matter: Describe reads no operand.
void* At(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
void* Moved(const void* pointer, std::ptrdiff_t bytes) {
  return At(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

// BF16 with everything that a problem may have: C, bias, both kinds of order.
GemmArgs Dense() {
  GemmArgs args;
  args.A = At(0x1000000);
  args.Adesc = RowMajor(DataType::kBfloat16, kM, kK, 304);
  args.B = At(0x2000000);
  args.Bdesc = ColMajor(DataType::kBfloat16, kK, kN, 304);
  args.beta = 0.5f;
  args.C = At(0x3000000);
  args.Cdesc = RowMajor(DataType::kFloat32, kM, kN);
  args.D = At(0x4000000);
  args.Ddesc = RowMajor(DataType::kFloat32, kM, kN);
  args.operation.bias = {At(0x5000000), DataType::kFloat32, Bias::Axis::kN};
  return args;
}

// FP8 with 1x128 and 128x128 scales.
GemmArgs Fp8() {
  GemmArgs args = Dense();
  args.Adesc = RowMajor(DataType::kFloat8_e4m3, kM, kK, 304);
  args.Bdesc = ColMajor(DataType::kFloat8_e4m3, kK, kN, 304);
  args.operation.quant_a = {QuantType::kK, 128};
  args.operation.quant_b = {QuantType::kB, 128};
  args.U = At(0x6000000);
  args.Udesc = RowMajor(DataType::kFloat32, kM, 3);
  args.V = At(0x7000000);
  args.Vdesc = ColMajor(DataType::kFloat32, 3, 2);
  return args;
}

template <class Enum>
constexpr Enum NoSuch() {
  return static_cast<Enum>(99);
}

struct Fault {
  std::function<void(GemmArgs&)> make;
  StatusCode code;
  std::vector<std::string> message_parts;  // the argument, its value, the way out
};

void ExpectFaults(const GemmArgs& good, const std::vector<Fault>& faults) {
  ASSERT_TRUE(Describe(good, 0).ok()) << Describe(good, 0).status().ToString();
  for (std::size_t i = 0; i < faults.size(); ++i) {
    GemmArgs bad = good;
    faults[i].make(bad);
    const auto desc = Describe(bad, 0);
    ASSERT_FALSE(desc.ok()) << "fault " << i << ": " << faults[i].message_parts[0];
    EXPECT_EQ(desc.status().code(), faults[i].code) << desc.status().ToString();
    for (const std::string& part : faults[i].message_parts) {
      EXPECT_THAT(desc.status().message(), HasSubstr(part)) << "fault " << i;
    }
  }
}

constexpr auto kInvalid = StatusCode::kInvalidArgument;

TEST(Describe, NamesEveryFaultOfAnOperand) {
  ExpectFaults(
      Dense(),
      {
          {[](auto& a) { a.Adesc.type = DataType::kNull; }, kInvalid, {"Adesc.type is none"}},
          {[](auto& a) { a.Bdesc.type = NoSuch<DataType>(); }, kInvalid, {"Bdesc.type is invalid"}},
          {[](auto& a) { a.Ddesc.type = DataType::kNull; }, kInvalid, {"Ddesc.type is none"}},
          {[](auto& a) { a.Adesc.order = NoSuch<Order>(); },
           kInvalid,
           {"Adesc.order is 99", "kRowMajor"}},
          {[](auto& a) { a.Adesc.rows = 0; }, kInvalid, {"Adesc.rows is 0", ">= 1"}},
          {[](auto& a) { a.Adesc.cols = -3; }, kInvalid, {"Adesc.cols is -3", ">= 1"}},
          {[](auto& a) { a.Bdesc.rows = -1; }, kInvalid, {"Bdesc.rows is -1", ">= 1"}},
          {[](auto& a) { a.Bdesc.cols = 0; }, kInvalid, {"Bdesc.cols is 0", ">= 1"}},
          {[](auto& a) { a.Ddesc.rows = 0; }, kInvalid, {"Ddesc.rows is 0", ">= 1"}},
          {[](auto& a) { a.Cdesc.cols = 0; }, kInvalid, {"Cdesc.cols is 0", ">= 1"}},
          {[](auto& a) { a.Adesc.num = 0; }, kInvalid, {"Adesc.num is 0", ">= 1"}},
          {[](auto& a) { a.Adesc.ld = kK - 1; },
           kInvalid,
           {"Adesc.ld is 299", "row-major 5 x 300", "at least 300"}},
          {[](auto& a) { a.Bdesc.ld = -304; },
           kInvalid,
           {"Bdesc.ld is -304", "col-major 300 x 200", "at least 300"}},
          {[](auto& a) { a.Cdesc.ld = 0; }, kInvalid, {"Cdesc.ld is 0", "at least 200"}},
          {[](auto& a) { a.Ddesc.ld = kN - 1; }, kInvalid, {"Ddesc.ld is 199", "at least 200"}},
          {[](auto& a) { a.A = Moved(a.A, 1); },
           kInvalid,
           {"A is 0x1000001", "multiple of 2 bytes", "bfloat16"}},
          {[](auto& a) { a.B = Moved(a.B, 3); }, kInvalid, {"B is 0x2000003", "multiple of 2"}},
          {[](auto& a) { a.C = Moved(a.C, 2); }, kInvalid, {"C is 0x3000002", "multiple of 4"}},
          {[](auto& a) { a.D = Moved(a.D, 1); }, kInvalid, {"D is 0x4000001", "multiple of 4"}},
          {[](auto& a) { a.Ddesc.type = DataType::kFloat8_ue8m0; },
           kInvalid,
           {"Ddesc.type is float8_ue8m0", "use float32"}},
      });
}

TEST(Describe, NamesShapesThatDoNotFit) {
  ExpectFaults(
      Dense(),
      {
          {[](auto& a) { a.Bdesc = ColMajor(DataType::kBfloat16, kK + 1, kN); },
           kInvalid,
           {"Bdesc is 301 x 200", "A (m, k) times B (k, n)", "300 x 200"}},
          {[](auto& a) { a.Ddesc = RowMajor(DataType::kFloat32, kM + 1, kN); },
           kInvalid,
           {"Ddesc is 6 x 200", "5 x 200"}},
          {[](auto& a) { a.Ddesc = RowMajor(DataType::kFloat32, kM, kN + 1); },
           kInvalid,
           {"Ddesc is 5 x 201", "5 x 200"}},
          {[](auto& a) { a.Cdesc = RowMajor(DataType::kFloat32, kM, kN - 1); },
           kInvalid,
           {"Cdesc is 5 x 199", "5 x 200"}},
          {[](auto& a) { a.Cdesc = {}; }, kInvalid, {"beta is 0.5", "Cdesc", "set beta to 0"}},
      });
  ExpectFaults(Fp8(), {
                          {[](auto& a) { a.Udesc = RowMajor(DataType::kFloat32, kM, 2); },
                           kInvalid,
                           {"Udesc is 5 x 2", "quant_a (k 128)", "5 x 3"}},
                          {[](auto& a) { a.Udesc = RowMajor(DataType::kFloat32, 1, 3); },
                           kInvalid,
                           {"Udesc is 1 x 3", "5 x 3"}},
                          {[](auto& a) { a.Vdesc = ColMajor(DataType::kFloat32, 3, kN); },
                           kInvalid,
                           {"Vdesc is 3 x 200", "quant_b (block 128)", "3 x 2"}},
                          {[](auto& a) { a.Vdesc = ColMajor(DataType::kFloat32, 2, 3); },
                           kInvalid,
                           {"Vdesc is 2 x 3", "3 x 2"}},
                      });
}

TEST(Describe, NamesEveryFaultOfTheOperation) {
  ExpectFaults(
      Dense(),
      {
          {[](auto& a) { a.operation.batch_dim = 2; }, kInvalid, {"operation.batch_dim is 2", "0"}},
          {[](auto& a) { a.operation.batch_dim = -1; }, kInvalid, {"operation.batch_dim is -1"}},
          {[](auto& a) { a.operation.sm_budget = -4; },
           kInvalid,
           {"operation.sm_budget is -4", "0 for all"}},
          {[](auto& a) { a.operation.epilogue = NoSuch<Epilogue>(); },
           kInvalid,
           {"epilogue", "99", "enumerators"}},
          {[](auto& a) { a.operation.accumulate = NoSuch<Accumulate>(); },
           kInvalid,
           {"accumulate", "99"}},
          {[](auto& a) { a.operation.determinism = NoSuch<Determinism>(); },
           kInvalid,
           {"determinism", "99"}},
          {[](auto& a) { a.operation.dispatch = NoSuch<DispatchPolicy>(); },
           kInvalid,
           {"dispatch", "99"}},
          {[](auto& a) { a.operation.bias.data = nullptr; },
           kInvalid,
           {"operation.bias.data is null", "float32"}},
          {[](auto& a) { a.operation.bias.type = DataType::kNull; },
           kInvalid,
           {"operation.bias.type is none", "use float32"}},
          {[](auto& a) { a.operation.bias.type = DataType::kFloat8_e4m3; },
           kInvalid,
           {"operation.bias.type is float8_e4m3"}},
          {[](auto& a) { a.operation.bias.axis = NoSuch<Bias::Axis>(); },
           kInvalid,
           {"operation.bias.axis is 99", "kN"}},
          {[](auto& a) { a.operation.bias.data = At(0x5000002); },
           kInvalid,
           {"operation.bias.data is 0x5000002", "multiple of 4"}},
      });
}

TEST(Describe, NamesEveryFaultOfScales) {
  ExpectFaults(
      Fp8(),
      {
          {[](auto& a) { a.operation.quant_a.type = NoSuch<QuantType>(); },
           kInvalid,
           {"quant_a", "(99)", "kNone, kK, kB, kTensor or kRow"}},
          {[](auto& a) { a.operation.quant_b = {}; },
           kInvalid,
           {"V is given", "quant_b.type is none", "leave V and Vdesc empty"}},
          {[](auto& a) { a.operation.quant_a = {}, a.U = nullptr; },
           kInvalid,
           {"U is given", "quant_a.type is none"}},
          {[](auto& a) {
             a.operation.quant_a = {QuantType::kNone, 128}, a.U = nullptr, a.Udesc = {};
           },
           kInvalid,
           {"quant_a.group_size is 128 without a type"}},
          {[](auto& a) { a.operation.quant_a.group_size = 0; },
           kInvalid,
           {"quant_a.group_size is 0", ">= 1"}},
          {[](auto& a) { a.operation.quant_b.group_size = -128; },
           kInvalid,
           {"quant_b.group_size is -128", ">= 1"}},
          {[](auto& a) { a.Udesc = {}; }, kInvalid, {"Udesc.type is none"}},
          {[](auto& a) { a.Vdesc.ld = 2; }, kInvalid, {"Vdesc.ld is 2", "at least 3"}},
          {[](auto& a) { a.U = Moved(a.U, 2); }, kInvalid, {"U is 0x6000002", "multiple of 4"}},
          {[](auto& a) { a.V = Moved(a.V, 1); }, kInvalid, {"V is 0x7000001", "multiple of 4"}},
          {[](auto& a) { a.Udesc.type = DataType::kUint4, a.Udesc.ld = 4; },
           kInvalid,
           {"Udesc.type is uint4", "scales are float32"}},
      });
}

TEST(Describe, TakesScalesPerTensorAndPerRow) {
  GemmArgs args = Fp8();
  args.operation.quant_a = {QuantType::kRow};
  args.operation.quant_b = {QuantType::kTensor};
  args.Udesc = RowMajor(DataType::kFloat32, args.Adesc.rows, 1);
  args.Vdesc = RowMajor(DataType::kFloat32, 1, 1);
  auto desc = Describe(args, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->a.quant, (QuantDesc{QuantType::kRow, 0}));
  EXPECT_EQ(desc->b.scale_type, DataType::kFloat32);
  EXPECT_NE(ToString(*desc).find(" U: float32 per row V: float32 per tensor"), std::string::npos)
      << ToString(*desc);

  std::swap(args.operation.quant_a, args.operation.quant_b);
  args.Udesc = RowMajor(DataType::kFloat32, 1, 1);
  args.Vdesc = RowMajor(DataType::kFloat32, 1, args.Bdesc.cols);
  desc = Describe(args, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_NE(ToString(*desc).find(" U: float32 per tensor V: float32 per column"), std::string::npos)
      << ToString(*desc);

  const std::string m = std::to_string(args.Adesc.rows), n = std::to_string(args.Bdesc.cols);
  ExpectFaults(args, {
                         {[](auto& a) { a.operation.quant_a.group_size = 128; },
                          kInvalid,
                          {"quant_a.group_size is 128", "per tensor", "leave it 0"}},
                         {[](auto& a) { a.operation.quant_b.group_size = 1; },
                          kInvalid,
                          {"quant_b.group_size is 1", "per column", "leave it 0"}},
                         {[](auto& a) { a.operation.quant_a.type = QuantType::kRow; },
                          kInvalid,
                          {"Udesc is 1 x 1", "quant_a (per row)", m + " x 1"}},
                         {[](auto& a) { a.operation.quant_b.type = QuantType::kTensor; },
                          kInvalid,
                          {"Vdesc is 1 x " + n, "quant_b (per tensor)", "1 x 1"}},
                     });
}

TEST(Describe, NamesMatricesBeyondTheAddressSpace) {
  constexpr int kMax = std::numeric_limits<int>::max();
  constexpr std::int64_t kMaxLd = std::numeric_limits<std::int64_t>::max();
  const auto out = StatusCode::kOutOfRange;
  ExpectFaults(
      Dense(),
      {
          {[](auto& a) { a.Adesc.ld = kMaxLd; }, out, {"Adesc", "ld 9223372036854775807", "split"}},
          {[](auto& a) { a.Bdesc.ld = kMaxLd / 100; }, out, {"Bdesc", "300 x 200"}},
          {[](auto& a) { a.Ddesc.ld = kMaxLd / 16; }, out, {"Ddesc", "5 x 200"}},
      });
  // One row has no second one, but its ld must still be expressible in bytes.
  GemmArgs row = Dense();
  row.Adesc = RowMajor(DataType::kBfloat16, 1, kK, kMaxLd);
  EXPECT_EQ(Describe(row, 0).status().code(), out);

  // The largest extents that an int holds are a valid key: 2^31 x 2^31 elements of 2 bytes.
  GemmArgs huge;
  huge.Adesc = RowMajor(DataType::kFloat8_e4m3, kMax, kMax);
  huge.Bdesc = ColMajor(DataType::kBfloat16, kMax, kMax);
  huge.Ddesc = RowMajor(DataType::kBfloat16, kMax, kMax);
  const auto desc = Describe(huge, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->m, kMax);
  huge.Ddesc.type = DataType::kFloat32;
  EXPECT_EQ(Describe(huge, 0).status().code(), out);
}

TEST(Describe, NamesWhatDOverlaps) {
  ExpectFaults(
      Fp8(),
      {
          {[](auto& a) { a.D = Moved(a.A, 4); },
           kInvalid,
           {"D (0x1000004) overlaps A (0x1000000)"}},
          {[](auto& a) { a.D = Moved(a.B, -4); }, kInvalid, {"overlaps B", "memory of its own"}},
          {[](auto& a) { a.D = const_cast<void*>(a.U); }, kInvalid, {"overlaps U"}},
          {[](auto& a) { a.D = Moved(a.V, 20); }, kInvalid, {"overlaps V"}},
          {[](auto& a) { a.D = Moved(a.C, 4); }, kInvalid, {"overlaps C"}},
          {[](auto& a) { a.operation.bias.data = Moved(a.D, kM * kN * 4 - 4); },
           kInvalid,
           {"overlaps operation.bias.data"}},
          {[](auto& a) { a.C = a.D, a.Cdesc.ld = 208; }, kInvalid, {"overlaps C"}},
          {[](auto& a) { a.C = a.D, a.Cdesc = ColMajor(DataType::kFloat32, kM, kN); },
           kInvalid,
           {"overlaps C"}},
          {[](auto& a) { a.C = a.D, a.Cdesc.type = DataType::kBfloat16; },
           kInvalid,
           {"overlaps C"}},
      });
}

TEST(Describe, AllowsWhatDoesNotOverlap) {
  GemmArgs args = Dense();
  args.C = args.D;
  EXPECT_TRUE(Describe(args, 0).ok()) << "C may be D itself";

  args = Dense();
  args.C = Moved(args.D, 4);
  args.beta = 0;
  EXPECT_TRUE(Describe(args, 0).ok()) << "C is not read";

  args = Dense();
  args.D = Moved(args.operation.bias.data, kN * 4);
  EXPECT_TRUE(Describe(args, 0).ok()) << "D begins where the bias ends";

  // A, C and D as column slices of one buffer, 1000 F32 wide.
  args = Dense();
  args.operation.bias = {};
  args.Adesc = RowMajor(DataType::kFloat32, kM, kK, 1000);
  args.A = At(0x1000000);
  args.Ddesc = RowMajor(DataType::kFloat32, kM, kN, 1000);
  args.D = Moved(args.A, kK * 4);
  args.Cdesc = args.Ddesc;
  args.C = Moved(args.D, kN * 4);
  EXPECT_TRUE(Describe(args, 0).ok()) << Describe(args, 0).status().ToString();
  args.D = Moved(args.D, -4);
  EXPECT_THAT(Describe(args, 0).status().message(), HasSubstr("overlaps A"));
}

TEST(Overlap, AgreesWithMarkingBytes) {
  std::mt19937 random(7);
  int shared = 0, interleaved = 0;
  for (int round = 0; round < 200000; ++round) {
    const auto make = [&](int pitch) {
      const int rows = 1 + static_cast<int>(random() % 4);
      const int inner = 1 + static_cast<int>(random() % pitch);
      return std::pair{Footprint{(rows - 1) * pitch + inner, inner, pitch}, rows};
    };
    const int pitch = 1 + static_cast<int>(random() % 12);
    const auto [fa, rows_a] = make(pitch);
    const auto [fb, rows_b] = make(random() % 2 == 0 ? pitch : 1 + static_cast<int>(random() % 12));
    const bool equal_pitch = fa.pitch_bytes == fb.pitch_bytes;
    const std::int64_t a = 1000, b = 960 + static_cast<std::int64_t>(random() % 80);
    std::vector<bool> of_a(2000);
    for (int r = 0; r < rows_a; ++r) {
      for (int i = 0; i < fa.inner_bytes; ++i) of_a[a + r * fa.pitch_bytes + i] = true;
    }
    bool expected = false;
    for (int r = 0; r < rows_b; ++r) {
      for (int i = 0; i < fb.inner_bytes; ++i) expected |= of_a[b + r * fb.pitch_bytes + i];
    }
    const bool answer = Overlap(At(a), fa, At(b), fb);
    const bool apart = a + fa.total_bytes <= b || b + fb.total_bytes <= a;
    if (expected || equal_pitch || apart) {
      ASSERT_EQ(answer, expected) << "a: " << rows_a << " x " << fa.inner_bytes << " pitch "
                                  << fa.pitch_bytes << "; b at " << b - a << ": " << rows_b << " x "
                                  << fb.inner_bytes << " pitch " << fb.pitch_bytes;
    } else {
      ASSERT_TRUE(answer) << "interleavings of unequal pitch count as shared";
    }
    shared += expected;
    interleaved += !expected && !apart;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(interleaved, 1000);
  EXPECT_FALSE(Overlap(nullptr, {8, 8, 8}, At(0x4), {8, 8, 8}));
  EXPECT_FALSE(Overlap(At(0x4), {8, 8, 8}, nullptr, {8, 8, 8}));
}

TEST(Describe, KeepsWhatDecidesLegalityAndSpeed) {
  GemmArgs args = Fp8();
  args.operation.batch_dim = 1;
  args.operation.sm_budget = 20;
  args.operation.pdl = true;
  args.operation.accumulate = Accumulate::kFast;
  args.operation.determinism = Determinism::kRepeatable;
  args.operation.bias.axis = Bias::Axis::kM;
  const auto made = Describe(args, 900);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const GemmDesc& desc = *made;
  EXPECT_EQ(desc.arch, 900);
  EXPECT_EQ(desc.m, kM);
  EXPECT_EQ(desc.n, kN);
  EXPECT_EQ(desc.k, kK);
  EXPECT_EQ(desc.num, 1);
  EXPECT_EQ(desc.a.type, DataType::kFloat8_e4m3);
  EXPECT_EQ(desc.b.type, DataType::kFloat8_e4m3);
  EXPECT_EQ(desc.c.type, DataType::kFloat32);
  EXPECT_EQ(desc.d.type, DataType::kFloat32);
  EXPECT_EQ(desc.a.scale_type, DataType::kFloat32);
  EXPECT_EQ(desc.b.scale_type, DataType::kFloat32);
  EXPECT_EQ(desc.a.order, Order::kRowMajor);
  EXPECT_EQ(desc.b.order, Order::kColMajor);
  EXPECT_EQ(desc.a.scale_order, Order::kRowMajor);
  EXPECT_EQ(desc.b.scale_order, Order::kColMajor);
  EXPECT_EQ(desc.a.quant, (QuantDesc{QuantType::kK, 128}));
  EXPECT_EQ(desc.b.quant, (QuantDesc{QuantType::kB, 128}));
  EXPECT_EQ(desc.type_bias, DataType::kFloat32);
  EXPECT_EQ(desc.bias_axis, Bias::Axis::kM);
  EXPECT_EQ(desc.batch_dim, 1);
  EXPECT_EQ(desc.group_axis, -1);
  EXPECT_EQ(desc.sm_budget, 20);
  EXPECT_TRUE(desc.pdl);
  EXPECT_EQ(desc.accumulate, Accumulate::kFast);
  EXPECT_EQ(desc.determinism, Determinism::kRepeatable);
  EXPECT_EQ(ShapeOf(desc).x, kM);
  EXPECT_EQ(ShapeOf(desc).y, kN);
  EXPECT_EQ(ShapeOf(desc).z, kK);
  EXPECT_EQ(ShapeOf(desc).w, 1);
  EXPECT_EQ(BatchOf(desc), kN);
}

TEST(Describe, KnowsGroupsAndGathers) {
  const int table[3] = {};
  GemmArgs args = Dense();
  args.Adesc.offsets = args.Ddesc.offsets = table;
  args.Adesc.num = args.Bdesc.num = args.Ddesc.num = 2;
  args.Bdesc.batch_stride = args.Bdesc.ld * kN;
  auto desc = Describe(args, 0);
  ASSERT_TRUE(desc.ok());
  EXPECT_EQ(desc->a.striding, Striding::kBlocked);
  EXPECT_EQ(desc->b.striding, Striding::kFlat);
  EXPECT_EQ(desc->num, 2);
  EXPECT_EQ(desc->group_axis, 0);
  args.Adesc.idxs = table;
  desc = Describe(args, 0);
  EXPECT_EQ(desc->a.striding, Striding::kIndexed);
  EXPECT_EQ(desc->d.striding, Striding::kBlocked);
}

TEST(Describe, AlignmentIsOfPointerAndRowPitch) {
  const auto align_a = [](std::ptrdiff_t shift, std::int64_t ld) {
    GemmArgs args = Dense();
    args.A = Moved(args.A, shift);
    args.Adesc.ld = ld;
    return static_cast<int>(Describe(args, 0)->a.align);
  };
  EXPECT_EQ(align_a(0, 304), 16);
  EXPECT_EQ(align_a(32, 304), 16);
  EXPECT_EQ(align_a(8, 304), 8);
  EXPECT_EQ(align_a(4, 304), 4);
  EXPECT_EQ(align_a(2, 304), 2);
  EXPECT_EQ(align_a(0, 300), 8);
  EXPECT_EQ(align_a(0, 302), 4);
  EXPECT_EQ(align_a(0, 301), 2);
  EXPECT_EQ(align_a(8, 302), 4);

  // Each operand's class is its own; absent pointers count as aligned.
  GemmArgs args = Fp8();
  args.B = Moved(args.B, 1);
  args.U = Moved(args.U, 4);
  args.Vdesc.ld = 4;
  args.C = Moved(args.C, 8);
  args.D = nullptr;
  args.A = nullptr;
  const auto desc = Describe(args, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->a.align, 16);
  EXPECT_EQ(desc->b.align, 1);
  EXPECT_EQ(desc->a.scale_align, 4);
  EXPECT_EQ(desc->b.scale_align, 16);
  EXPECT_EQ(desc->c.align, 8);
  EXPECT_EQ(desc->d.align, 16);
}

TEST(Describe, PitchesAreClasses) {
  const auto pitch_a = [](int rows, std::int64_t ld) {
    GemmArgs args;
    args.Adesc = RowMajor(DataType::kBfloat16, rows, 64, ld);
    args.Bdesc = ColMajor(DataType::kBfloat16, 64, 32);
    args.Ddesc = RowMajor(DataType::kBfloat16, rows, 32);
    const auto desc = Describe(args, 0);
    EXPECT_TRUE(desc.ok()) << desc.status().ToString();
    return desc.ok() ? desc->a.pitch : Pitch::kShort;
  };
  constexpr std::int64_t kOne = 1;
  EXPECT_EQ(pitch_a(2, (kOne << 30) - 1), Pitch::kShort);
  EXPECT_EQ(pitch_a(2, kOne << 30), Pitch::kLong);
  EXPECT_EQ(pitch_a(2, (kOne << 39) - 1), Pitch::kLong);
  EXPECT_EQ(pitch_a(2, kOne << 39), Pitch::kFar);
  EXPECT_EQ(pitch_a(1, kOne << 50), Pitch::kShort) << "one row lies apart from nothing";

  GemmArgs args = Fp8();
  args.Udesc.ld = kOne << 29;
  args.Adesc.num = args.Bdesc.num = args.Ddesc.num = 1;
  const auto desc = Describe(args, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->a.scale_pitch, Pitch::kLong);
  EXPECT_EQ(desc->a.pitch, Pitch::kShort);
  EXPECT_THAT(ToString(*desc), HasSubstr("long pitches"));
  EXPECT_EQ(Transposed(*desc).b.scale_pitch, Pitch::kLong);

  GemmArgs batch;
  batch.Adesc = RowMajor(DataType::kBfloat16, 4, 64);
  batch.Bdesc = ColMajor(DataType::kBfloat16, 64, 32);
  batch.Ddesc = RowMajor(DataType::kBfloat16, 4, 32);
  for (MatrixLayout* layout : {&batch.Adesc, &batch.Bdesc, &batch.Ddesc}) {
    layout->num = 2;
    layout->batch_stride = 4096;
  }
  batch.Ddesc.batch_stride = kOne << 31;
  EXPECT_EQ(Describe(batch, 0)->d.pitch, Pitch::kLong);
}

TEST(Describe, EqualProblemsHaveEqualKeys) {
  const std::vector<std::function<void(GemmArgs&)>> same = {
      [](auto& a) { a.alpha = -3; },
      [](auto& a) { a.beta = 1; },
      [](auto& a) { a.A = Moved(a.A, 1 << 20); },
      [](auto& a) { a.D = nullptr; },
      [](auto& a) { a.Adesc.ld = 320; },
      [](auto& a) { a.operation.dispatch = DispatchPolicy::kMeasure; },
  };
  const GemmDesc key = *Describe(Fp8(), 0);
  for (std::size_t i = 0; i < same.size(); ++i) {
    GemmArgs args = Fp8();
    same[i](args);
    EXPECT_EQ(*Describe(args, 0), key) << i;
  }
  // With beta 0, C does not matter; without quantisation, nothing of the scales does.
  GemmArgs with_c = Dense(), without_c = Dense();
  with_c.beta = without_c.beta = 0;
  with_c.Cdesc.order = Order::kColMajor;
  without_c.C = nullptr;
  without_c.Cdesc = {};
  with_c.Udesc.pack = 3;
  with_c.Vdesc.order = Order::kRowMajor;
  EXPECT_EQ(*Describe(with_c, 0), *Describe(without_c, 0));
}

TEST(Describe, DifferentProblemsHaveDifferentKeys) {
  const std::vector<std::function<void(GemmArgs&)>> changes = {
      [](auto&) {},
      [](auto& a) { a.beta = 0; },
      [](auto& a) { a.Cdesc.type = DataType::kBfloat16; },
      [](auto& a) { a.Cdesc = ColMajor(DataType::kFloat32, kM, kN, 8); },
      [](auto& a) { a.C = Moved(a.C, 4); },
      [](auto& a) { a.A = Moved(a.A, 8); },
      [](auto& a) { a.B = Moved(a.B, 8); },
      [](auto& a) { a.D = Moved(a.D, 8); },
      [](auto& a) { a.U = Moved(a.U, 4); },
      [](auto& a) { a.Udesc.ld = std::int64_t{1} << 30; },
      [](auto& a) {
        a.A = Moved(a.A, std::ptrdiff_t{1} << 45), a.Adesc.ld = std::int64_t{1} << 39;
      },
      [](auto& a) {
        a.A = Moved(a.A, std::ptrdiff_t{1} << 45), a.Adesc.ld = std::int64_t{1} << 41;
      },
      [](auto& a) { a.V = Moved(a.V, 4); },
      [](auto& a) { a.Adesc = ColMajor(DataType::kFloat8_e4m3, kM, kK, 16); },
      [](auto& a) { a.Adesc.type = DataType::kBfloat16; },
      [](auto& a) { a.Bdesc = RowMajor(DataType::kFloat8_e4m3, kK, kN, 208); },
      [](auto& a) { a.Bdesc.type = DataType::kFloat16; },
      [](auto& a) { a.Ddesc.type = DataType::kBfloat16; },
      [](auto& a) { a.Ddesc = ColMajor(DataType::kFloat32, kM, kN, 8); },
      [](auto& a) { a.Udesc.type = DataType::kFloat8_ue8m0; },
      [](auto& a) { a.Vdesc.type = DataType::kFloat8_ue8m0; },
      [](auto& a) { a.Udesc = ColMajor(DataType::kFloat32, kM, 3, 8); },
      [](auto& a) { a.Vdesc = RowMajor(DataType::kFloat32, 3, 2, 4); },
      [](auto& a) { a.Bdesc = PackedLayout(a.Bdesc, *FindPackFormat(kPackPanels64)); },
      [](auto& a) { a.operation.bias = {}; },
      [](auto& a) { a.operation.bias.type = DataType::kBfloat16; },
      [](auto& a) { a.operation.bias.axis = Bias::Axis::kM; },
      [](auto& a) { a.operation.batch_dim = 1; },
      [](auto& a) { a.operation.sm_budget = 1; },
      [](auto& a) { a.operation.pdl = true; },
      [](auto& a) { a.operation.accumulate = Accumulate::kFast; },
      [](auto& a) { a.operation.determinism = Determinism::kBatchInvariant; },
  };
  std::vector<GemmDesc> keys;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    GemmArgs args = Fp8();
    args.Udesc.ld = 4;
    args.Vdesc.ld = 4;
    changes[i](args);
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << i << ": " << desc.status().ToString();
    for (std::size_t j = 0; j < keys.size(); ++j) EXPECT_NE(*desc, keys[j]) << i << " and " << j;
    keys.push_back(*desc);
  }
}

// D^T = B^T A^T over the same memory.
GemmArgs SwappedOperands(const GemmArgs& args) {
  GemmArgs t = args;
  std::swap(t.A, t.B);
  std::swap(t.U, t.V);
  t.Adesc = Transposed(args.Bdesc);
  t.Bdesc = Transposed(args.Adesc);
  if (args.Vdesc.type != DataType::kNull) t.Udesc = Transposed(args.Vdesc);
  if (args.Udesc.type != DataType::kNull) t.Vdesc = Transposed(args.Udesc);
  if (args.Vdesc.type == DataType::kNull) t.Udesc = {};
  if (args.Udesc.type == DataType::kNull) t.Vdesc = {};
  t.Cdesc = Transposed(args.Cdesc);
  t.Ddesc = Transposed(args.Ddesc);
  std::swap(t.operation.quant_a, t.operation.quant_b);
  t.operation.batch_dim = 1 - args.operation.batch_dim;
  t.operation.bias.axis =
      args.operation.bias.axis == Bias::Axis::kN ? Bias::Axis::kM : Bias::Axis::kN;
  return t;
}

// Three matrices of every operand.
GemmArgs InBatches(GemmArgs args) {
  for (MatrixLayout* layout :
       {&args.Adesc, &args.Bdesc, &args.Udesc, &args.Vdesc, &args.Cdesc, &args.Ddesc}) {
    if (layout->type == DataType::kNull) continue;
    layout->num = 3;
    layout->batch_stride = layout->ld * (layout->rows + layout->cols);
  }
  return args;
}

TEST(Transposed, IsTheKeyOfTheSwappedProblemAndItsOwnInverse) {
  std::mt19937 random(11);
  const auto one_in = [&](unsigned n) { return random() % n == 0; };
  int differing = 0;
  for (int round = 0; round < 2000; ++round) {
    GemmArgs args = one_in(2) ? Dense() : Fp8();
    const bool quantised = args.Udesc.type != DataType::kNull;
    if (quantised && one_in(3)) args.operation.quant_a = {}, args.U = nullptr, args.Udesc = {};
    if (quantised && one_in(3)) args.operation.quant_b = {}, args.V = nullptr, args.Vdesc = {};
    if (one_in(2)) args.Adesc = ColMajor(args.Adesc.type, kM, kK, 16);
    if (one_in(2)) args.Bdesc = RowMajor(args.Bdesc.type, kK, kN);
    if (one_in(2)) args.Ddesc = ColMajor(DataType::kBfloat16, kM, kN, 24);
    if (one_in(2)) args.Cdesc = ColMajor(DataType::kFloat32, kM, kN, 24);
    if (one_in(2)) args.beta = 0;
    if (one_in(3)) args.operation.bias = {};
    if (one_in(3)) args.operation.bias.axis = Bias::Axis::kM;
    if (one_in(2)) args.operation.batch_dim = 1;
    if (one_in(2)) args.A = Moved(args.A, 4);
    if (one_in(4)) args = InBatches(args);
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    const auto swapped = Describe(SwappedOperands(args), 0);
    ASSERT_TRUE(swapped.ok()) << swapped.status().ToString();
    ASSERT_EQ(Transposed(*desc), *swapped) << ToString(*desc);
    ASSERT_EQ(Transposed(Transposed(*desc)), *desc) << ToString(*desc);
    differing += Transposed(*desc) != *desc;
  }
  EXPECT_EQ(differing, 2000);
}

TEST(Transposed, LayoutIsTheSameMemory) {
  const MatrixLayout layout = RowMajor(DataType::kFloat16, 3, 5, 8);
  const MatrixLayout t = Transposed(layout);
  EXPECT_EQ(t.order, Order::kColMajor);
  EXPECT_EQ(t.rows, 5);
  EXPECT_EQ(t.cols, 3);
  EXPECT_EQ(t.ld, 8);
  EXPECT_EQ(ByteExtent(t), ByteExtent(layout));
  EXPECT_EQ(ByteExtent(layout), 2 * (2 * 8 + 5));
}

TEST(ToString, DescIsOneLineOfWhatIsUnusual) {
  GemmArgs plain;
  plain.Adesc = RowMajor(DataType::kBfloat16, 16, 4096);
  plain.Bdesc = ColMajor(DataType::kBfloat16, 4096, 1024);
  plain.Ddesc = RowMajor(DataType::kBfloat16, 16, 1024);
  EXPECT_EQ(ToString(*Describe(plain, 0)), "m=16 n=1024 k=4096 bfloat16 x bfloat16 -> bfloat16");

  GemmArgs args = Fp8();
  args.operation.pdl = true;
  args.operation.sm_budget = 8;
  args.operation.determinism = Determinism::kRepeatable;
  args.A = Moved(args.A, 2);
  args.Bdesc = RowMajor(DataType::kFloat8_e4m3, kK, kN, 208);
  EXPECT_THAT(ToString(*Describe(args, 0)),
              AllOf(HasSubstr("m=5 n=200 k=300 float8_e4m3 x float8_e4m3 -> float32"),
                    HasSubstr("U: float32 1x128"), HasSubstr("V: float32 128x128"),
                    HasSubstr("+ C float32"), HasSubstr("+ bias float32 per column"),
                    HasSubstr("B row-major"), HasSubstr("aligned to 2"), HasSubstr("sm_budget=8"),
                    HasSubstr("pdl"), HasSubstr("repeatable")));
}

}  // namespace
}  // namespace culet
