// The conformance suite over every kernel of the library.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "asan.h"
#include "culet/device.h"
#include "culet/registry.h"
#include "culet/verify.h"

namespace culet {
namespace {

class Conformance : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(SetHostThreads(threads_).ok()); }

  // `repeats`: of each launch, to find results that change.
  static void ExpectAllRight(bool quick, int repeats) {
    const DeviceInfo device = HostDevice();
    const Registry registry = Registry::Builtin(device);
    std::map<std::string, int> cases;
    VerifyOptions options;
    options.quick = quick;
    options.repeats = repeats;
    options.on_case = [&](const std::string& id, const GemmDesc&) {
      ++cases[id];
      return true;
    };
    const VerifyReport report = Verify(registry, device, options);
    int shown = 0;
    for (const VerifyFailure& failure : report.failures) {
      if (++shown > 20) break;
      ADD_FAILURE() << failure.kernel_id << " on " << ToString(failure.desc) << ": "
                    << failure.message;
    }
    EXPECT_TRUE(report.ok()) << report.failed << " failed, " << report.passed << " passed";
    for (const Kernel* kernel : registry.kernels()) {
      // A library's kernels take nothing where it is not installed, or lacks the instructions.
      if (kernel->desc().backend == Backend::kLibrary) continue;
      EXPECT_GT(cases[kernel->id()], 0) << kernel->id() << " takes no problem of the suite";
    }
  }

 private:
  const int threads_ = HostThreads();
};

TEST_F(Conformance, EveryKernelIsRightOrRefuses) {
  if (kSanitized) GTEST_SKIP() << "the last covers it, and seven threads divide tiles besides";
  ExpectAllRight(false, 3);
}

TEST_F(Conformance, OnOneThread) {
  if (kSanitized) GTEST_SKIP() << "as above";
  ASSERT_TRUE(SetHostThreads(1).ok());
  ExpectAllRight(true, 1);  // nothing but time changes
}

TEST_F(Conformance, OnMoreThreadsThanTilesHaveRows) {
  ASSERT_TRUE(SetHostThreads(7).ok());
  ExpectAllRight(true, kSanitized ? 1 : 3);
}

}  // namespace
}  // namespace culet
