// Registry: order is preference, ids are unique, the reference is the last resort.
#include "culet/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "culet/device.h"
#include "fake_kernel.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Kernel> Make(const std::string& id, Backend backend = Backend::kUser) {
  return std::make_unique<FakeKernel>(id, backend);
}

std::vector<std::string> Ids(const Registry& registry) {
  std::vector<std::string> ids;
  for (const Kernel* kernel : registry.kernels()) ids.push_back(kernel->id());
  return ids;
}

TEST(Registry, KeepsTheOrderOfAddingAndReferencesLast) {
  Registry registry;
  EXPECT_TRUE(registry.kernels().empty());
  ASSERT_TRUE(registry.Add(Make("reference", Backend::kReference)).ok());
  ASSERT_TRUE(registry.Add(Make("native/a", Backend::kNative)).ok());
  ASSERT_TRUE(registry.Add(Make("library/b", Backend::kLibrary)).ok());
  ASSERT_TRUE(registry.Add(Make("reference/2", Backend::kReference)).ok());
  ASSERT_TRUE(registry.Add(Make("user/c")).ok());
  EXPECT_THAT(Ids(registry),
              ElementsAre("native/a", "library/b", "user/c", "reference", "reference/2"));
}

TEST(Registry, RefusesWhatHasNoNameOfItsOwn) {
  Registry registry;
  ASSERT_TRUE(registry.Add(Make("a")).ok());

  const Status null = registry.Add(nullptr);
  EXPECT_EQ(null.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(null.message(), HasSubstr("kernel is null"));

  const Status unnamed = registry.Add(Make(""));
  EXPECT_EQ(unnamed.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(unnamed.message(), HasSubstr("KernelInfo::name is empty"));

  const Status taken = registry.Add(Make("a", Backend::kReference));
  EXPECT_EQ(taken.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(taken.message(), HasSubstr("'a'"));
  EXPECT_THAT(taken.message(), HasSubstr("another id"));

  EXPECT_THAT(Ids(registry), ElementsAre("a"));
}

TEST(Registry, FindsByWholeId) {
  Registry registry;
  ASSERT_TRUE(registry.Add(Make("family/one")).ok());
  ASSERT_TRUE(registry.Add(Make("family/two")).ok());
  EXPECT_EQ(registry.Find("family/two"), registry.kernels()[1]);
  EXPECT_EQ(registry.Find("family"), nullptr);
  EXPECT_EQ(registry.Find("family/two/t"), nullptr);
  EXPECT_EQ(registry.Find(""), nullptr);
}

TEST(Registry, KernelsStayWhereTheyAreWhenItGrowsAndMoves) {
  Registry registry;
  ASSERT_TRUE(registry.Add(Make("first")).ok());
  Kernel* const first = registry.Find("first");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(registry.Add(Make(std::to_string(i))).ok());
  Registry moved = std::move(registry);
  EXPECT_EQ(moved.Find("first"), first);
  EXPECT_EQ(moved.kernels().size(), 101u);
  registry = std::move(moved);
  EXPECT_EQ(registry.Find("first"), first);
}

TEST(BuiltinKernels, HaveIdsOfTheirOwn) {
  for (const DeviceInfo& device : Devices()) {
    SCOPED_TRACE(device.device_class);
    std::set<std::string> ids;
    for (const auto& kernel : BuiltinKernels(device)) {
      EXPECT_TRUE(ids.insert(kernel->id()).second) << "two kernels are called " << kernel->id();
      EXPECT_FALSE(kernel->id().empty());
      EXPECT_EQ(kernel->desc().arch, device.arch) << kernel->id();
      EXPECT_NE(kernel->desc().backend, Backend::kUser) << kernel->id();
    }
    const Registry registry = Registry::Builtin(device);
    EXPECT_EQ(registry.kernels().size(), ids.size()) << "the registry lost a kernel";
  }
}

TEST(BuiltinRegistry, OfTheHostEndsWithTheReferenceBehindUsersKernels) {
  Registry registry = Registry::Builtin(HostDevice());
  ASSERT_TRUE(registry.Add(Make("user/own")).ok());
  const auto& kernels = registry.kernels();
  ASSERT_GE(kernels.size(), 3u);
  EXPECT_EQ(kernels.back()->desc().backend, Backend::kReference);
  EXPECT_EQ(kernels[kernels.size() - 2]->id(), "user/own");
  for (std::size_t i = 0; i + 1 < kernels.size(); ++i) {
    EXPECT_NE(kernels[i]->desc().backend, Backend::kReference) << kernels[i]->id();
  }
}

}  // namespace
}  // namespace culet
