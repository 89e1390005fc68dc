// What grouped products on a GPU refuse, and the way out that each sentence names. The emulation
// has no grouped kernels: tests/host_wgmma_grouped_kernels_test.cc and
// tests/python/test_cuda_grouped.py run them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "culet/grouped.h"
#include "gemm/chooser.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

TEST(HostCudaGroupedTest, WithoutAKernel) {
  DeviceInfo device;
  device.arch = 860;
  GroupedArgs args;
  args.groups = 2;
  args.rows = args.a_rows = 4;
  args.n = args.k = 64;
  const auto desc = DescribeGrouped(args, device.arch);
  ASSERT_TRUE(desc.ok());
  const Registry none;
  const Status status = NoKernelFor(*desc, none);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("grouped: 2 groups, 1 of 2 experts; grouped products "
                                          "have kernels for GPUs of compute capability 9.0: call "
                                          "one product a group"));
}

}  // namespace
}  // namespace culet
