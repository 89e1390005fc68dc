// The Hopper families' predictions beside times measured on an H200
// (bench/predictions_h200.csv.gz). Needs no GPU.
#include "kernels/sm90/times/times.h"

#include <gtest/gtest.h>

#include <string>

namespace culet::sm90 {
namespace {

double BlockUs(const std::string& id, Extents p, bool pdl = false) {
  for (const BlockKernel& kernel : BlockKernels())
    if (kernel.id == "sm90_fp8_block/" + id)
      return BlockUs(kFp8Block, Chip{}, kernel, 0, 0, pdl, p);
  ADD_FAILURE() << "no " << id;
  return 0;
}

const SwapKernel& Swap(const std::string& id) {
  for (const SwapKernel& kernel : SwapKernels())
    if (kernel.Id(2) == "sm90_fp8_swap/" + id + "/r2") return kernel;
  ADD_FAILURE() << "no " << id;
  return SwapKernels().front();
}

TEST(BlockTimes, RowsBeyondTheMatrixCostNothing) {
  const std::string id = "128x128x128/c1x1/s6";
  const double ragged = BlockUs(id, {152, 7168, 16384}), full = BlockUs(id, {248, 7168, 16384});
  EXPECT_LE(ragged, full);
  EXPECT_NEAR(full, 50.0, 7.5);  // measured
}

TEST(BlockTimes, ScalesThatTmaCannotLoadCost) {
  const std::string id = "128x128x128/c1x1/s6";
  // 49 and 56 blocks of 128: rows of 196 bytes and of 224. 23.0 us and 20.0.
  EXPECT_GT(BlockUs(id, {112, 896, 6272}), BlockUs(id, {112, 896, 7168}));
}

TEST(BlockTimes, ALastWaveOfFewTilesIsNoFullOne) {
  const std::string id = "128x64x128/c1x1/s8";
  const double half = BlockUs(id, {128, 64 * 198, 4096}), full = BlockUs(id, {128, 64 * 264, 4096});
  EXPECT_LT(half, 0.97 * full);
}

TEST(BlockTimes, CtasOutsideOfClustersGainLessByADependentLaunch) {
  const Extents p{272, 4096, 14336};  // 96 tiles
  const auto gain = [&](const std::string& id) { return BlockUs(id, p) - BlockUs(id, p, true); };
  EXPECT_LT(gain("128x128x128/c1x1/s5"), gain("128x128x128/c1x2/s5"));
}

TEST(SwapTimes, AShortRingLeavesRoomForMoreCtas) {
  const SwapKernel& kernel = Swap("64x16x256");
  EXPECT_EQ(SwapResidentCtas(kernel, SwapStages(kernel, 56, 1, 2), 1), 2);
  EXPECT_GT(SwapResidentCtas(kernel, SwapStages(kernel, 9, 3, 2), 3), 2);
}

TEST(SwapTimes, FewWeightsInFlightBesideTheNextKernelGainLess) {
  const SwapKernel& kernel = Swap("64x32x128");
  const auto gain = [&](int k) {
    const Extents p{32, 4096, k};  // 64 CTAs
    return SwapUs(kFp8Swap, Chip{}, kernel, 2, 1, false, p) -
           SwapUs(kFp8Swap, Chip{}, kernel, 2, 1, true, p);
  };
  EXPECT_LT(gain(14336), gain(1024));
}

// Of the kernels of 0.6 billion parameters' decode steps, which were measured in whole steps.
TEST(SkinnyTimes, SmallProductsOfAStepLeaveRoomForTheNextOnes) {
  struct Best {
    double us = 1e9;
    std::string id;
  };
  const auto best = [](const Extents& p, bool pdl) {
    Best found;
    for (const SkinnyKernel& kernel : SkinnyKernels()) {
      if (kernel.format != &Bf16Direct::kInfo) continue;
      for (int splits = 1; splits <= SkinnyMaxSplits(kernel, p.k); ++splits) {
        const auto& times = pdl ? kDirectSkinnyDependent : kDirectSkinnyAlone;
        const double us = SkinnyUs(times, Chip{}, kernel, splits, pdl, p);
        if (us < found.us) found = {us, kernel.Id() + "/" + std::to_string(splits)};
      }
    }
    return found;
  };
  EXPECT_EQ(best({1, 4096, 1024}, true).id, "sm90_bf16_skinny/32x8x4/4");
  EXPECT_EQ(best({1, 6144, 1024}, true).id, "sm90_bf16_skinny/48x8x4/4");
  EXPECT_EQ(best({1, 1024, 2048}, true).id, "sm90_bf16_skinny/8x8x4/8");
  EXPECT_EQ(best({1, 1024, 3072}, true).id, "sm90_bf16_skinny/8x8x4/12");
  // Alone, a launch has the multiprocessors for itself.
  EXPECT_NE(best({1, 6144, 1024}, false).id, "sm90_bf16_skinny/48x8x4/4");
}

}  // namespace
}  // namespace culet::sm90
