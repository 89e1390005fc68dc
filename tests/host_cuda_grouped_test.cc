// What grouped products on a GPU refuse, and the way out that each sentence names. The emulation
// has no grouped kernels: tests/python/test_cuda_grouped.py runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/cuda/grouped_product.h"

namespace culet {
namespace {

using ::testing::HasSubstr;

TEST(HostCudaGroupedTest, Refusals) {
  const float some[16] = {};
  const std::int32_t starts[3] = {};
  DeviceInfo device;
  device.name = "a GPU";
  device.arch = 900;
  device.units = 132;
  GroupedArgs args;
  args.groups = 2;
  args.rows = args.a_rows = 4;
  args.n = args.k = args.lda = args.ldd = 64;
  args.A = args.B = args.D = const_cast<float*>(some);
  args.starts = starts;
  const auto refused = [&](const char* words, const GroupedArgs& given) {
    const Status status = cuda_ops::LaunchGrouped(device, given, nullptr);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  GroupedArgs other = args;
  other.bias = some;
  refused("add it to D afterwards", other);
  other = args;
  other.type = DataType::kFloat16;
  refused("type is float16; on a GPU", other);
  other = args;
  other.type = DataType::kFloat8_e4m3;
  other.u_row = std::int64_t{1} << 31;
  other.u_block = 1;
  refused("less than 2^31 elements", other);
  refused("the kernel is not in this build", args);
  device.arch = 860;
  refused("a GPU has the compute capability 8.6", args);
}

}  // namespace
}  // namespace culet
