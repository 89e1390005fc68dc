// The cuBLASLt of this machine: opened when the first plan may use it, then kept.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "culet/status.h"
#include "kernels/cublaslt/lt_abi.h"
#include "kernels/cublaslt/lt_search.h"

namespace culet::lt {

/// Older ones are not used at all: CUDA 12.0's.
inline constexpr std::size_t kLeastVersion = 120000;

/// An open cuBLASLt. Never closed: it holds kernels that graphs may still replay.
class Library {
 public:
  /// Opens the first place that holds a usable library. Errors: NOT_FOUND when there is none, with
  /// what every place that exists lacks.
  static Result<std::unique_ptr<Library>> Open(std::span<const Place> places);

  /// That of the process, opened at the first call; opening takes a second when the file is cold.
  /// Errors: as Open, the same at every call.
  static Result<Library*> Shared();

  const Functions& functions() const noexcept { return functions_; }
  /// cublasLtGetVersion(): 130100 is 13.1.0.
  std::size_t version() const noexcept { return version_; }
  /// "13.1.0".
  const std::string& version_text() const noexcept { return version_text_; }
  const std::string& file() const noexcept { return file_; }
  const std::string& origin() const noexcept { return origin_; }

  /// The handle of a device, which must be current; one a device, shared by all threads.
  /// Errors: INTERNAL, with the library's own words.
  Result<Handle> HandleOf(int ordinal);

  /// "cublasLtMatmul: status 15, the requested functionality is not supported (cuBLASLt 13.1.0)";
  /// OK for kSuccess.
  Status StatusOf(int status, const char* call) const;

 private:
  Library() = default;

  Functions functions_{};
  std::size_t version_ = 0;
  std::string version_text_, file_, origin_;
  std::mutex mutex_;
  std::map<int, Handle> handles_;
};

/// "13.1.0" for 130100.
std::string VersionText(std::size_t version);

}  // namespace culet::lt
