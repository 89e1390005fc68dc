// Packed weights: one packed weight serves every M, faults in one are reported, and nothing is lost
// on the way there and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/packing.h"
#include "fake_kernel.h"
#include "verify/check.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kGuard = 64;

GemmDesc Packed(Format format, int m, int n, int k) {
  GemmDesc desc = *MakeDesc(format, m, n, k, /*arch=*/0);
  desc.b.pack = kPackPanels64;
  return desc;
}

std::vector<std::byte> Bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 % 251);
  return bytes;
}

class PackingTest : public ::testing::Test {
 protected:
  Gemm gemm_ = *Gemm::Create();
};

TEST_F(PackingTest, ThereAndBackLosesNothing) {
  for (const DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8_e4m3}) {
    for (const auto& [k, n] : {std::pair(1, 1), {3, 63}, {5, 64}, {7, 65}, {130, 200}}) {
      for (const bool by_row : {true, false}) {
        const MatrixLayout plain =
            by_row ? RowMajor(type, k, n, n + 3) : ColMajor(type, k, n, k + 5);
        const auto lines = static_cast<std::size_t>(by_row ? k : n);
        const auto weight = Bytes(lines * static_cast<std::size_t>(plain.ld) * SizeOf(type));
        const auto size = gemm_.PackedSize(plain, kPackPanels64);
        ASSERT_TRUE(size.ok()) << size.status().ToString();
        EXPECT_EQ(*size, static_cast<std::size_t>((n + 63) / 64 * 64 * k) * SizeOf(type));
        std::vector<std::byte> packed(*size + kGuard, std::byte{0xee});
        const auto layout = gemm_.Pack(weight.data(), plain, kPackPanels64, packed.data(), *size);
        ASSERT_TRUE(layout.ok()) << layout.status().ToString();
        EXPECT_EQ(layout->pack, kPackPanels64);
        EXPECT_TRUE(std::all_of(packed.end() - kGuard, packed.end(),
                                [](std::byte b) { return b == std::byte{0xee}; }));
        // Element (k, n), as the format's name says.
        const std::size_t at = (static_cast<std::size_t>((n - 1) / 64 * k + k - 1) * 64 +
                                static_cast<std::size_t>((n - 1) % 64)) *
                               SizeOf(type);
        const std::size_t from = static_cast<std::size_t>(by_row ? (k - 1) * plain.ld + n - 1
                                                                 : (n - 1) * plain.ld + k - 1) *
                                 SizeOf(type);
        EXPECT_EQ(std::memcmp(packed.data() + at, weight.data() + from, SizeOf(type)), 0);
        auto back = weight;
        std::ranges::fill(back, std::byte{0});
        ASSERT_TRUE(gemm_.Unpack(packed.data(), *layout, back.data(), plain).ok());
        // The gaps between lines were not touched.
        for (std::size_t line = 0; line < lines; ++line) {
          const std::size_t begin = line * static_cast<std::size_t>(plain.ld) * SizeOf(type);
          const std::size_t length = static_cast<std::size_t>(by_row ? n : k) * SizeOf(type);
          EXPECT_EQ(std::memcmp(back.data() + begin, weight.data() + begin, length), 0);
          if (line + 1 < lines) {
            EXPECT_EQ(back[begin + length], std::byte{0});
          }
        }
      }
    }
  }
}

// Through the conformance suite's own checks: integers, normal data, extremes, poison and guards.
TEST_F(PackingTest, KernelsThatReadItAreRight) {
  int checked = 0;
  for (const Format format : {Format::kF32, Format::kF16, Format::kBf16, Format::kFp8Block}) {
    for (const auto& [m, n, k] :
         {std::tuple(1, 1, 1), {3, 65, 129}, {17, 130, 300}, {64, 256, 128}, {5, 190, 7}}) {
      ProblemData data(gemm_.device(), Packed(format, m, n, k));
      for (Kernel* kernel : gemm_.registry().kernels()) {
        if (!Takes(*kernel, data.desc())) continue;
        Accuracy accuracy;
        const Status status = CheckKernel(*kernel, data, 2, accuracy);
        EXPECT_TRUE(status.ok()) << kernel->id() << ": " << status.ToString();
        ++checked;
      }
    }
  }
  EXPECT_GE(checked, 20);
}

TEST_F(PackingTest, OnePackedWeightServesEveryM) {
  constexpr int kN = 70, kK = 33;
  std::vector<float> w(kN * kK);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(static_cast<int>(i % 7) - 3);
  const MatrixLayout plain = ColMajor(DataType::kFloat32, kK, kN);
  std::vector<std::byte> packed(*gemm_.PackedSize(plain, kPackPanels64));
  const auto layout = gemm_.Pack(w.data(), plain, kPackPanels64, packed.data(), packed.size());
  ASSERT_TRUE(layout.ok());
  for (const int m : {1, 2, 40}) {
    std::vector<float> x(static_cast<std::size_t>(m * kK), 2.0f);
    std::vector<float> y(static_cast<std::size_t>(m * kN), NAN);
    GemmArgs args;
    args.A = x.data(), args.Adesc = RowMajor(DataType::kFloat32, m, kK);
    args.B = packed.data(), args.Bdesc = *layout;
    args.D = y.data(), args.Ddesc = RowMajor(DataType::kFloat32, m, kN);
    const auto plan = gemm_.Plan(args);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    std::vector<std::byte> memory(workspace_bytes(*plan) + 256);
    void* at = memory.data();
    std::size_t room = memory.size();
    at = std::align(256, workspace_bytes(*plan), at, room);
    auto workspace = InitWorkspace(plan->workspace_size(), at, workspace_bytes(*plan));
    ASSERT_TRUE(workspace.ok());
    ASSERT_TRUE(plan->Launch({.A = x.data(), .D = y.data()}, *workspace).ok());
    for (int n = 0; n < kN; ++n) {
      const float sum = 2 * std::accumulate(w.begin() + n * kK, w.begin() + (n + 1) * kK, 0.0f);
      for (int i = 0; i < m; ++i) EXPECT_EQ(y[static_cast<std::size_t>(i * kN + n)], sum);
    }
    EXPECT_NE(
        plan->Launch({.A = x.data(), .D = reinterpret_cast<float*>(packed.data())}, *workspace)
            .message()
            .find("overlaps B"),
        std::string::npos);
  }
}

