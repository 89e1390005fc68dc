#include "base/trace.h"

#include <cstdlib>
#include <string_view>

#include "base/accelerator.h"

namespace culet {

Status SetTracing(bool on) {
  const TraceHooks* const hooks = AcceleratorTraceHooks();
  if (on && hooks == nullptr) {
    return Status(StatusCode::kUnsupported,
                  "this build has no NVTX; build where the CUDA toolkit has nvtx3/nvToolsExt.h");
  }
  trace_hooks = on ? hooks : nullptr;
  return {};
}

void TraceAsEnvironmentSays() noexcept {
  static std::atomic<bool> asked = false;
  if (asked.exchange(true)) return;
  const char* const value = std::getenv("CULET_NVTX");
  if (value != nullptr && std::string_view(value) == "1") {
    // A profiler's switch in a build without NVTX is no reason to fail.
    static_cast<void>(SetTracing(true).ok());
  }
}

}  // namespace culet
