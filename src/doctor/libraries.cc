#include "doctor/libraries.h"
#include "doctor/close_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>

#include "culet/registry.h"

namespace culet {
namespace {

struct Search {
  std::string_view name;
  std::string file;
};

int Visit(dl_phdr_info* info, std::size_t, void* search_pointer) {
  auto& search = *static_cast<Search*>(search_pointer);
  const std::string_view file = info->dlpi_name != nullptr ? info->dlpi_name : "";
  if (!file.substr(file.rfind('/') + 1).starts_with(search.name)) return 0;
  search.file = file;
  return 1;
}

// What the first kernel of a provider says of its library.
LibraryState AskKernels(const char* name, const char* provider, const char* soname,
                        const std::vector<DeviceInfo>& devices, const char* without) {
  LibraryState state;
  state.name = name;
  state.note = without;
  for (const DeviceInfo& device : devices) {
    const auto registry = Registry::Builtin(device, "");
    if (!registry.ok()) {
      state.note = registry.status().message();
      continue;
    }
    for (const Kernel* kernel : registry->kernels()) {
      if (std::string_view(kernel->desc().provider) != provider) continue;
      const Status& available = kernel->available();
      state.found = available.ok();
      state.note = available.message();
      if (!available.ok()) break;
      state.version = kernel->provider_version();
      state.path = LoadedFile(soname);
      return state;
    }
  }
  return state;
}

// Where NCCL may lie: loaded already, beside the packages of this Python environment, or where the
// loader finds it.
std::vector<std::string> PlacesOfNccl() {
  constexpr const char* kName = "libnccl.so.2";
  std::vector<std::string> places;
  if (std::string loaded = LoadedFile(kName); !loaded.empty()) places.push_back(std::move(loaded));
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&LoadedFile), &self) != 0 && self.dli_fname != nullptr) {
    const std::filesystem::path packages =
        std::filesystem::path(self.dli_fname).parent_path().parent_path();
    places.push_back((packages / "nvidia" / "nccl" / "lib" / kName).string());
  }
  places.emplace_back(kName);
  return places;
}

LibraryState LookForNccl() {
  LibraryState state;
  state.name = "NCCL";
  for (const std::string& place : PlacesOfNccl()) {
    const std::unique_ptr<void, CloseLibrary> library(
        dlopen(place.c_str(), RTLD_LAZY | RTLD_LOCAL));
    if (library == nullptr) continue;
    const auto version = reinterpret_cast<int (*)(int*)>(dlsym(library.get(), "ncclGetVersion"));
    int number = 0;
    if (version == nullptr || version(&number) != 0) continue;
    state.found = true;
    // 2.9 and newer write 10000 a major version, older ones 1000.
    state.version = number >= 10000
                        ? fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100)
                        : fmt::format("{}.{}.{}", number / 1000, number / 100 % 10, number % 100);
    state.path = LoadedFile("libnccl.so.2");
    state.note = "for products and models over several GPUs";
    return state;
  }
  state.note = "not there; only several GPUs together need it (pip install nvidia-nccl-cu12)";
  return state;
}

}  // namespace

std::string LoadedFile(const std::string& name) {
  Search search{name, {}};
  dl_iterate_phdr(Visit, &search);
  return search.file;
}

std::vector<LibraryState> LookForLibraries(const std::vector<DeviceInfo>& devices) {
  std::vector<LibraryState> states;
  states.push_back(AskKernels("cuBLASLt", "cublaslt", "libcublasLt.so", devices,
                              "not looked for: there is no CUDA device"));
  states.push_back(AskKernels("oneDNN", "onednn", "libdnnl.so", devices,
                              "not looked for: this build has no such kernels"));
  states.push_back(LookForNccl());
  return states;
}

}  // namespace culet
