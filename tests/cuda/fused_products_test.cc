// Fusing kernels without a GPU: their refusals and predictions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cuda/fused_product.h"
#include "gpu_info.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

using testing::HasSubstr;

class FusingKernels : public testing::Test {
 protected:
  static GemmDesc Bf16(int m, int n, int k) {
    GemmDesc desc;
    desc.arch = 900;
    desc.m = m, desc.n = n, desc.k = k;
    desc.a.type = desc.b.type = desc.d.type = DataType::kBfloat16;
    desc.pdl = true;
    return desc;
  }
  static ProductFusion Fusion(bool gated) {
    ProductFusion fusion;
    fusion.gamma_type = DataType::kBfloat16;
    fusion.adds = true;
    fusion.gated = gated;
    return fusion;
  }
  const Kernel* Find(const std::string& id) const {
    for (const auto& kernel : kernels_)
      if (kernel->id() == id) return kernel.get();
    return nullptr;
  }
  static std::string Why(const Kernel* kernel, const GemmDesc& desc, const ProductFusion& fusion,
                         int splits) {
    return dynamic_cast<const FusesProducts&>(*kernel).WhyFused(desc, fusion, splits).reason();
  }
  // Microseconds that a fused launch takes longer than the product alone.
  double More(const Kernel* kernel, const GemmDesc& desc, bool gated, int splits) const {
    const HardwareRates rates = TypicalRates(device_, DataType::kBfloat16);
    return dynamic_cast<const FusesProducts&>(*kernel).PredictFusedUs(desc, Fusion(gated), device_,
                                                                      rates, splits) -
           kernel->PredictUs(desc, device_, rates, 0, splits);
  }

  const DeviceInfo device_ = GpuInfo(900);
  const KernelList kernels_ = BuiltinKernels(device_);
};

TEST_F(FusingKernels, AreThoseOfFewRowsAndBf16) {
  int fuse = 0;
  for (const auto& kernel : kernels_) {
    const auto* const fuses = dynamic_cast<const FusesProducts*>(kernel.get());
    if (fuses == nullptr || !kernel->why(Bf16(1, 512, 1024)).ok()) continue;
    EXPECT_THAT(kernel->id(), HasSubstr("sm90_bf16_skinny/"));
    // Half of an mma's rows: gates and ups would not lie in one lane.
    if (kernel->id().find("/8x8x") != std::string::npos) {
      EXPECT_THAT(fuses->WhyFused(Bf16(1, 512, 1024), Fusion(false), 1).reason(),
                  HasSubstr("twin"));
      continue;
    }
    for (const bool gated : {false, true})
      EXPECT_TRUE(fuses->WhyFused(Bf16(1, 512, 1024), Fusion(gated), 1).ok()) << kernel->id();
    ++fuse;
  }
  EXPECT_EQ(fuse, 6);
}

TEST_F(FusingKernels, SayWhatTheyRefuse) {
  const Kernel* const kernel = Find("sm90_bf16_skinny/16x8x2");
  ASSERT_NE(kernel, nullptr);
  const GemmDesc good = Bf16(1, 512, 1024);
  EXPECT_EQ(Why(kernel, good, Fusion(true), 8), "");
  GemmDesc desc = good;
  desc.c.type = DataType::kFloat32;
  EXPECT_THAT(Why(kernel, desc, Fusion(false), 1), HasSubstr("C"));
  desc = good;
  desc.type_bias = DataType::kBfloat16;
  EXPECT_EQ(Why(kernel, desc, Fusion(false), 1), "");
  EXPECT_THAT(Why(kernel, desc, Fusion(true), 1), HasSubstr("bias"));
  EXPECT_THAT(Why(kernel, Bf16(1, 504, 1024), Fusion(true), 1), HasSubstr("multiples of 8"));
  EXPECT_EQ(Why(kernel, Bf16(1, 504, 1024), Fusion(false), 1), "");
  ProductFusion codes = Fusion(false);
  codes.gamma_type = DataType::kFloat8_e4m3;
  EXPECT_THAT(Why(kernel, good, codes, 1), HasSubstr("gamma"));
  EXPECT_THAT(Why(kernel, good, Fusion(false), 17), HasSubstr("split"));
  for (const int k : {8192, 1 << 20, 1 << 26, 1 << 29})
    EXPECT_THAT(Why(kernel, Bf16(8, 512, k), Fusion(false), 1), HasSubstr("shared memory")) << k;
  // E4M3 has no fused twin.
  const Kernel* const e4m3 = Find("sm90_fp8_skinny/16x8x2");
  ASSERT_NE(e4m3, nullptr);
  EXPECT_THAT(Why(e4m3, good, Fusion(false), 1), HasSubstr("twin"));
}

// As measured: for one row a norm within q, k and v is faster than its own kernel, and so are a
// norm and SwiGLU within gate and up.
TEST_F(FusingKernels, PredictWhatWasMeasured) {
  constexpr double kNormUs = 1.6, kSwiGluUs = 1.7;  // graph/cuda/fused_product.cc
  const Kernel* const wide = Find("sm90_bf16_skinny/32x8x2");
  const Kernel* const narrow = Find("sm90_bf16_skinny/16x8x2");
  ASSERT_TRUE(wide != nullptr && narrow != nullptr);
  EXPECT_LT(More(wide, Bf16(1, 4096, 1024), false, 16), kNormUs);
  EXPECT_LT(More(wide, Bf16(1, 3072, 2048), false, 16), kNormUs);
  EXPECT_LT(More(narrow, Bf16(1, 6144, 1024), true, 8), kNormUs + kSwiGluUs);
  EXPECT_GT(More(narrow, Bf16(4, 6144, 1024), true, 8), kNormUs + kSwiGluUs);
}

}  // namespace
}  // namespace culet
