#include "kernels/cublaslt/lt_search.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/file_io.h"

namespace culet::lt {
namespace {

namespace fs = std::filesystem;

// Those whose interface lt_abi.h describes, newest first, with their folder in Python's packages.
struct Generation {
  const char* soname;
  const char* package;
};
constexpr Generation kGenerations[] = {
    {"libcublasLt.so.13", "nvidia/cu13/lib"},
    {"libcublasLt.so.12", "nvidia/cublas/lib"},
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The file that holds this function; empty where the loader does not know.
std::string OwnFile() {
  Dl_info info{};
  const auto* address = reinterpret_cast<const void*>(&SurroundingsOfProcess);
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  // A program is known by the word that started it, which is no path where PATH was searched.
  const bool path = std::string_view(info.dli_fname).find('/') != std::string_view::npos;
  std::error_code error;
  const fs::path file = fs::canonical(path ? info.dli_fname : "/proc/self/exe", error);
  return error ? std::string() : file.string();
}

// PREFIX/lib/python3.*/site-packages, sorted.
std::vector<fs::path> SitePackages(const fs::path& prefix) {
  const fs::path folder = prefix / "lib";
  std::vector<fs::path> found;
  for (const std::string& name : NamesIn(folder.string())) {
    if (name.starts_with("python3")) found.push_back(folder / name / "site-packages");
  }
  std::ranges::sort(found);
  return found;
}

bool Exists(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error);
}

}  // namespace

Surroundings SurroundingsOfProcess() {
  Surroundings found;
  found.explicit_file = Environment("CULET_CUBLASLT");
  found.own_file = OwnFile();
  found.virtual_env = Environment("VIRTUAL_ENV");
  for (const std::string& folder :
       {Environment("CUDA_HOME"), Environment("CUDA_PATH"), std::string("/usr/local/cuda")}) {
    if (!folder.empty()) found.toolkits.push_back(folder);
  }
  return found;
}

std::vector<Place> PlacesOf(const Surroundings& surroundings) {
  if (!surroundings.explicit_file.empty()) {
    return {{surroundings.explicit_file, "CULET_CUBLASLT", false}};
  }
  std::vector<Place> places;
  const auto add_if_there = [&](const fs::path& file, const char* origin) {
    if (Exists(file)) places.push_back({file.string(), origin, false});
  };
  for (const Generation& it : kGenerations) {
    places.push_back({it.soname, "a copy that the process uses already", true});
  }
  std::vector<fs::path> packages;
  if (!surroundings.own_file.empty()) {
    // site-packages/culet/libculet.so
    packages.push_back(fs::path(surroundings.own_file).parent_path().parent_path());
  }
  if (!surroundings.virtual_env.empty()) {
    for (fs::path& folder : SitePackages(surroundings.virtual_env)) {
      packages.push_back(std::move(folder));
    }
  }
  for (const fs::path& folder : packages) {
    for (const Generation& it : kGenerations) {
      add_if_there(folder / it.package / it.soname, "Python's nvidia packages");
    }
  }
  for (const Generation& it : kGenerations)
    places.push_back({it.soname, "the loader's path", false});
  for (const std::string& toolkit : surroundings.toolkits) {
    for (const char* folder : {"lib64", "lib"}) {
      for (const Generation& it : kGenerations) {
        add_if_there(fs::path(toolkit) / folder / it.soname, "the CUDA toolkit");
      }
    }
  }
  return places;
}

}  // namespace culet::lt
