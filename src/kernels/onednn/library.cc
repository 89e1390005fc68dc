#include "kernels/onednn/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/file_io.h"
#include "base/fork_mutex.h"
#include "base/host_simd.h"
#include "base/made_once.h"

namespace culet::onednn {
namespace {

constexpr const char* kName = "libdnnl.so.3";

// The library's functions, and the first name that is missing.
class Symbols {
 public:
  explicit Symbols(void* handle) : handle_(handle) {}

  template <class Function>
  void Find(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

#define CULET_FIND(function) symbols.Find("dnnl_" #function, api.function)

const char* FindAll(void* handle, Api& api) {
  Symbols symbols(handle);
  CULET_FIND(get_effective_cpu_isa);
  CULET_FIND(set_max_cpu_isa);
  CULET_FIND(engine_create);
  CULET_FIND(stream_create);
  CULET_FIND(stream_destroy);
  CULET_FIND(memory_desc_create_with_strides);
  CULET_FIND(memory_desc_destroy);
  CULET_FIND(memory_desc_get_size);
  CULET_FIND(primitive_attr_create);
  CULET_FIND(primitive_attr_set_scratchpad_mode);
  CULET_FIND(primitive_attr_destroy);
  CULET_FIND(matmul_primitive_desc_create);
  CULET_FIND(primitive_desc_query_md);
  CULET_FIND(primitive_desc_destroy);
  CULET_FIND(primitive_create);
  CULET_FIND(primitive_execute);
  CULET_FIND(primitive_destroy);
  CULET_FIND(memory_create);
  CULET_FIND(memory_destroy);
  return symbols.missing();
}
#undef CULET_FIND

// The copy of OpenMP that the library calls: as its own symbols are bound, the process's global
// scope first (torch may have put one there), then what the library itself was linked with.
const char* FindOpenMp(void* handle, Api& api) {
  for (void* scope : {RTLD_DEFAULT, handle}) {
    Symbols symbols(scope);
    symbols.Find("omp_get_max_threads", api.omp_get_max_threads);
    symbols.Find("omp_set_num_threads", api.omp_set_num_threads);
    if (symbols.missing() == nullptr) return nullptr;
    if (scope == handle) return symbols.missing();
  }
  return nullptr;
}

const char* RuntimeName(unsigned runtime) {
  switch (runtime) {
    case kTbb:
      return "TBB";
    case kThreadPool:
      return "a thread pool of the caller's";
    default:
      return "SYCL or another runtime";
  }
}

// CULET_SIMD bounds the library as it bounds culet's own kernels.
int IsaLimit() {
  const std::string level = HostIsa();
  if (level == "avx2") return kIsaAvx2;
  if (level.starts_with("avx3")) return 0;  // dnnl_cpu_isa_default: all
#if defined(__x86_64__)
  return kIsaSse41;
#else
  return 0;
#endif
}

// Whether `path` is a file; its folder is that of `of` or one of the three above, as in
// prefix/lib/python3.11/site-packages/culet.
std::string FileAbove(std::string of) {
  for (int level = 0; level < 5; ++level) {
    const auto slash = of.rfind('/');
    if (slash == std::string::npos || slash == 0) break;
    of.resize(slash);
    std::string path = of + "/" + kName;
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return {};
}

bool IsLoaded(const char* name) {
  void* handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle != nullptr) dlclose(handle);
  return handle != nullptr;
}

std::string Search() {
  if (IsLoaded(kName)) return kName;
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&TheLibrary), &self) != 0 && self.dli_fname != nullptr &&
      std::string_view(self.dli_fname).find("/site-packages/") != std::string_view::npos) {
    if (std::string path = FileAbove(self.dli_fname); !path.empty()) return path;
  }
  if (const char* environment = std::getenv("VIRTUAL_ENV"); environment != nullptr) {
    std::string path = fmt::format("{}/lib/{}", environment, kName);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  return kName;
}

ForkMutex& LoadMutex() {
  static constinit std::atomic<ForkMutex*> mutex = nullptr;
  return MadeOnce(mutex, std::make_unique<ForkMutex>);
}

}  // namespace

Library Load(const char* path) {
  Library library;
  const auto refuse = [&](std::string reason) {
    library.reason = std::move(reason);
    return library;
  };
  const auto not_there = [&](const std::string& why) {
    return refuse(
        fmt::format("oneDNN is not there ({}); pip install onednn-cpu-gomp, or name the "
                    "file in CULET_ONEDNN",
                    why));
  };
  if (const std::string why = WhyNoLibrary(path); !why.empty()) return not_there(why);
  const bool shared = IsLoaded(path);
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* error = dlerror();
    return not_there(error != nullptr ? error : path);
  }
  // From here on the handle is kept: a library that started threads must not be unmapped.
  Api& api = library.api;
  Symbols versions(handle);
  versions.Find("dnnl_version", api.version);
  const Version* const version = api.version != nullptr ? api.version() : nullptr;
  if (version == nullptr) return refuse(fmt::format("{} is no oneDNN: it has no version", path));
  library.version = fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
  if (version->major != 3) {
    return refuse(
        fmt::format("oneDNN {} has another interface; culet needs version 3 (pip install "
                    "onednn-cpu-gomp)",
                    library.version));
  }
  if (version->cpu_runtime != kSequential && version->cpu_runtime != kOpenMp) {
    return refuse(
        fmt::format("this oneDNN {} is built for {}, whose threads culet cannot hold "
                    "back; it needs a build for OpenMP (pip install onednn-cpu-gomp)",
                    library.version, RuntimeName(version->cpu_runtime)));
  }
  if (const char* missing = FindAll(handle, api); missing != nullptr) {
    return refuse(fmt::format("oneDNN {} lacks {}", library.version, missing));
  }
  if (version->cpu_runtime == kOpenMp) {
    if (const char* missing = FindOpenMp(handle, api); missing != nullptr) {
      return refuse(
          fmt::format("oneDNN {} came with an OpenMP that lacks {}", library.version, missing));
    }
  }
  // Too late in a copy that others use already: then they, too, run with all the CPU has.
  if (!shared) static_cast<void>(api.set_max_cpu_isa(IsaLimit()));
  library.isa = api.get_effective_cpu_isa();
  const OneThread one(library);
  if (const int error = api.engine_create(&library.engine, kCpuEngine, 0); error != kSuccess) {
    return refuse(fmt::format("oneDNN {} gives no engine for the CPU (dnnl_status_t {})",
                              library.version, error));
  }
  return library;
}

const Library& TheLibrary() {
  // Leaked: kernels and reasons refer to it until the process ends. A fork waits for the loader.
  static const Library* library = nullptr;
  const std::lock_guard lock(LoadMutex());
  if (library == nullptr) {
    const char* named = std::getenv("CULET_ONEDNN");
    library = new Library(Load(named != nullptr && *named != '\0' ? named : Search().c_str()));
  }
  return *library;
}

}  // namespace culet::onednn
