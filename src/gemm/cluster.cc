#include "gemm/cluster.h"

#include <cstddef>
#include <map>
#include <tuple>

namespace culet {
namespace {

// What two specs must share to be measured by one of them at first. The rest (swizzle, the kernel's
// inner variations) moves the time by less than these do.
auto KeyOf(const LaunchSpec& spec) {
  const KernelDesc desc = spec.kernel != nullptr ? spec.kernel->desc() : KernelDesc{};
  return std::tuple(desc.backend, desc.tile_m, desc.tile_n, desc.tile_k, desc.cluster_m,
                    desc.cluster_n, desc.stages, desc.transpose, spec.splits, spec.serial,
                    spec.variant);
}

}  // namespace

std::vector<std::vector<int>> ClusterIndices(std::span<const LaunchSpec> specs) {
  std::vector<std::vector<int>> groups;
  std::map<decltype(KeyOf(specs[0])), std::size_t> group_of;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto [found, is_new] = group_of.try_emplace(KeyOf(specs[i]), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(static_cast<int>(i));
  }
  return groups;
}

std::vector<std::vector<LaunchSpec>> Cluster(std::span<const LaunchSpec> specs) {
  std::vector<std::vector<LaunchSpec>> groups;
  for (const auto& members : ClusterIndices(specs)) {
    auto& group = groups.emplace_back();
    for (const int member : members) group.push_back(specs[static_cast<std::size_t>(member)]);
  }
  return groups;
}

}  // namespace culet
