// When a general epilogue of a Hopper kernel has nothing to do but to scale and to round.
#include "kernels/sm90/product/epilogue.h"

#include <gtest/gtest.h>

namespace culet::sm90 {
namespace {

TEST(Sm90Epilogue, AlphaAloneLeavesNothingButRounding) {
  EpilogueParams e;
  EXPECT_TRUE(OnlyRoundsToBf16(e));
  e.alpha = -0.5f;
  EXPECT_TRUE(OnlyRoundsToBf16(e));
}

TEST(Sm90Epilogue, CThatIsNotAddedDoesNotCount) {
  const float c = 1;
  EpilogueParams e;
  e.c = &c;
  EXPECT_TRUE(OnlyRoundsToBf16(e));
  e.beta = 1;
  EXPECT_FALSE(OnlyRoundsToBf16(e));
  e.c = nullptr;
  EXPECT_TRUE(OnlyRoundsToBf16(e));
}

TEST(Sm90Epilogue, ScalesABiasAndOtherTypesOfDCount) {
  const float x = 1;
  EpilogueParams e;
  e.scale_a = &x;
  EXPECT_FALSE(OnlyRoundsToBf16(e));
  e = {};
  e.scale_b = &x;
  EXPECT_FALSE(OnlyRoundsToBf16(e));
  e = {};
  e.bias = &x;
  EXPECT_FALSE(OnlyRoundsToBf16(e));
  for (const OutputType type : {OutputType::kF16, OutputType::kF32}) {
    e = {};
    e.d_type = type;
    EXPECT_FALSE(OnlyRoundsToBf16(e));
    EXPECT_FALSE(OnlyScalesToBf16(e));
  }
}

TEST(Sm90Epilogue, ScalesLeaveScalingAndABiasAndCDoNot) {
  const float x = 1;
  EpilogueParams e;
  e.scale_a = e.scale_b = &x;
  EXPECT_TRUE(OnlyScalesToBf16(e));
  e.c = &x;
  EXPECT_TRUE(OnlyScalesToBf16(e));
  e.beta = 1;
  EXPECT_FALSE(OnlyScalesToBf16(e));
  e.c = nullptr;
  e.bias = &x;
  EXPECT_FALSE(OnlyScalesToBf16(e));
}

}  // namespace
}  // namespace culet::sm90
