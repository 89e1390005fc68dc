// The grouped kernels of Hopper as culet::Kernels, on the CPU: what they take, what they launch,
// and whether their predictions choose what was measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "culet/grouped_class.h"
#include "culet/grouped_kernel.h"
#include "host_wgmma_values.h"
#include "kernels/sm90/grouped/kernels.h"

namespace culet::sm90 {
namespace {

using ::testing::HasSubstr;

const KernelList& Kernels() {
  static const KernelList& kernels = *[] {
    auto* made = new KernelList;
    AddGroupedKernels(*made);
    return made;
  }();
  return kernels;
}

Kernel* Find(const std::string& id) {
  for (const auto& kernel : Kernels())
    if (kernel->id() == id) return kernel.get();
  return nullptr;
}

DeviceInfo H200() {
  DeviceInfo device;
  device.arch = 900;
  device.units = 132;
  device.clock_mhz = 1980;
  return device;
}
HardwareRates RatesOfH200() {
  HardwareRates rates;
  rates.read_gbps = 4310;
  rates.gflops = 788e3;
  return rates;
}

GroupedArgs SomeArgs(DataType type = DataType::kBfloat16) {
  GroupedArgs args;
  args.groups = 3;
  args.rows = args.a_rows = 16;
  args.n = 136;
  args.k = 144;
  args.type = type;
  return args;
}

std::string WhyOf(const char* id, const GroupedArgs& args) {
  const auto desc = DescribeGrouped(args, 900);
  return desc.ok() ? Find(id)->why(*desc).reason() : desc.status().message();
}

TEST(HostWgmmaGroupedKernels, WhatTheyTake) {
  const char* const swap = "sm90_bf16_grouped/128x32";
  GroupedArgs args = SomeArgs();
  EXPECT_EQ(WhyOf(swap, args), "");
  EXPECT_THAT(WhyOf("sm90_f16_grouped/128x32", args), HasSubstr("another type"));
  EXPECT_THAT(WhyOf("sm90_bf16_grouped/128x32/gated", args), HasSubstr("no such epilogue"));
  args.k = 143;
  EXPECT_THAT(WhyOf(swap, args), HasSubstr("on 16 bytes"));
  args = SomeArgs(DataType::kFloat32);
  EXPECT_THAT(WhyOf(swap, args), HasSubstr("another type"));
  args = SomeArgs();
  args.groups = 513;
  EXPECT_THAT(WhyOf(swap, args), HasSubstr("512 groups"));
  args = SomeArgs();
  args.groups = 500, args.n = 3 << 20;
  EXPECT_THAT(WhyOf(swap, args), HasSubstr("2^30"));
  const char* const skinny = "sm90_bf16_grouped_skinny/16x8x4";
  args = SomeArgs();
  args.expected_tokens = 9, args.expected_active = 1, args.expected_experts = 1;
  EXPECT_THAT(WhyOf(skinny, args), HasSubstr("up to 8 rows a group"));
  args.expected_tokens = 8;
  EXPECT_EQ(WhyOf(skinny, args), "");
  args.sm_budget = 64;
  EXPECT_THAT(WhyOf(skinny, args), HasSubstr("no budget"));
  const std::int32_t index[16] = {};
  args = SomeArgs(DataType::kFloat8_e4m3);
  args.index = index;
  for (const auto& kernel : Kernels()) {
    const Feasibility why = kernel->why(*DescribeGrouped(args, 900));
    if (kernel->id().find("block") != std::string::npos) {
      EXPECT_THAT(why.reason(), HasSubstr("without an index")) << kernel->id();
    }
    GemmDesc plain = *DescribeGrouped(SomeArgs(), 900);
    plain.group_axis = -1, plain.num = 1;
    EXPECT_FALSE(kernel->why(plain).ok()) << kernel->id();
  }
}

// All of a kernel's launches of a problem, on integers.
void Launch(const char* id, GroupedArgs args, int splits) {
  SCOPED_TRACE(testing::Message() << id << " splits " << splits);
  Kernel* const kernel = Find(id);
  ASSERT_NE(kernel, nullptr);
  const bool gated = args.epilogue == Epilogue::kGatedSilu, scaled = args.U != nullptr;
  const int rows_b = gated ? 2 * args.n : args.n;
  const Elements a = WholeNumbers(args.type, args.a_rows, args.k, args.k, 2, 1),
                 b = WholeNumbers(args.type, std::int64_t{args.groups} * rows_b, args.k, args.k, 2,
                                  2),
                 bias = WholeNumbers(DataType::kFloat32, args.groups, rows_b, rows_b, 3, 3);
  const std::vector<std::int32_t> starts = {1, 6, 6, 15};
  Elements d(args.d_type, std::int64_t{args.rows} * args.n, -77);
  args.A = a.data(), args.B = b.data(), args.D = d.data(), args.starts = starts.data();
  args.lda = args.k, args.ldd = args.n;
  const std::int64_t blocks = (args.k + 127) / 128;
  const std::vector<float> ones(Size(std::int64_t{args.groups} * rows_b * blocks), 1.0f);
  if (scaled) args.U = args.V = ones.data(), args.u_row = blocks, args.u_block = 1;
  const bool has_bias = args.bias != nullptr;
  if (has_bias) args.bias = bias.data(), args.bias_type = DataType::kFloat32;
  ASSERT_STREQ(kernel->why(*DescribeGrouped(args, 900)).reason(), "");
  auto engine = Gemm::Create({.device = "cpu", .record = "off"});
  ASSERT_TRUE(engine.ok());
  LaunchSpec spec;
  spec.kernel = kernel;
  spec.splits = splits;
  const Status status =
      dynamic_cast<const GroupedKernel&>(*kernel).LaunchGrouped(*engine, args, spec, nullptr);
  ASSERT_TRUE(status.ok()) << status.message();
  int wrong = 0;
  for (int row = 0; row < args.rows; ++row) {
    const int group = row >= 1 && row < 6 ? 0 : row >= 6 && row < 15 ? 2 : -1;
    for (int column = 0; column < args.n; ++column) {
      double part[2] = {};
      for (int x = 0; group >= 0 && x < (gated ? 2 : 1); ++x) {
        const std::int64_t of_b = std::int64_t{group} * rows_b + x * args.n + column;
        for (int k = 0; k < args.k; ++k)
          part[x] += double{a.Get(std::int64_t{row} * args.k + k)} * b.Get(of_b * args.k + k);
        if (has_bias) part[x] += bias.Get(of_b);
      }
      const double expected = group < 0 ? -77 : gated ? SiluOf(part[0]) * part[1] : part[0];
      if (!IsNear(d, std::int64_t{row} * args.n + column, expected, gated ? 64 : 0) && wrong++ < 3)
        ADD_FAILURE() << "row " << row << " column " << column << ": "
                      << d.Get(std::int64_t{row} * args.n + column) << " for " << expected;
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(HostWgmmaGroupedKernels, WhatTheyLaunch) {
  const float some[1] = {};
  GroupedArgs args = SomeArgs(DataType::kFloat16);
  args.d_type = DataType::kFloat32;
  args.bias = some;
  Launch("sm90_f16_grouped/128x32", args, 1);
  args.type = args.d_type = DataType::kBfloat16;
  args.epilogue = Epilogue::kGatedSilu;
  Launch("sm90_bf16_grouped/128x32/gated", args, 2);
  args = SomeArgs(DataType::kFloat8_e4m3);
  args.d_type = DataType::kBfloat16;
  args.U = some;
  Launch("sm90_fp8_grouped/128x160", args, 1);
  Launch("sm90_fp8_grouped_skinny/16x8x4", args, 2);
  args = SomeArgs();
  args.epilogue = Epilogue::kGatedSilu;
  args.bias = some;
  Launch("sm90_bf16_grouped_skinny/32x8x4/gated", args, 3);
}

struct Layer {
  int local, experts, active, n, k;
};

// Predicted best for each measured row: the kernel that was measured there, or one within a tenth
// of it; and its time within an eighth.
TEST(HostWgmmaGroupedKernels, PredictionsAreOfMeasuredRows) {
  const std::map<std::string, Layer> layers = {{"dsv3-ep8.gate_up", {32, 256, 8, 4096, 7168}},
                                               {"dsv3-ep8.down", {32, 256, 8, 7168, 2048}},
                                               {"qwen3-30b.gate_up", {128, 128, 8, 1536, 2048}},
                                               {"qwen3-30b.down", {128, 128, 8, 2048, 768}},
                                               {"mixtral.gate_up", {8, 8, 2, 28672, 4096}},
                                               {"mixtral.down", {8, 8, 2, 4096, 14336}}};
  constexpr const char* kMeasured[] = {"/128x32", "/128x128", "/128x160", "/128x224"};
  std::ifstream file(CULET_SOURCE_DIR "/bench/results/h200_grouped.csv");
  ASSERT_TRUE(file.is_open());
  int rows = 0;
  double squares = 0;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream text(line);
    for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
    if (line.starts_with('#') || cells.size() < 10 || cells[0] == "name") continue;
    const Layer& layer = layers.at(cells[0]);
    GroupedArgs args;
    args.groups = layer.local;
    args.rows = args.a_rows = 1;
    args.n = layer.n, args.k = layer.k;
    args.type = cells[2] == "fp8" ? DataType::kFloat8_e4m3 : DataType::kBfloat16;
    args.expected_tokens = std::stoi(cells[1]);
    args.expected_active = layer.active, args.expected_experts = layer.experts;
    args.pdl = true;
    const GemmDesc desc = *DescribeGrouped(args, 900);
    Kernel* const measured = Find(cells[3]);
    ASSERT_NE(measured, nullptr) << cells[3];
    const double us = measured->PredictUs(desc, H200(), RatesOfH200(), 0, std::stoi(cells[4]));
    const double found = std::stod(cells[8]);
    const auto few = std::stoi(cells[1]) <= 8;  // the measured routings reached other experts
    EXPECT_NEAR(us / found, 1, few ? 0.45 : 0.13) << line << ": predicted " << us;
    if (!few) squares += std::pow(std::log(us / found), 2), ++rows;
    // No other kernel is promised to be much faster than this, the choice of earlier measurements;
    // those of which no row was measured may.
    for (const auto& kernel : Kernels()) {
      const std::string id = kernel->id();
      if (!kernel->why(desc).ok()) continue;
      if (std::ranges::none_of(kMeasured, [&](const char* of) { return id.ends_with(of); }))
        continue;
      for (int splits = 1; splits <= kernel->GetMaxSplits(ShapeOf(desc), 0, 0, 0); ++splits) {
        EXPECT_GT(kernel->PredictUs(desc, H200(), RatesOfH200(), 0, splits), 0.85 * us)
            << line << ": " << kernel->id() << " splits " << splits;
      }
    }
  }
  EXPECT_GT(rows, 40);
  EXPECT_LT(std::sqrt(squares / rows), 0.05);
}

}  // namespace
}  // namespace culet::sm90
