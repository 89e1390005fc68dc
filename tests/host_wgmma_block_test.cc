// The large-M kernels of Hopper on the CPU: plain, shared in clusters, split along K, grouped,
// gated and quantised, exact against sums in double.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "host_wgmma_product.h"
#include "kernels/sm90/block/block.h"
#include "kernels/sm90/product/start.h"

namespace culet::sm90 {
namespace {

constexpr int kMultiprocessors = 3;  // so that CTAs compute several tiles

void Check(const std::string& id, const ProductCase& of, int sms = kMultiprocessors) {
  SCOPED_TRACE(testing::Message() << id << " m " << of.m << " n " << of.n << " k " << of.k);
  const BlockKernel* found = nullptr;
  for (const auto kernels : {BlockKernels(), GroupedBlocks()})
    for (const BlockKernel& kernel : kernels)
      if (kernel.id == id) found = &kernel;
  ASSERT_NE(found, nullptr);
  CheckProduct(*found->format, found->epilogue, of,
               [&](const ProductProblem& p, const int* starts) {
                 BlockLaunch launch;
                 if (starts != nullptr) {
                   const int groups = static_cast<int>(of.counts.size());
                   const int* const counts = of.offsets ? nullptr : of.counts.data();
                   EXPECT_TRUE(PlanGroupedBlock(*found, p, {starts, counts, groups}, sms, &launch));
                 } else {
                   EXPECT_TRUE(PlanBlock(*found, p, 1, sms, &launch));
                 }
                 EXPECT_EQ(Load(*found), cudaSuccess);
                 return launch.Start(nullptr);
               });
}

TEST(HostWgmmaBlock, Fp8Blocks) {
  Check("sm90_fp8_block/128x64x128/c1x1/s4", {.m = 201, .n = 136, .k = 784});
  Check("sm90_fp8_block/128x64x128/c1x1/s4",
        {.m = 129, .n = 61, .k = 1168, .order = ScaleOrder::kRowsInner, .alpha = 2});
  Check("sm90_fp8_block/128x96x128/c1x1/s4",
        {.m = 139, .n = 193, .k = 656, .order = ScaleOrder::kOdd, .pdl = true});
  Check("sm90_fp8_block/192x128x128/c1x1/s4", {.m = 131, .n = 200, .k = 656});
  Check("sm90_fp8_block/128x256x128/c1x1/s3", {.m = 129, .n = 300, .k = 400});
  Check("sm90_fp8_block/256x128x128/c1x1/s3", {.m = 257, .n = 72, .k = 528});
  Check("sm90_fp8_block/128x64x128/c1x1/s4/f32",
        {.m = 57, .n = 61, .k = 272, .d = OutputType::kF32});
}

TEST(HostWgmmaBlock, Clusters) {
  Check("sm90_fp8_block/128x64x128/c1x2/s4", {.m = 201, .n = 200, .k = 784}, 4);
  Check("sm90_fp8_block/128x64x128/c2x1/s4", {.m = 301, .n = 136, .k = 784, .pdl = true}, 4);
  // GemmUniversalSm90
  Check("sm90_fp8_block/128x224x128/c2x1/s3", {.m = 131, .n = 264, .k = 528}, 4);
  Check("sm90_bf16_block/128x64x64/c2x1/s4", {.m = 300, .n = 72, .k = 328}, 4);
}

TEST(HostWgmmaBlock, SplitAlongK) {
  Check("sm90_fp8_block/128x64x128/c1x1/s4/k2", {.m = 139, .n = 72, .k = 1168});
  Check("sm90_bf16_block/128x64x64/c1x1/s4/k2",
        {.m = 99, .n = 61, .k = 456, .bias = true, .c = true});
  Check("sm90_bf16_block/128x64x64/c1x1/s4/k2", {.m = 10, .n = 64, .k = 328, .pdl = true});
}

TEST(HostWgmmaBlock, Grouped) {
  const std::string id = "sm90_fp8_block/128x64x128/c1x1/s4/grouped";
  Check(id, {.m = 400, .n = 136, .k = 784, .counts = {129, 0, 1, 200}});
  Check(id, {.m = 400, .n = 136, .k = 272, .counts = {129, 0, 1, 200}, .offsets = true});
  Check(id,
        {.m = 70, .n = 72, .k = 272, .order = ScaleOrder::kOdd, .pdl = true, .counts = {3, 60}});
  Check("sm90_fp8_block/192x128x128/c1x1/s4/grouped",
        {.m = 300, .n = 136, .k = 272, .counts = {65, 0, 193, 8}});
  Check("sm90_fp8_block/128x256x128/c1x1/s3/grouped",
        {.m = 200, .n = 200, .k = 272, .counts = {7, 129, 1}});
  Check("sm90_fp8_block/256x128x128/c1x1/s4/grouped",
        {.m = 400, .n = 72, .k = 528, .counts = {127, 257, 0, 9}});
}

TEST(HostWgmmaBlock, General) {
  Check("sm90_bf16_block/128x64x64/c1x1/s4", {.m = 201, .n = 136, .k = 392});
  Check("sm90_bf16_block/128x64x64/c1x1/s4",
        {.m = 130, .n = 61, .k = 200, .d = OutputType::kF32, .row_bias = true, .c = true});
  Check("sm90_bf16_block/64x64x64/c1x1/s4/t2",
        {.m = 199, .n = 200, .k = 328, .bias = true, .pdl = true});
  Check("sm90_f16_block/128x64x64/c1x1/s4", {.m = 65, .n = 72, .k = 136, .d = OutputType::kF16});
  Check("sm90_fp8_precise_block/128x64x128/c1x1/s4",
        {.m = 139, .n = 72, .k = 656, .line_scales = true, .bias = true});
  Check("sm90_fp8_fast_block/64x64x128/c1x1/s4/t2",
        {.m = 130, .n = 72, .k = 656, .tensor_scales = true, .c = true});
}

TEST(HostWgmmaBlock, Copies) {
  Check("sm90_bf16_block/64x128x64/c1x1/s4/copies", {.m = 70, .n = 133, .k = 330});
  Check("sm90_fp8_block/64x128x128/c1x1/s4/copies",
        {.m = 61, .n = 72, .k = 404, .order = ScaleOrder::kOdd});
}

TEST(HostWgmmaBlock, Gated) {
  for (const bool halves : {false, true}) {
    Check("sm90_bf16_block/128x128x64/c1x1/s4/gated",
          {.m = 139, .n = 272, .k = 200, .halves = halves});
    Check("sm90_bf16_block/64x64x64/c1x1/s4/t2/gated", {.m = 139,
                                                        .n = 144,
                                                        .k = 200,
                                                        .d = OutputType::kF32,
                                                        .bias = true,
                                                        .halves = halves,
                                                        .pdl = true});
    Check("sm90_bf16_block/128x64x64/c1x1/s4/k2/gated",
          {.m = 70, .n = 80, .k = 328, .halves = halves});
    Check("sm90_fp8_block/128x64x128/c1x1/s4/gated",
          {.m = 139, .n = 256, .k = 656, .halves = halves, .alpha = 0.25f});
    Check("sm90_fp8_block/128x64x128/c1x1/s4/k2/gated",
          {.m = 61, .n = 256, .k = 784, .halves = halves});
  }
}

TEST(HostWgmmaBlock, Quantised) {
  for (const bool halves : {false, true}) {
    Check("sm90_fp8_block/128x128x128/c1x1/s4/gated_e4m3",
          {.m = 139, .n = 512, .k = 272, .halves = halves});
    Check("sm90_fp8_block/128x64x128/c1x4/s4/gated_e4m3",
          {.m = 139, .n = 512, .k = 272, .halves = halves}, 8);
    Check("sm90_fp8_block/64x256x128/c1x1/s4/gated_e4m3",
          {.m = 70, .n = 256, .k = 656, .halves = halves});
    Check("sm90_fp8_block/64x256x128/c1x1/s4/k2/gated_e4m3",
          {.m = 61, .n = 256, .k = 656, .halves = halves});
    Check("sm90_bf16_block/64x256x64/c1x1/s4/gated_e4m3",
          {.m = 61, .n = 512, .k = 200, .bias = true, .halves = halves});
  }
}

}  // namespace
}  // namespace culet::sm90
