// oneDNN, found and loaded when a product may first use it.
#pragma once

#include <string>

#include "kernels/onednn/api.h"

namespace culet::onednn {

/// The loaded library, or why there is none.
struct Library {
  Api api{};
  Engine engine = nullptr;
  int isa = 0;          ///< dnnl_cpu_isa_t; 0 where the library knows none, as on ARM
  std::string version;  ///< "3.2.0"
  std::string reason;   ///< empty when the library serves

  bool ok() const noexcept { return reason.empty(); }
  /// Whether the CPU has every instruction set of `bits`.
  bool has(int bits) const noexcept { return (isa & bits) == bits; }
};

/// Opens the library at `path`, or under the name `path` where the loader finds it, and checks that
/// culet can use it: version 3, built without threads of its own or with OpenMP's.
Library Load(const char* path);

/// The library of this process, loaded by the first call: the file that CULET_ONEDNN names, else
/// the copy that is loaded already, else that of the Python environment which culet is installed
/// in, else the one of VIRTUAL_ENV, else the one that the loader finds. Never unloaded.
const Library& TheLibrary();

/// While it lives, oneDNN runs in the calling thread alone.
class OneThread {
 public:
  explicit OneThread(const Library& library) : api_(library.api) {
    if (api_.omp_set_num_threads == nullptr) return;
    before_ = api_.omp_get_max_threads();
    if (before_ != 1) api_.omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ > 1) api_.omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const Api& api_;
  int before_ = 1;
};

}  // namespace culet::onednn