TEST_F(PackingTest, TuningMeasuresPackedWeightsToo) {
  const auto report = gemm_.Tune(Packed(Format::kBf16, 4, 128, 64));
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_THAT(report->winner.kernel->id(), HasSubstr("blocked"));
}

TEST_F(PackingTest, AKernelOfAnotherLayoutSaysSo) {
  const auto explained = gemm_.explain(Packed(Format::kF32, 1, 128, 64));
  ASSERT_TRUE(explained.ok()) << explained.status().ToString();
  EXPECT_THAT(explained->ToString(), HasSubstr("reads no weights of this packed format"));
  LaunchSpec spec;
  FakeKernel plain_only("fake/plain");
  spec.kernel = &plain_only;
  GemmArgs args;
  std::vector<std::byte> packed(64 * 8 * 4);
  args.Adesc = RowMajor(DataType::kFloat32, 2, 8);
  args.B = packed.data();
  args.Bdesc = PackedLayout(ColMajor(DataType::kFloat32, 8, 8), *FindPackFormat(kPackPanels64));
  args.Ddesc = RowMajor(DataType::kFloat32, 2, 8);
  const Status status = gemm_.Plan(args, spec).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("reads no weights of this packed format"));
}

TEST_F(PackingTest, BadUseIsTold) {
  std::vector<float> w(64);
  const MatrixLayout plain = ColMajor(DataType::kFloat32, 8, 8);
  std::vector<std::byte> packed(*gemm_.PackedSize(plain, kPackPanels64));
  const auto pack = [&](const MatrixLayout& layout, int format, void* to, std::size_t bytes) {
    return gemm_.Pack(w.data(), layout, format, to, bytes).status();
  };
  EXPECT_THAT(pack(plain, 99, packed.data(), packed.size()).message(),
              HasSubstr("format is 99; the packed formats are 1 (k_major_n64)"));
  EXPECT_EQ(pack(plain, kPackPanels64, packed.data(), packed.size() - 1).code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(pack(plain, kPackPanels64, nullptr, packed.size()).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(pack(ColMajor(DataType::kInt32, 8, 8), kPackPanels64, packed.data(), 4096).code(),
            StatusCode::kUnsupported);
  const MatrixLayout layout = PackedLayout(plain, *FindPackFormat(kPackPanels64));
  EXPECT_THAT(pack(layout, kPackPanels64, packed.data(), 4096).message(), HasSubstr("plain one"));

  GemmArgs args;
  args.Adesc = RowMajor(DataType::kFloat32, 2, 8);
  args.B = packed.data();
  args.Bdesc = layout;
  args.Ddesc = RowMajor(DataType::kFloat32, 2, 8);
  ASSERT_TRUE(Describe(args, 0).ok());
  const auto told = [&](auto&& change) {
    GemmArgs changed = args;
    change(changed);
    const auto desc = Describe(changed, 0);
    EXPECT_EQ(desc.status().code(), StatusCode::kInvalidArgument);
    return desc.status().message();
  };
  EXPECT_THAT(told([](GemmArgs& a) { a.Bdesc.pack = 99; }), HasSubstr("Bdesc.pack is 99"));
  EXPECT_THAT(told([](GemmArgs& a) { a.Bdesc.ld = 9; }), HasSubstr("take the layout that"));
  EXPECT_THAT(told([](GemmArgs& a) { a.Adesc.pack = 1; }), HasSubstr("only B is packed"));
  EXPECT_THAT(told([](GemmArgs& a) { a.Ddesc.pack = 1; }), HasSubstr("only B is packed"));
  EXPECT_THAT(told([](GemmArgs& a) { a.Bdesc.cols = 9; }), HasSubstr("Ddesc is 2 x 8"));
  EXPECT_THAT(told([](GemmArgs& a) { a.beta = 1, a.Cdesc = a.Ddesc, a.Cdesc.pack = 1; }),
              HasSubstr("Cdesc.pack is 1; only B is packed"));
  args.operation.quant_a = args.operation.quant_b = {QuantType::kTensor};
  args.Udesc = args.Vdesc = RowMajor(DataType::kFloat32, 1, 1);
  ASSERT_TRUE(Describe(args, 0).ok());
  EXPECT_THAT(told([](GemmArgs& a) { a.Udesc.pack = 1; }), HasSubstr("Udesc.pack is 1; only B"));
  EXPECT_THAT(told([](GemmArgs& a) { a.Vdesc.pack = 1; }), HasSubstr("Vdesc.pack is 1; only B"));
}

TEST(PackFormatTest, NumbersAndNamesAreUnique) {
  for (const PackFormat* format : PackFormats()) {
    EXPECT_EQ(FindPackFormat(format->number()), format);
    EXPECT_EQ(FindPackFormat(format->name()), format);
    EXPECT_NE(format->number(), 0);
  }
  EXPECT_EQ(FindPackFormat(0), nullptr);
  EXPECT_EQ(FindPackFormat("nosuch"), nullptr);
}

}  // namespace
}  // namespace culet
