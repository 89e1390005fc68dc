// Products as cuBLASLt's descriptors, which a fake library shows; and where scales go.
#include "kernels/cublaslt/lt_problem.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "fake_cublaslt.h"
#include "kernels/cublaslt/lt_scales.h"

namespace culet::lt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr DataType kF32 = DataType::kFloat32, kF16 = DataType::kFloat16,
                   kBf16 = DataType::kBfloat16, kE4m3 = DataType::kFloat8_e4m3;

Library& FakeLibrary() {
  static const auto library = [] {
    const std::vector<Place> places = {{CULET_FAKE_CUBLASLT, "a fake", false}};
    return Library::Open(places);
  }();
  return **library;
}

const Format& FormatOf(std::string_view id) {
  for (const Format& format : Formats()) {
    if (format.id == id) return format;
  }
  ADD_FAILURE() << id;
  return Formats()[0];
}

// m 48, n 64, k 256; A row-major, B column-major, D row-major.
GemmDesc Product(const Format& format, DataType d) {
  GemmDesc p;
  p.arch = 900;
  p.a.type = p.b.type = format.type;
  p.d.type = d;
  p.a.quant = format.scaling.quant_a;
  p.b.quant = format.scaling.quant_b;
  if (IsScaled(format)) p.a.scale_type = p.b.scale_type = kF32;
  p.m = 48, p.n = 64, p.k = 256;
  return p;
}

std::vector<std::uint64_t> WordsOf(const Layout& layout) {
  return {layout.data[0], layout.data[1], layout.data[2], layout.data[3]};
}

std::uint64_t WordOf(const Operation& operation, int attribute) {
  return operation.data[FakeWord(attribute)];
}

TEST(LtProblem, RowMajorOutputsAreTransposedProducts) {
  const Format& format = FormatOf("cublaslt/bf16");
  const GemmDesc p = Product(format, kBf16);
  const auto made = MakeProblem(FakeLibrary(), format, p, {300, 264, 0, 72});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_TRUE(made->swapped);
  EXPECT_THAT(WordsOf(made->left), ElementsAre(kR16BF, 256u, 64u, 264u)) << "B as it lies";
  EXPECT_THAT(WordsOf(made->right), ElementsAre(kR16BF, 256u, 48u, 300u)) << "A as it lies";
  EXPECT_THAT(WordsOf(made->d), ElementsAre(kR16BF, 64u, 48u, 72u));
  EXPECT_THAT(WordsOf(made->c), ElementsAre(kR16BF, 64u, 48u, 72u)) << "no C: like D";
  EXPECT_EQ(WordOf(made->operation, 0), kCompute32F);
  EXPECT_EQ(WordOf(made->operation, kTransA), kTransposed);
  EXPECT_EQ(WordOf(made->operation, kTransB), kPlain);
  EXPECT_EQ(WordOf(made->operation, kEpilogue), 0u) << "the default";
}

// What the library computes from the descriptors, done on paper: op(left) is rows(D) x k.
TEST(LtProblem, EveryOrderNamesTheSameProduct) {
  const Format& format = FormatOf("cublaslt/f16");
  for (int orders = 0; orders < 8; ++orders) {
    GemmDesc p = Product(format, kF32);
    p.a.order = orders & 1 ? Order::kRowMajor : Order::kColMajor;
    p.b.order = orders & 2 ? Order::kRowMajor : Order::kColMajor;
    p.c.order = p.d.order = orders & 4 ? Order::kRowMajor : Order::kColMajor;
    const auto made = MakeProblem(FakeLibrary(), format, p, PackedStrides(p));
    ASSERT_TRUE(made.ok());
    const auto rows_cols = [](const Layout& layout, bool transposed) {
      return transposed ? std::pair(layout.data[2], layout.data[1])
                        : std::pair(layout.data[1], layout.data[2]);
    };
    const auto left =
        rows_cols(made->left, WordOf(made->operation, kTransA) == std::uint64_t{kTransposed});
    const auto right =
        rows_cols(made->right, WordOf(made->operation, kTransB) == std::uint64_t{kTransposed});
    EXPECT_EQ(left, std::pair(made->d.data[1], std::uint64_t{256})) << orders;
    EXPECT_EQ(right, std::pair(std::uint64_t{256}, made->d.data[2])) << orders;
    EXPECT_EQ(made->swapped, p.d.order == Order::kRowMajor);
    EXPECT_THAT(WordsOf(made->d),
                ElementsAre(kR32F, made->swapped ? 64u : 48u, made->swapped ? 48u : 64u,
                            made->swapped ? 64u : 48u));
    for (const Layout& layout : {made->left, made->right, made->d}) {
      EXPECT_EQ(layout.data[3], layout.data[1]) << "packed";
    }
  }
}

