// CULET_SIMD caps what Highway's dispatch calls, from the first call on.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd_level_test.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

std::int64_t CompiledFor() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "culet/device.h"

namespace culet {
HWY_EXPORT(CompiledFor);

namespace {

std::string NameOf(std::int64_t target) {
  std::string name = hwy::TargetName(target);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::string DispatchedTo() { return NameOf(HWY_DYNAMIC_DISPATCH(CompiledFor)()); }

// The variable is read when the process starts.
class SimdLevelDeathTest : public testing::Test {
 protected:
  SimdLevelDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  ~SimdLevelDeathTest() override {
    if (capped_) {
      setenv("CULET_SIMD", before_.c_str(), 1);
    } else {
      unsetenv("CULET_SIMD");
    }
  }

  const bool capped_ = std::getenv("CULET_SIMD") != nullptr;
  const std::string before_ = capped_ ? std::getenv("CULET_SIMD") : "";
};

TEST(SimdLevelTest, TheDispatchCallsTheBestLevel) {
  EXPECT_EQ(DispatchedTo(), HostSimdLevels().front());
}

// The loop is over all compiled levels: the child starts anew and must come by the same ones.
TEST_F(SimdLevelDeathTest, EveryLevelIsObeyed) {
  const std::int64_t best = SimdTargets() & -SimdTargets();
  for (std::int64_t rest = HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const std::int64_t level = rest & -rest;
    setenv("CULET_SIMD", NameOf(level).c_str(), 1);
    const auto capped = [] {
      std::fputs((DispatchedTo() + " " + HostSimdLevels().front() + ".").c_str(), stderr);
      return CheckHostSimd().ok() ? 0 : 1;
    };
    // The lowest bit is the best level; of one above the machine's the machine's is expected.
    // Under a cap this process does not know that.
    const std::string expected = level >= best ? NameOf(level)
                                 : capped_     ? "[a-z0-9_]+"
                                               : NameOf(best);
    EXPECT_EXIT(std::_Exit(capped()), testing::ExitedWithCode(0),
                expected + " " + expected + "\\.");
  }
}

TEST_F(SimdLevelDeathTest, ABadValueIsAnErrorOfTheCpu) {
  setenv("CULET_SIMD", "avx1024", 1);
  const auto refused = [] {
    const auto device = FindDevice("cpu");
    std::fputs(device.status().message().c_str(), stderr);
    return device.ok() ? 0 : static_cast<int>(device.status().code());
  };
  EXPECT_EXIT(std::_Exit(refused()),
              testing::ExitedWithCode(static_cast<int>(StatusCode::kInvalidArgument)),
              "CULET_SIMD is 'avx1024'; set it to one of .*, or unset it");
}

TEST(ParseSimdTest, TakesWhatIsCompiledAlone) {
  for (const char* bad : {"", "avx", "AVX2", "avx2 ", "sse4", "off"}) {
    EXPECT_EQ(ParseSimd(bad), 0) << bad;
  }
  EXPECT_EQ(ParseSimd(nullptr), 0);
  EXPECT_NE(ParseSimd(HostSimdLevels().back().c_str()), 0);
}

}  // namespace
}  // namespace culet
#endif  // HWY_ONCE
