// The kernels of Hopper for few tokens on the CPU: whole and split along K, plain, gated and
// quantised, exact against sums in double.
#include <gtest/gtest.h>

#include <string>

#include "host_wgmma_product.h"
#include "kernels/sm90/product/start.h"
#include "kernels/sm90/swap/swap.h"

namespace culet::sm90 {
namespace {

void Check(const std::string& id, const ProductCase& of, int splits = 1) {
  SCOPED_TRACE(testing::Message() << id << " m " << of.m << " n " << of.n << " k " << of.k
                                  << " splits " << splits);
  for (const SwapKernel& kernel : SwapKernels()) {
    for (int residency = 1; residency <= kSwapMaxResidency; ++residency) {
      if ((kernel.instance.residencies >> residency & 1) == 0 || kernel.Id(residency) != id)
        continue;
      CheckProduct(*kernel.format, kernel.epilogue, of, [&](const ProductProblem& p, const int*) {
        SwapLaunch launch;
        EXPECT_TRUE(PlanSwap(kernel, p, splits, residency, &launch));
        // A ring that turns, which so short a K would not make.
        if (const int few = std::max(kernel.min_stages, 2); launch.params.stages > few)
          launch.params.stages = few;
        EXPECT_EQ(Load(kernel), cudaSuccess);
        return launch.Start(nullptr);
      });
      return;
    }
  }
  FAIL() << "no such kernel";
}

TEST(HostWgmmaSwap, Bf16) {
  const std::string narrow = "sm90_bf16_swap/64x16x64/r2", sliced = "sm90_bf16_swap/64x32x128/r2",
                    high = "sm90_bf16_swap/128x64x64/r1";
  for (const int splits : {1, 3}) {
    Check(narrow, {.m = 13, .n = 72, .k = 328}, splits);
    Check(sliced, {.m = 37, .n = 64, .k = 640}, splits);
    Check(sliced,
          {.m = 9, .n = 72, .k = 520, .d = OutputType::kF32, .bias = true, .c = true, .alpha = 2},
          splits);
    Check(high, {.m = 64, .n = 128, .k = 328}, splits);
    Check(high, {.m = 61, .n = 200, .k = 392, .d = OutputType::kF16, .row_bias = true, .pdl = true},
          splits);
  }
  Check("sm90_f16_swap/64x16x64/r2", {.m = 16, .n = 64, .k = 136});
}

TEST(HostWgmmaSwap, Fp8Blocks) {
  for (const int splits : {1, 2}) {
    Check("sm90_fp8_swap/64x8x128/r2", {.m = 5, .n = 72, .k = 1168}, splits);
    Check("sm90_fp8_swap/64x32x256/r2",
          {.m = 35, .n = 129, .k = 1280, .order = ScaleOrder::kOdd, .pdl = true}, splits);
    Check("sm90_fp8_swap/64x64x128p32/r3",
          {.m = 61, .n = 64, .k = 784, .order = ScaleOrder::kRowsInner}, splits);
    Check("sm90_fp8_swap/64x128x128/r1", {.m = 97, .n = 56, .k = 656}, splits);
    Check("sm90_fp8_swap/64x64x256t2/r1", {.m = 50, .n = 64, .k = 912, .alpha = 2}, splits);
    Check("sm90_fp8_swap/128x32x128/r2", {.m = 25, .n = 200, .k = 656}, splits);
    Check("sm90_fp8_swap/64x16x128f32/r2", {.m = 13, .n = 61, .k = 400, .d = OutputType::kF32},
          splits);
  }
}

TEST(HostWgmmaSwap, Fp8Lines) {
  for (const int splits : {1, 2}) {
    Check("sm90_fp8_precise_swap/128x32x128/r2",
          {.m = 25, .n = 136, .k = 656, .line_scales = true, .bias = true}, splits);
    Check("sm90_fp8_fast_swap/64x16x128/r2",
          {.m = 11, .n = 72, .k = 528, .line_scales = true, .pdl = true}, splits);
    Check("sm90_fp8_fast_swap/64x16x128/r2",
          {.m = 16, .n = 64, .k = 528, .d = OutputType::kF32, .tensor_scales = true, .c = true},
          splits);
  }
}

TEST(HostWgmmaSwap, Gated) {
  for (const int splits : {1, 2}) {
    Check("sm90_bf16_swap/64x16x64/r2/gated", {.m = 11, .n = 144, .k = 200}, splits);
    Check("sm90_fp8_swap/64x16x128/r2/gated",
          {.m = 16, .n = 80, .k = 400, .d = OutputType::kF32, .alpha = 0.25f, .pdl = true}, splits);
    Check("sm90_bf16_swap/64x16x64/r2/gated_e4m3", {.m = 13, .n = 256, .k = 200, .bias = true},
          splits);
    Check("sm90_fp8_swap/64x16x128/r2/gated_e4m3", {.m = 7, .n = 512, .k = 272}, splits);
  }
}

}  // namespace
}  // namespace culet::sm90