TEST(LtProblem, BiasAndCAreSaid) {
  const Format& format = FormatOf("cublaslt/bf16");
  GemmDesc p = Product(format, kF32);
  p.c.type = p.type_bias = kF32;
  auto made = MakeProblem(FakeLibrary(), format, p, {256, 256, 80, 64});
  ASSERT_TRUE(made.ok());
  EXPECT_THAT(WordsOf(made->c), ElementsAre(kR32F, 64u, 48u, 80u));
  EXPECT_EQ(WordOf(made->operation, kEpilogue), kEpilogueBias);
  EXPECT_EQ(WordOf(made->operation, kBiasDataType), kR32F);
  EXPECT_NE(WordOf(made->operation, kBiasPointer), 0u) << "null would mean none";
  Pointers pointers;
  const float bias[4] = {};
  pointers.bias = bias;
  EXPECT_EQ(SetPointers(FakeLibrary().functions(), made->swapped, pointers, &made->operation), 0);
  EXPECT_EQ(WordOf(made->operation, kBiasPointer), reinterpret_cast<std::uintptr_t>(bias));
}

TEST(LtProblem, ScaleModesFollowTheirOperands) {
  const struct {
    const char* id;
    ScaleMode a, b;
  } kCases[] = {{"cublaslt/fp8_tensor", kScalar32F, kScalar32F},
                {"cublaslt/fp8_row", kOuterVec32F, kOuterVec32F},
                {"cublaslt/fp8_block", kVec128_32F, kBlk128x128_32F}};
  for (const auto& it : kCases) {
    const Format& format = FormatOf(it.id);
    for (const Order order : {Order::kRowMajor, Order::kColMajor}) {
      GemmDesc p = Product(format, kBf16);
      p.c.order = p.d.order = order;
      const auto made = MakeProblem(FakeLibrary(), format, p, PackedStrides(p));
      ASSERT_TRUE(made.ok());
      Operation operation = made->operation;
      EXPECT_EQ(WordOf(operation, kTransA), kTransposed) << "FP8 is TN";
      EXPECT_EQ(WordOf(operation, kTransB), kPlain);
      EXPECT_EQ(WordOf(operation, made->swapped ? kBScaleMode : kAScaleMode), it.a) << it.id;
      EXPECT_EQ(WordOf(operation, made->swapped ? kAScaleMode : kBScaleMode), it.b) << it.id;
      const float u = 0, v = 0;
      Pointers pointers;
      pointers.scale_a = &u;
      pointers.scale_b = &v;
      EXPECT_EQ(SetPointers(FakeLibrary().functions(), made->swapped, pointers, &operation), 0);
      EXPECT_EQ(WordOf(operation, made->swapped ? kBScalePointer : kAScalePointer),
                reinterpret_cast<std::uintptr_t>(&u));
      EXPECT_EQ(WordOf(operation, made->swapped ? kAScalePointer : kBScalePointer),
                reinterpret_cast<std::uintptr_t>(&v));
    }
  }
}

TEST(LtProblem, FastAccumulationIsForFp8AndOnlyWhenAsked) {
  for (const Format& format : Formats()) {
    for (const Accumulate accumulate : {Accumulate::kPromoted, Accumulate::kFast}) {
      GemmDesc p = Product(format, kF32);
      p.accumulate = accumulate;
      const auto made = MakeProblem(FakeLibrary(), format, p, PackedStrides(p));
      ASSERT_TRUE(made.ok()) << format.id;
      const bool fast = format.type == kE4m3 && format.scaling.mode_a != kVec128_32F &&
                        accumulate == Accumulate::kFast;
      EXPECT_EQ(WordOf(made->operation, kFastAccum), fast ? 1u : 0u) << format.id;
    }
  }
}

