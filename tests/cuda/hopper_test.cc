// The host side of the Hopper families: what a kernel's id says, when B leaves L2 first, and
// predictions beside measurements. Needs no GPU.
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "culet/model.h"
#include "gemm/cost_model.h"
#include "gpu_info.h"
#include "kernels/catalog.h"
#include "kernels/sm90/fp8_block.h"

namespace culet {
namespace {

using sm90::BLeavesFirst;
using sm90::Fp8BlockKernel;
using sm90::TileOrder;

// 58.7 MB swept once; 37.7 MB, which may stay; and 58.7 MB swept twice.
static_assert(BLeavesFirst(TileOrder(4, 32, 8), 4096, 14336));
static_assert(!BLeavesFirst(TileOrder(4, 192, 8), 24576, 1536));
static_assert(!BLeavesFirst(TileOrder(16, 32, 8), 4096, 14336));

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

TEST(Fp8BlockKernels, AreWhatTheirIdsSay) {
  std::set<std::string> ids;
  for (const Fp8BlockKernel& kernel : sm90::Fp8BlockKernels()) {
    std::string id = "sm90_fp8_block/" + std::to_string(kernel.tile_m) + "x" +
                     std::to_string(kernel.tile_n) + "x128/c" + std::to_string(kernel.cluster_m) +
                     "x" + std::to_string(kernel.cluster_n) + "/s" + std::to_string(kernel.stages);
    if (kernel.split > 1) id += "/k" + std::to_string(kernel.split);
    if (kernel.output_bytes == 4) id += "/f32";
    EXPECT_EQ(kernel.id, id);
    EXPECT_TRUE(ids.insert(id).second) << id << " twice";
    EXPECT_TRUE(kernel.store_rows == 16 || kernel.store_rows == 64) << id;
  }
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

}  // namespace
}  // namespace culet
