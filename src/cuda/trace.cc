// NVTX ranges in a domain of culet's own. The header alone is used: it finds a profiler, where one
// is there, at the first range.
#include "base/trace.h"

#include "base/accelerator.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace culet {
namespace {

nvtxDomainHandle_t Domain() noexcept {
  // Not a function's static, whose guard a fork could leave taken. Made twice it is the same one.
  static constinit std::atomic<nvtxDomainHandle_t> made = nullptr;
  nvtxDomainHandle_t domain = made.load(std::memory_order_acquire);
  if (domain == nullptr) made.store(domain = nvtxDomainCreateA("culet"), std::memory_order_release);
  return domain;
}

void Push(const char* name) noexcept {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  nvtxDomainRangePushEx(Domain(), &event);
}

void Pop() noexcept { nvtxDomainRangePop(Domain()); }

constexpr TraceHooks kHooks = {Push, Pop};

}  // namespace

const TraceHooks* AcceleratorTraceHooks() noexcept { return &kHooks; }

}  // namespace culet
#else
namespace culet {

const TraceHooks* AcceleratorTraceHooks() noexcept { return nullptr; }

}  // namespace culet
#endif
