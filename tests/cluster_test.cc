// Cluster: which specs count as alike.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "culet/kernel.h"

namespace culet {
namespace {

class NoKernel final : public ArgsKernel {
 public:
  explicit NoKernel(const KernelDesc& desc) : ArgsKernel(desc, {}) {}
  int Run(const GemmArgs&, int, int, Workspace&, cudaStream_t) override { return 0; }
};

KernelDesc BaseDesc() {
  KernelDesc desc;
  desc.tile_m = 64;
  desc.tile_n = 128;
  desc.tile_k = 32;
  desc.stages = 3;
  return desc;
}

LaunchSpec SpecOf(Kernel& kernel, int swizzle = 0, int splits = 1) {
  LaunchSpec spec;
  spec.kernel = &kernel;
  spec.swizzle = swizzle;
  spec.splits = splits;
  return spec;
}

TEST(ClusterTest, AlikeKernelsShareAGroup) {
  NoKernel a(BaseDesc()), b(BaseDesc());
  const LaunchSpec specs[] = {SpecOf(a, 0), SpecOf(b, 0), SpecOf(a, 3)};
  const auto groups = Cluster(specs);
  ASSERT_EQ(groups.size(), 1u);
  ASSERT_EQ(groups[0].size(), 3u);
}

TEST(ClusterTest, EachPropertySeparates) {
  const std::vector<std::function<void(KernelDesc&)>> changes = {
      [](KernelDesc& d) { d.backend = Backend::kLibrary; },
      [](KernelDesc& d) { d.tile_m = 65; },
      [](KernelDesc& d) { d.tile_n = 65; },
      [](KernelDesc& d) { d.tile_k = 65; },
      [](KernelDesc& d) { d.cluster_m = 2; },
      [](KernelDesc& d) { d.cluster_n = 2; },
      [](KernelDesc& d) { d.stages = 4; },
      [](KernelDesc& d) { d.transpose = true; },
  };
  NoKernel base(BaseDesc());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    KernelDesc desc = BaseDesc();
    changes[i](desc);
    NoKernel other(desc);
    const LaunchSpec specs[] = {SpecOf(base), SpecOf(other)};
    EXPECT_EQ(Cluster(specs).size(), 2u) << "change " << i;
  }
  const LaunchSpec specs[] = {SpecOf(base, 0, 1), SpecOf(base, 0, 2)};
  EXPECT_EQ(Cluster(specs).size(), 2u) << "splits";
}

TEST(ClusterTest, GroupsAndMembersKeepTheirOrder) {
  KernelDesc small = BaseDesc();
  small.tile_m = 8;
  NoKernel a(BaseDesc()), b(small);
  const LaunchSpec specs[] = {SpecOf(a, 2), SpecOf(b, 1), SpecOf(a, 0), SpecOf(b, 0)};
  const auto groups = Cluster(specs);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0][0].kernel, &a);
  EXPECT_EQ(groups[0][0].swizzle, 2);
  EXPECT_EQ(groups[0][1].swizzle, 0);
  EXPECT_EQ(groups[1][0].kernel, &b);
  EXPECT_EQ(groups[1][0].swizzle, 1);
  EXPECT_EQ(groups[1][1].swizzle, 0);
}

TEST(ClusterTest, NothingGivesNoGroupsAndNullKernelsAreAlike) {
  EXPECT_TRUE(Cluster({}).empty());
  const LaunchSpec specs[] = {LaunchSpec{}, LaunchSpec{}};
  EXPECT_EQ(Cluster(specs).size(), 1u);
}

}  // namespace
}  // namespace culet