TEST(LtProblem, AFailureCarriesTheLibrarysWords) {
  const Format& format = FormatOf("cublaslt/fp8_block");
  const GemmDesc p = Product(format, kBf16);
  using Get = FakeState* (*)();
  const auto fake =
      reinterpret_cast<Get>(dlsym(dlopen(CULET_FAKE_CUBLASLT, RTLD_NOW), "culet_fake_cublaslt"))();
  fake->refused_attribute = kBScaleMode;
  const auto made = MakeProblem(FakeLibrary(), format, p, PackedStrides(p));
  fake->refused_attribute = -1;
  EXPECT_EQ(made.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(made.status().message(),
              HasSubstr("SetAttribute: status 15, the fake does not support it"));
}

TEST(LtProblem, TheSearchIsBoundedTheSameWayAlways) {
  GemmDesc p = Product(FormatOf("cublaslt/bf16"), kBf16);
  p.a.align = 2, p.b.align = 4, p.d.align = 8;
  const auto word = [](const Preference& preference, int attribute) {
    return preference.data[attribute - 1];
  };
  auto made = MakePreference(FakeLibrary(), p);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(word(*made, kMaxWorkspaceBytes), 32u << 20);
  EXPECT_EQ(word(*made, kReductionSchemeMask), 2u);
  EXPECT_EQ(word(*made, kMinAlignmentA), 4u) << "the left operand is B";
  EXPECT_EQ(word(*made, kMinAlignmentB), 2u);
  EXPECT_EQ(word(*made, kMinAlignmentC), 8u) << "no C: D's";
  EXPECT_EQ(word(*made, kMinAlignmentD), 8u);
  p.c.type = kBf16, p.c.align = 2, p.c.order = p.d.order = Order::kColMajor;
  made = MakePreference(FakeLibrary(), p);
  EXPECT_EQ(word(*made, kMinAlignmentA), 2u);
  EXPECT_EQ(word(*made, kMinAlignmentB), 4u);
  EXPECT_EQ(word(*made, kMinAlignmentC), 2u);
}

TEST(LtProblem, PackedStridesKeepTheAlignment) {
  GemmDesc p = Product(FormatOf("cublaslt/bf16"), kBf16);
  p.k = 33;
  EXPECT_EQ(PackedStrides(p).a, 40);
  p.a.align = 2;
  EXPECT_EQ(PackedStrides(p).a, 33);
  EXPECT_EQ(PackedStrides(p).c, 0);
  p.b.order = Order::kRowMajor;
  EXPECT_EQ(PackedStrides(p).b, 64);
}

struct Refusal {
  const char* id;
  void (*change)(GemmDesc&);
  const char* reason;
};

TEST(LtProblem, RefusesWhatTheManualExcludes) {
  const Refusal kRefusals[] = {
      {"cublaslt/bf16", [](GemmDesc& p) { p.sm_budget = 16; }, "budget"},
      {"cublaslt/bf16", [](GemmDesc& p) { p.d.type = kF16; }, "type of A or in F32"},
      {"cublaslt/bf16", [](GemmDesc& p) { p.d.type = kE4m3; }, "BF16, F16 or F32"},
      {"cublaslt/f32", [](GemmDesc& p) { p.d.type = kBf16; }, "in F32"},
      {"cublaslt/bf16", [](GemmDesc& p) { p.c.type = kF32; }, "takes C"},
      {"cublaslt/bf16", [](GemmDesc& p) { p.c.type = kBf16, p.c.order = Order::kColMajor; },
       "order of D"},
      {"cublaslt/bf16", [](GemmDesc& p) { p.type_bias = kBf16; }, "rounded before"},
      {"cublaslt/bf16", [](GemmDesc& p) { p.d.type = kF32, p.type_bias = kBf16; },
       "bias of D's type"},
      {"cublaslt/bf16",
       [](GemmDesc& p) { p.d.type = kF32, p.type_bias = kF32, p.bias_axis = Bias::Axis::kM; },
       "contiguous direction"},
      {"cublaslt/fp8_row", [](GemmDesc& p) { p.a.order = Order::kColMajor; }, "along K"},
      {"cublaslt/fp8_row", [](GemmDesc& p) { p.b.order = Order::kRowMajor; }, "along K"},
      {"cublaslt/fp8_row", [](GemmDesc& p) { p.b.align = 8; }, "16 bytes"},
      {"cublaslt/fp8_row", [](GemmDesc& p) { p.c.type = kBf16, p.c.align = 8; }, "16 bytes"},
      {"cublaslt/fp8_tensor", [](GemmDesc& p) { p.k = 264; }, "multiples of 16"},
      {"cublaslt/fp8_tensor", [](GemmDesc& p) { p.n = 60; }, "multiples of 16"},
      {"cublaslt/fp8_tensor", [](GemmDesc& p) { p.a.scale_type = kBf16; }, "FP32 scales"},
      {"cublaslt/fp8_block", [](GemmDesc& p) { p.b.scale_type = DataType::kFloat8_ue8m0; },
       "FP32 scales"},
      {"cublaslt/fp8_block", [](GemmDesc& p) { p.m = 47; }, "multiples of 4"},
  };
  for (const Refusal& it : kRefusals) {
    const Format& format = FormatOf(it.id);
    GemmDesc p = Product(format, format.type == kF32 ? kF32 : kBf16);
    EXPECT_TRUE(WhyNot(format, p).ok()) << it.id << WhyNot(format, p).reason();
    it.change(p);
    EXPECT_THAT(WhyNot(format, p).reason(), HasSubstr(it.reason)) << it.id;
  }
  GemmDesc row = Product(FormatOf("cublaslt/fp8_row"), kF32);
  row.m = 47, row.type_bias = kBf16;
  EXPECT_TRUE(WhyNot(FormatOf("cublaslt/fp8_row"), row).ok()) << "m is free";
}

TEST(LtScales, OfBlocksLieAsTheLibraryReadsThem) {
  const Format& format = FormatOf("cublaslt/fp8_block");
  GemmDesc p = Product(format, kBf16);
  p.m = 52, p.n = 264, p.k = 656;  // 6 blocks along K, 3 along N
  const void* const aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
  // A quantiser's order: the blocks of a row one after the other.
  Scales scales = ScalesOf(format, p, RowMajor(kF32, 52, 6), ColMajor(kF32, 6, 3));
  EXPECT_EQ(std::pair(scales.a.slow, scales.a.fast), std::pair(6, 52));
  EXPECT_EQ(std::pair(scales.a.slow_stride, scales.a.fast_stride),
            std::pair(std::int64_t{1}, std::int64_t{6}));
  EXPECT_EQ(scales.a.pitch, 52);
  EXPECT_FALSE(scales.a.InPlace(aligned));
  EXPECT_EQ(std::pair(scales.b.slow, scales.b.fast), std::pair(3, 6));
  EXPECT_EQ(std::pair(scales.b.slow_stride, scales.b.fast_stride),
            std::pair(std::int64_t{6}, std::int64_t{1}));
  EXPECT_EQ(scales.b.pitch, 8) << "a multiple of four";
  EXPECT_FALSE(scales.b.InPlace(aligned));
  EXPECT_EQ(scales.offset_b(), 1280u) << "6 * 52 * 4 bytes, then to 256";
  EXPECT_EQ(scales.bytes(), 1280u + 256u);

  // The library's own order.
  p.k = 512;
  scales = ScalesOf(format, p, ColMajor(kF32, 52, 4), ColMajor(kF32, 4, 3));
  EXPECT_TRUE(scales.a.InPlace(aligned));
  EXPECT_TRUE(scales.b.InPlace(aligned));
  EXPECT_FALSE(scales.a.InPlace(reinterpret_cast<const void*>(std::uintptr_t{260})));
  scales = ScalesOf(format, p, ColMajor(kF32, 52, 4, 56), RowMajor(kF32, 4, 3));
  EXPECT_FALSE(scales.a.InPlace(aligned)) << "a gap between columns";
  EXPECT_FALSE(scales.b.InPlace(aligned)) << "the other order";
  EXPECT_EQ(std::pair(scales.b.slow_stride, scales.b.fast_stride),
            std::pair(std::int64_t{1}, std::int64_t{3}));
}

TEST(LtScales, OfRowsAreVectorsAndOfTensorsOneNumber) {
  const Format& row = FormatOf("cublaslt/fp8_row");
  GemmDesc p = Product(row, kBf16);
  const void* const aligned = reinterpret_cast<const void*>(std::uintptr_t{256});
  Scales scales = ScalesOf(row, p, RowMajor(kF32, 48, 1), ColMajor(kF32, 1, 64));
  EXPECT_EQ(std::pair(scales.a.slow, scales.a.fast), std::pair(1, 48));
  EXPECT_EQ(std::pair(scales.b.slow, scales.b.fast), std::pair(1, 64));
  EXPECT_TRUE(scales.a.InPlace(aligned));
  EXPECT_TRUE(scales.b.InPlace(aligned));
  scales = ScalesOf(row, p, ColMajor(kF32, 48, 1, 99), RowMajor(kF32, 1, 64, 99));
  EXPECT_TRUE(scales.a.InPlace(aligned)) << "one line, whatever lies behind it";
  EXPECT_TRUE(scales.b.InPlace(aligned));
  scales = ScalesOf(row, p, RowMajor(kF32, 48, 1, 3), ColMajor(kF32, 1, 64, 2));
  EXPECT_EQ(scales.a.fast_stride, 3);
  EXPECT_FALSE(scales.a.InPlace(aligned));
  EXPECT_FALSE(scales.b.InPlace(aligned));

  const Format& tensor = FormatOf("cublaslt/fp8_tensor");
  p = Product(tensor, kBf16);
  scales = ScalesOf(tensor, p, RowMajor(kF32, 1, 1), RowMajor(kF32, 1, 1));
  EXPECT_EQ(scales.bytes(), 512u);
  const auto* const beside = static_cast<const char*>(aligned) + 4;
  EXPECT_TRUE(scales.a.InPlace(aligned));
  EXPECT_FALSE(scales.a.InPlace(beside));
  EXPECT_FALSE(scales.b.InPlace(beside));
}

}  // namespace
}  // namespace culet::lt
