// The host side of the Hopper families: what a kernel's id says, when B leaves L2 first, and
// predictions beside measurements. Needs no GPU.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "culet/model.h"
#include "gemm/cost_model.h"
#include "gpu_info.h"
#include "kernels/catalog.h"
#include "kernels/sm90/block/block.h"
#include "kernels/sm90/product/product_kernel.h"

namespace culet {
namespace {

using sm90::BLeavesFirst;
using sm90::BlockKernel;
using sm90::TileOrder;

// 58.7 MB swept once; 37.7 MB, which may stay; and 58.7 MB swept twice.
static_assert(BLeavesFirst(TileOrder(4, 32, 8), 4096 * 14336));
static_assert(!BLeavesFirst(TileOrder(4, 192, 8), 24576 * 1536));
static_assert(!BLeavesFirst(TileOrder(16, 32, 8), 4096 * 14336));

GemmDesc Fp8Block(int m, int n, int k) {
  const auto desc = MakeDesc(Format::kFp8Block, m, n, k, 900, DataType::kBfloat16);
  EXPECT_TRUE(desc.ok());
  return *desc;
}

// The candidates among the Hopper families, best prediction first.
std::vector<LaunchSpec> HopperCandidates(const KernelList& kernels, const GemmDesc& desc) {
  std::vector<Kernel*> hopper;
  for (const auto& kernel : kernels)
    if (kernel->id().starts_with("sm90_")) hopper.push_back(kernel.get());
  const DeviceInfo device = GpuInfo(900);
  return EnumerateCandidates(hopper, desc, device, TypicalRates(device, DataType::kFloat8_e4m3));
}

TEST(BlockKernels, HaveIdsOfTheirOwn) {
  std::set<std::string> ids;
  for (const BlockKernel& kernel : sm90::BlockKernels()) {
    EXPECT_TRUE(ids.insert(kernel.id).second) << kernel.id << " twice";
    EXPECT_TRUE(kernel.store_rows == 16 || kernel.store_rows == 64) << kernel.id;
  }
  // Caches and scripts name kernels: an id stays as it is.
  for (const char* id :
       {"sm90_fp8_block/128x128x128/c1x2/s5", "sm90_fp8_block/256x128x128/c1x1/s4/k2",
        "sm90_fp8_block/128x128x128/c2x1/s5/f32", "sm90_bf16_block/128x224x64/c2x1/s4"})
    EXPECT_TRUE(ids.contains(id)) << id;
}

// Beyond a wave its CTAs start anew with each tile: 7168 x 16384 at M = 1024 took 272 us in seven
// waves of 128 x 128 where 215 is the best.
TEST(HopperPredictions, SplitsKOnlyWithinAWave) {
  const KernelList kernels = BuiltinKernels(GpuInfo(900));
  const auto splits = [&](int m, int n, int k) {
    return HopperCandidates(kernels, Fp8Block(m, n, k)).front().kernel->id().ends_with("/k2");
  };
  EXPECT_TRUE(splits(128, 7168, 16384));
  EXPECT_TRUE(splits(256, 4096, 14336));
  EXPECT_FALSE(splits(1024, 7168, 16384));
  EXPECT_FALSE(splits(4096, 7168, 16384));
}

TEST(HopperPredictions, NeverGainByABudget) {
  const KernelList kernels = BuiltinKernels(GpuInfo(900));
  for (int m : {1, 64, 256, 4096}) {
    GemmDesc desc = Fp8Block(m, 4096, 7168);
    const auto whole = HopperCandidates(kernels, desc);
    desc.sm_budget = 66;
    const auto half = HopperCandidates(kernels, desc);
    ASSERT_FALSE(whole.empty());
    ASSERT_FALSE(half.empty());
    EXPECT_GE(half.front().time_us, whole.front().time_us) << m;
  }
}

// Strides beyond a kernel's 32 bits or tensor maps are refused by `why`, not by Prepare.
TEST(HopperFamilies, RefusePitchesThatTheyCannotHold) {
  const KernelList kernels = BuiltinKernels(GpuInfo(900));
  const auto families = [&](const GemmDesc& desc) {
    std::set<std::string> found;
    for (const LaunchSpec& spec : HopperCandidates(kernels, desc))
      found.insert(spec.kernel->id().substr(0, spec.kernel->id().find('/')));
    return found;
  };
  const std::set<std::string> all = {"sm90_fp8_block", "sm90_fp8_swap", "sm90_fp8_skinny"};
  const std::set<std::string> by_maps = {"sm90_fp8_block", "sm90_fp8_swap"};
  GemmDesc desc = Fp8Block(4, 4096, 4096);
  EXPECT_EQ(families(desc), all);
  desc.a.pitch = Pitch::kLong;
  EXPECT_EQ(families(desc), by_maps);
  desc.a.pitch = Pitch::kFar;
  EXPECT_TRUE(families(desc).empty());
  desc.a.pitch = Pitch::kShort;
  desc.d.pitch = Pitch::kLong;
  EXPECT_EQ(families(desc), all);
  desc.b.scale_pitch = Pitch::kLong;
  EXPECT_TRUE(families(desc).empty());
}

// The toy of docs/adding-a-format.md, were its kernels in a list: no type of a KernelDesc is any
// type.
TEST(HopperFamilies, OfferNothingOfAFormatWithoutAName) {
  constexpr sm90::FormatInfo kToy = {"e5m2", DataType::kNull, 1, sm90::Sums::kDirect};
  for (const Format format : {Format::kFp8Block, Format::kF32}) {
    const auto desc = MakeDesc(format, 16, 256, 256, 900, DataType::kBfloat16);
    EXPECT_FALSE(desc.ok() && sm90::WhyScales(*desc, kToy).ok());
  }
  EXPECT_EQ(sm90::GeneralDesc(kToy).accumulator_bits, sm90::kFp8AccumulatorBits);
  EXPECT_EQ(sm90::GeneralDesc(kToy).promotion_k, 0);
}

// Four CTAs have the columns of a scale of D, so of eight in a cluster two may split K; and a
// cluster has all columns of its scales, or another kernel quantises.
TEST(Fp8Swap, QuantisesWholeScales) {
  const KernelList kernels = BuiltinKernels(GpuInfo(900));
  GemmDesc desc = Fp8Block(8, 4096, 4096);
  desc.epilogue = Epilogue::kGatedSiluQuant;
  desc.d.type = DataType::kFloat8_e4m3;
  desc.d.quant = {QuantType::kK, 128};
  desc.d.scale_type = DataType::kFloat32;
  const auto launches = [&](std::string_view end) {
    std::set<int> splits;
    for (const LaunchSpec& spec : HopperCandidates(kernels, desc))
      if (spec.kernel->id().starts_with("sm90_fp8_swap/") && spec.kernel->id().ends_with(end))
        splits.insert(spec.splits);
    return splits;
  };
  EXPECT_EQ(launches("/gated_e4m3"), (std::set<int>{1, 2}));
  EXPECT_TRUE(launches("/gated/quantise").contains(8));
  desc.n += 128;
  EXPECT_TRUE(launches("/gated_e4m3").empty());
  EXPECT_TRUE(launches("/gated/quantise").contains(8));
}

TEST(Fp8Block, RefusesWhatItsTilesCannotCount) {
  const KernelList kernels = BuiltinKernels(GpuInfo(900));
  GemmDesc desc = Fp8Block(256, 256, 256);
  desc.m = std::numeric_limits<int>::max() - 100;
  for (const LaunchSpec& spec : HopperCandidates(kernels, desc))
    EXPECT_FALSE(spec.kernel->id().starts_with("sm90_fp8_block")) << spec.kernel->id();
  GemmDesc short_k = Fp8Block(256, 256, 128);
  for (const LaunchSpec& spec : HopperCandidates(kernels, short_k))
    EXPECT_FALSE(spec.kernel->id().ends_with("/k2")) << spec.kernel->id();
}

// Rows that do not begin on 16 bytes: FP8 with K = 4104. Where B's rows do, as culet.nn keeps
// weights, only A is copied.
TEST(HopperFamilies, CopyRowsThatTmaCannotLoad) {
  const KernelList kernels = BuiltinKernels(GpuInfo(900));
  for (const Format format : {Format::kFp8Block, Format::kFp8Row}) {
    for (const int m : {16, 64, 1000}) {
      const auto aligned = MakeDesc(format, m, 4096, 4096, 900, DataType::kBfloat16);
      auto odd = MakeDesc(format, m, 4104, 4104, 900, DataType::kBfloat16);
      ASSERT_TRUE(aligned.ok() && odd.ok());
      EXPECT_EQ(odd->a.align, 8);
      EXPECT_EQ(odd->b.align, 8);
      const auto best = [&](const GemmDesc& desc) {
        const auto all = HopperCandidates(kernels, desc);
        EXPECT_FALSE(all.empty());
        return all.empty() ? LaunchSpec{} : all.front();
      };
      const LaunchSpec both = best(*odd);
      odd->b.align = 16;
      const LaunchSpec one = best(*odd);
      ASSERT_NE(one.kernel, nullptr);
      EXPECT_TRUE(one.kernel->id().ends_with("/padded")) << one.kernel->id();
      EXPECT_LT(one.time_us, 1.3 * best(*aligned).time_us) << m;
      EXPECT_LT(one.time_us, both.time_us) << m;
      // A's copy alone, in rows of 4112 bytes.
      EXPECT_EQ(one.kernel->workspace_size(*odd, 0, 1).partials, (m * 4112u + 255) / 256 * 256);
    }
  }
}

}  // namespace
}  // namespace culet
