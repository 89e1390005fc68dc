#include "kernels/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "culet/registry.h"

namespace culet {

namespace {

// Each CPU kernel but the reference also as its swap-AB twin. The families write D row by row; the
// twins serve column-major D at the same speed.
void AddTransposedTwins(KernelList& kernels) {
  const std::size_t count = kernels.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (kernels[i]->desc().backend == Backend::kReference) continue;
    kernels.push_back(transpose(*kernels[i]));
  }
}

constexpr const char* kProviders[] = {
    kOwnProvider,
#define CULET_CPU_FAMILY(source, Function)
#define CULET_CUDA_FAMILY(source, Function)
#define CULET_PROVIDER(name) name,
#include "kernels/catalog.def"
#undef CULET_CPU_FAMILY
#undef CULET_CUDA_FAMILY
#undef CULET_PROVIDER
};

// The names of a list like "own, cublaslt". Errors: INVALID_ARGUMENT for one that is no provider's.
Result<std::vector<std::string>> ParseProviders(std::string_view list, const char* origin) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string_view name = list.substr(begin, end - begin);
    begin = end + 1;
    const auto first = name.find_first_not_of(" \t"), last = name.find_last_not_of(" \t");
    name = first == std::string_view::npos ? "" : name.substr(first, last + 1 - first);
    if (name.empty()) continue;
    if (name != "all" && std::ranges::find(kProviders, name) == std::end(kProviders)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} names '{}'; the providers of kernels are {}, or all", origin,
                                name, fmt::join(kProviders, ", ")));
    }
    names.emplace_back(name);
  }
  if (names.empty()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("{} is '{}', which leaves out every kernel; name some of {}, or all",
                              origin, list, fmt::join(kProviders, ", ")));
  }
  return names;
}

}  // namespace

KernelList BuiltinKernels(const DeviceInfo& device) {
  KernelList kernels;
  const bool host = device.arch == 0;
#define CULET_PROVIDER(name)
#define CULET_CPU_FAMILY(source, Function) \
  if (host) Function(device, kernels);
#ifdef CULET_WITH_CUDA
#define CULET_CUDA_FAMILY(source, Function) \
  if (!host) Function(device, kernels);
#else
#define CULET_CUDA_FAMILY(source, Function)
#endif
#include "kernels/catalog.def"
#undef CULET_CPU_FAMILY
#undef CULET_CUDA_FAMILY
#undef CULET_PROVIDER
  if (host) AddTransposedTwins(kernels);
  return kernels;
}

Registry Registry::Builtin(const DeviceInfo& device) {
  Registry registry;
  for (auto& kernel : BuiltinKernels(device)) {
    // Add refuses nothing here: tests/registry_test holds the catalog to unique ids.
    static_cast<void>(registry.Add(std::move(kernel)).ok());
  }
  return registry;
}

Result<Registry> Registry::Builtin(const DeviceInfo& device, const std::string& providers) {
  const char* const set = providers.empty() ? std::getenv("CULET_PROVIDERS") : nullptr;
  const std::string list = set != nullptr ? set : providers;
  Registry registry = Builtin(device);
  if (list.empty()) return registry;
  const char* const origin = set != nullptr ? "CULET_PROVIDERS" : "the list of providers";
  const auto names = ParseProviders(list, origin);
  if (!names.ok()) return names.status();
  const auto named = [&](std::string_view name) {
    return std::ranges::find(*names, name) != names->end();
  };
  if (named("all")) return registry;
  for (Kernel* kernel : registry.kernels()) {
    const KernelDesc& desc = kernel->desc();
    if (desc.backend == Backend::kReference || named(desc.provider)) continue;
    CULET_RETURN_IF_ERROR(kernel->LeaveOut(
        Status(StatusCode::kUnsupported,
               fmt::format("left out: {} is '{}', without {}", origin, list, desc.provider))));
  }
  return registry;
}

}  // namespace culet
