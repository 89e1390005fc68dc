#include "kernels/cublaslt/lt_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/file_io.h"

namespace culet::lt {
namespace {

// Resolves one function; false leaves its name in `missing`.
template <class Function>
bool Resolve(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) *missing = name;
  return *function != nullptr;
}

// All functions, or the name of one that is missing.
std::string ResolveAll(void* library, Functions* f) {
  std::string missing;
  const auto resolve = [&](const char* name, auto* function) {
    return Resolve(library, name, function, &missing);
  };
  static_cast<void>(resolve("cublasLtCreate", &f->Create) &&
                    resolve("cublasLtGetVersion", &f->GetVersion) &&
                    resolve("cublasLtGetStatusString", &f->GetStatusString) &&
                    resolve("cublasLtMatmul", &f->Matmul) &&
                    resolve("cublasLtMatmulAlgoGetHeuristic", &f->MatmulAlgoGetHeuristic) &&
                    resolve("cublasLtMatmulAlgoCheck", &f->MatmulAlgoCheck) &&
                    resolve("cublasLtMatmulDescInit_internal", &f->MatmulDescInit) &&
                    resolve("cublasLtMatmulDescSetAttribute", &f->MatmulDescSetAttribute) &&
                    resolve("cublasLtMatrixLayoutInit_internal", &f->MatrixLayoutInit) &&
                    resolve("cublasLtMatmulPreferenceInit_internal", &f->PreferenceInit) &&
                    resolve("cublasLtMatmulPreferenceSetAttribute", &f->PreferenceSetAttribute));
  return missing;
}

// Closes a library that is not used after all.
class Opened {
 public:
  explicit Opened(void* handle) : handle_(handle) {}
  ~Opened() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  void* get() const { return handle_; }
  void Keep() { handle_ = nullptr; }

 private:
  void* handle_;
};

// The file that contains an address; a soname alone does not tell people where it is.
std::string FileOf(const void* address, const std::string& otherwise) {
  Dl_info info{};
  return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

}  // namespace

Result<std::unique_ptr<Library>> Library::Open(std::span<const Place> places) {
  std::string reasons;
  for (const Place& place : places) {
    const auto reject = [&](const std::string& reason) {
      reasons += fmt::format("; {} ({}): {}", place.origin, place.file, reason);
    };
    if (const std::string why = WhyNoLibrary(place.file); !why.empty()) {
      reject(why);
      continue;
    }
    const int only = place.mapped_only ? RTLD_NOLOAD : 0;
    Opened opened(dlopen(place.file.c_str(), RTLD_LAZY | RTLD_LOCAL | only));
    if (opened.get() == nullptr) {
      const char* words = dlerror();
      if (!place.mapped_only) reject(words != nullptr ? words : "does not open");
      continue;
    }
    std::unique_ptr<Library> library(new Library);
    if (const std::string missing = ResolveAll(opened.get(), &library->functions_);
        !missing.empty()) {
      reject("has no function " + missing);
      continue;
    }
    library->version_ = library->functions_.GetVersion();
    library->version_text_ = VersionText(library->version_);
    if (library->version_ < kLeastVersion) {
      reject(fmt::format("is version {}; {} is the oldest that serves", library->version_text_,
                         VersionText(kLeastVersion)));
      continue;
    }
    library->file_ =
        FileOf(reinterpret_cast<const void*>(library->functions_.GetVersion), place.file);
    library->origin_ = place.origin;
    opened.Keep();
    return library;
  }
  return Status(StatusCode::kNotFound,
                "no cuBLASLt was found: install the package nvidia-cublas or a CUDA toolkit, or "
                "set CULET_CUBLASLT to the file" +
                    reasons);
}

Result<Library*> Library::Shared() {
  // Never destroyed: threads may still launch while static objects go.
  static auto* const shared =
      new Result<std::unique_ptr<Library>>(Open(PlacesOf(SurroundingsOfProcess())));
  if (!shared->ok()) return shared->status();
  return (*shared)->get();
}

std::string VersionText(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<Handle> Library::HandleOf(int ordinal) {
  const std::lock_guard lock(mutex_);
  if (const auto it = handles_.find(ordinal); it != handles_.end()) return it->second;
  Handle handle = nullptr;
  CULET_RETURN_IF_ERROR(StatusOf(functions_.Create(&handle), "cublasLtCreate"));
  handles_.emplace(ordinal, handle);
  return handle;
}

Status Library::StatusOf(int status, const char* call) const {
  if (status == kSuccess) return {};
  const char* words = functions_.GetStatusString(status);
  const StatusCode code = status == kNotSupported   ? StatusCode::kUnsupported
                          : status == kAllocFailed  ? StatusCode::kResourceExhausted
                          : status == kInvalidValue ? StatusCode::kInvalidArgument
                                                    : StatusCode::kInternal;
  return Status(code, fmt::format("{}: status {}, {} (cuBLASLt {})", call, status,
                                  words != nullptr ? words : "no words", version_text_));
}

}  // namespace culet::lt
