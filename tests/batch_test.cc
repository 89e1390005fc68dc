// Strided batches, zero points, elements of 4 bits and UE8M0 scales: their checks, and the
// reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/float_types.h"
#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/registry.h"
#include "culet/scratch.h"

namespace culet {
namespace {

using testing::HasSubstr;

constexpr DataType kF32 = DataType::kFloat32;

class BatchTest : public testing::Test {
 protected:
  void Launch(const GemmArgs& args) {
    const auto desc = Describe(args, 0);
    ASSERT_TRUE(desc.ok()) << desc.status().ToString();
    ASSERT_TRUE(reference_->is_feasible(*desc)) << reference_->why(*desc).reason();
    Workspace workspace;
    const Status status = LaunchKernel(*reference_, args, 0, 1, workspace, nullptr);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  void ExpectReferencePasses(const GemmDesc& desc) {
    for (const Fill fill : {Fill::kIntegers, Fill::kNormal, Fill::kExtreme}) {
      ScratchOptions options;
      options.fill = fill;
      options.gap_bytes = 40;
      auto scratch = ScratchProblem::Create(HostDevice(), desc, options);
      ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
      ASSERT_TRUE(scratch->PoisonOutput().ok());
      Launch(scratch->args());
      const auto report = scratch->Compare();
      ASSERT_TRUE(report.ok());
      EXPECT_TRUE(report->ok()) << ToString(desc) << ": " << report->ToString();
      EXPECT_EQ(report->checked, static_cast<std::size_t>(desc.m) * desc.n * desc.num);
    }
  }

  Registry registry_ = Registry::Builtin(HostDevice());
  Kernel* reference_ = registry_.Find("cpu_reference");
};

MatrixLayout Batched(MatrixLayout layout, int num, std::int64_t stride) {
  layout.num = num;
  layout.batch_stride = stride;
  return layout;
}

// Three products of (4, 5) by (5, 6); D's matrices lie side by side in rows of 20 elements.
struct Three {
  std::vector<float> a = std::vector<float>(3 * 24), b = std::vector<float>(3 * 30),
                     d = std::vector<float>(4 * 20);
  GemmArgs args;
  Three() {
    std::mt19937 random(3);
    for (auto* values : {&a, &b}) {
      for (float& value : *values) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    }
    args.A = a.data();
    args.Adesc = Batched(RowMajor(kF32, 4, 5), 3, 24);
    args.B = b.data();
    args.Bdesc = Batched(ColMajor(kF32, 5, 6), 3, 30);
    args.D = d.data();
    args.Ddesc = Batched(RowMajor(kF32, 4, 6, 20), 3, 6);
  }
};

TEST_F(BatchTest, IsItsMatricesOneByOne) {
  for (const bool shared : {false, true}) {
    Three p;
    if (shared) p.args.Bdesc = ColMajor(kF32, 5, 6);
    Launch(p.args);
    for (int i = 0; i < 3; ++i) {
      std::vector<float> d(24);
      GemmArgs one = p.args;
      one.A = p.a.data() + 24 * i;
      one.Adesc = RowMajor(kF32, 4, 5);
      one.B = p.b.data() + (shared ? 0 : 30 * i);
      one.Bdesc = ColMajor(kF32, 5, 6);
      one.D = d.data();
      one.Ddesc = RowMajor(kF32, 4, 6);
      Launch(one);
      for (int row = 0; row < 4; ++row) {
        for (int col = 0; col < 6; ++col) {
          EXPECT_EQ(p.d[row * 20 + 6 * i + col], d[row * 6 + col]) << i << row << col;
        }
      }
    }
  }
}

TEST_F(BatchTest, EveryFaultIsNamed) {
  const auto refused = [&](const std::function<void(GemmArgs&)>& change) {
    Three p;
    change(p.args);
    return Describe(p.args, 0).status().message();
  };
  EXPECT_THAT(refused([](auto& a) { a.Adesc.num = 2; }), HasSubstr("Adesc.num is 2, but D has 3"));
  EXPECT_THAT(refused([](auto& a) { a.Bdesc.batch_stride = 0; }),
              HasSubstr("Bdesc.num is 3, but batch_stride is 0"));
  EXPECT_THAT(refused([](auto& a) { a.Adesc.batch_stride = -24; }), HasSubstr("must be >= 0"));
  EXPECT_THAT(refused([](auto& a) { a.Bdesc.num = 1; }), HasSubstr("for one matrix"));
  EXPECT_THAT(refused([](auto& a) { a.Ddesc.batch_stride = 5; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](auto& a) { a.Ddesc.batch_stride = 8; }), HasSubstr("overlap"));
  EXPECT_THAT(refused([](auto& a) { a.D = const_cast<void*>(a.A); }), HasSubstr("overlaps A"));
  Three p;
  const auto desc = Describe(p.args, 0);
  ASSERT_TRUE(desc.ok()) << desc.status().ToString();
  EXPECT_EQ(desc->num, 3);
  EXPECT_EQ(desc->a.num, 3);
  EXPECT_EQ(desc->group_axis, -1);
  EXPECT_EQ(desc->d.align, 8) << "the step from matrix to matrix counts";
  EXPECT_THAT(ToString(*desc), HasSubstr("num=3"));
  for (const Kernel* kernel : registry_.kernels()) {
    EXPECT_EQ(kernel->is_feasible(*desc), kernel == reference_) << kernel->id();
  }
}

GemmDesc Plain(int num) {
  GemmDesc desc;
  desc.a.type = desc.b.type = desc.d.type = DataType::kBfloat16;
  desc.m = 7;
  desc.n = 33;
  desc.k = 40;
  desc.num = desc.a.num = desc.b.num = desc.d.num = num;
  return desc;
}

TEST_F(BatchTest, SyntheticBatchesAreCompared) {
  GemmDesc desc = Plain(3);
  ExpectReferencePasses(desc);
  desc.d.order = Order::kColMajor;
  desc.c.type = kF32;
  desc.c.num = 3;
  ExpectReferencePasses(desc);
  desc.b.num = desc.c.num = 1;
  ExpectReferencePasses(desc);
  EXPECT_EQ(MinimumBytes(desc), 3 * 7 * 40 * 2 + 33 * 40 * 2 + 3 * 7 * 33 * 2 + 7 * 33 * 4);
}

TEST_F(BatchTest, ScalesOfEveryTypeAndZeroPoints) {
  GemmDesc desc = Plain(2);
  desc.a.type = desc.b.type = DataType::kFloat8_e4m3;
  desc.a.quant = {QuantType::kK, 16};
  desc.b.quant = {QuantType::kRow};
  for (const DataType type :
       {DataType::kFloat8_ue8m0, DataType::kFloat16, DataType::kFloat8_e4m3}) {
    desc.a.scale_type = desc.b.scale_type = type;
    ExpectReferencePasses(desc);
    desc.a.zero_type = DataType::kInt4;
    desc.b.zero_type = DataType::kFloat16;
    ExpectReferencePasses(desc);
    for (const Kernel* kernel : registry_.kernels()) {
      EXPECT_EQ(kernel->is_feasible(desc), kernel == reference_) << kernel->id();
    }
    desc.a.zero_type = desc.b.zero_type = DataType::kNull;
  }
}

TEST_F(BatchTest, ElementsOfFourBits) {
  for (const DataType type : {DataType::kInt4, DataType::kUint4, DataType::kFloat4_e2m1}) {
    EXPECT_EQ(BitsOf(type), 4);
    EXPECT_EQ(BytesOf(type, 5), 3);
    GemmDesc desc = Plain(1);
    desc.b.type = type;
    desc.b.quant = {QuantType::kK, 32};
    desc.b.scale_type = DataType::kBfloat16;
    desc.b.scale_order = Order::kRowMajor;
    for (const Order order : {Order::kRowMajor, Order::kColMajor}) {
      desc.b.order = order;
      ExpectReferencePasses(desc);
    }
    EXPECT_EQ(MinimumBytes(desc), 7 * 40 * 2 + 33 * 40 / 2 + 33 * 2 * 2 + 7 * 33 * 2);
    for (const Kernel* kernel : registry_.kernels()) {
      const bool of_u4 = (type == DataType::kUint4 && kernel->id() == "cpu_simd/u4") ||
                         (type == DataType::kFloat4_e2m1 && kernel->id() == "cpu_simd/e2m1");
      EXPECT_EQ(kernel->is_feasible(desc), kernel == reference_ || of_u4) << kernel->id();
    }
  }
  // -8 and 7 in one byte; 15; 6 and -0.5.
  const std::uint8_t byte = 0x78, all = 0xff, e2m1 = 0x97;
  EXPECT_EQ(LoadAsDouble(&byte, DataType::kInt4, 0), -8);
  EXPECT_EQ(LoadAsDouble(&byte, DataType::kInt4, 1), 7);
  EXPECT_EQ(LoadAsDouble(&all, DataType::kUint4, 1), 15);
  EXPECT_EQ(LoadAsDouble(&e2m1, DataType::kFloat4_e2m1, 0), 6);
  EXPECT_EQ(LoadAsDouble(&e2m1, DataType::kFloat4_e2m1, 1), -0.5);
  EXPECT_EQ(RoundTo(DataType::kFloat4_e2m1, 2.5), 2);  // ties to even
  EXPECT_EQ(RoundTo(DataType::kInt4, 100), 7);
  EXPECT_EQ(RoundTo(DataType::kFloat8_ue8m0, 0.7), 0.5);
}

TEST_F(BatchTest, FaultsOfZeroPointsAndOfFourBits) {
  const auto refused = [&](const std::function<void(GemmArgs&)>& change) {
    static const std::uint8_t zeros[64] = {};
    static float memory[4096];
    GemmArgs args;
    args.A = memory;
    args.Adesc = RowMajor(kF32, 4, 8);
    args.B = memory + 1024;
    args.Bdesc = ColMajor(DataType::kInt4, 8, 6);
    args.V = memory + 2048;
    args.Vdesc = RowMajor(kF32, 1, 6);
    args.operation.quant_b = {QuantType::kRow};
    args.operation.zero_b = {zeros, DataType::kInt4};
    args.D = memory + 3072;
    args.Ddesc = RowMajor(kF32, 4, 6);
    change(args);
    return Describe(args, 0).status().message();
  };
  EXPECT_EQ(refused([](auto&) {}), "");
  EXPECT_THAT(refused([](auto& a) { a.Bdesc.ld = 9; }), HasSubstr("make both even"));
  EXPECT_THAT(refused([](auto& a) { a.Vdesc.ld = 7; }), HasSubstr("zero_b"));
  EXPECT_THAT(refused([](auto& a) { a.operation.zero_b.data = nullptr; }),
              HasSubstr("zero_b.data is null"));
  EXPECT_THAT(refused([](auto& a) { a.operation.zero_b.type = DataType::kNull; }),
              HasSubstr("zero_b.type is none"));
  EXPECT_THAT(refused([](auto& a) { a.operation.zero_b.type = DataType::kInt32; }),
              HasSubstr("zero_b.type is int32; zero points are"));
  EXPECT_THAT(refused([](auto& a) {
                static const int table[2] = {};
                a.Vdesc.offsets = table;
              }),
              HasSubstr("Vdesc has offsets or idxs"));
  EXPECT_THAT(refused([](auto& a) { a.operation.zero_a = a.operation.zero_b; }),
              HasSubstr("quant_a.type is none; zero points go with scales"));
  EXPECT_THAT(refused([](auto& a) { a.Vdesc.type = DataType::kInt4; }),
              HasSubstr("scales are float32"));
  EXPECT_THAT(refused([](auto& a) { a.operation.zero_b.data = a.D; }),
              HasSubstr("overlaps zero_b"));
}

}  // namespace
}  // namespace culet
