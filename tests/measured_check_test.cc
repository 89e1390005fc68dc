// What measuring does while other threads run products.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "base/thread_pool.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/scratch.h"
#include "culet/timing.h"
#include "fake_kernel.h"

namespace culet {
namespace {

// The check is of the result: another thread's product, which goes on after its patience, is no
// reason to call the kernel's launch a failure.
TEST(TimedLaunchCheck, IsNotDisturbedByOtherThreadsProducts) {
  Gemm gemm = *Gemm::Create();
  Kernel* const reference = gemm.registry().Find("cpu_reference");
  auto kernel = std::make_unique<FakeKernel>("waits");
  kernel->run = [&](const GemmArgs& args, int, int, Workspace& workspace) {
    std::thread([] { HostPool().Run(4, [](int, int) {}); }).join();
    return LaunchKernel(*reference, args, 0, 1, workspace, nullptr).ok() ? 0 : 1;
  };
  LaunchSpec spec;
  spec.kernel = kernel.get();
  ASSERT_TRUE(gemm.Register(std::move(kernel)).ok());
  const GemmDesc desc = *MakeDesc(Format::kF32, 4, 8, 16, /*arch=*/0);
  auto scratch = ScratchProblem::Create(gemm.device(), desc);
  ASSERT_TRUE(scratch.ok()) << scratch.status().ToString();
  auto launch = TimedLaunch::Create(gemm, *scratch, spec);
  ASSERT_TRUE(launch.ok()) << launch.status().ToString();
  double launch_s = -1;
  const auto report = launch->Check(&launch_s);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_TRUE(report->ok()) << report->ToString();
  EXPECT_GT(launch_s, 0);
}

}  // namespace
}  // namespace culet
