#include "graph/cuda/handed.h"

#include <cuda_runtime_api.h>

#include "cuda/error.h"

namespace culet::cuda_ops {
namespace {

// A launch that hands on waits for the one before it in the ordinary way, so that of all launches
// before these two nothing is under way any more. And the first launch of a graph comes before it:
// that one begins when the state is zero.
bool AreLinked(const NodeLaunch& from, const NodeLaunch& to) noexcept {
  const auto* const hands = dynamic_cast<const HandsOn*>(from.prepared);
  const auto* const takes = dynamic_cast<const TakesHanded*>(to.prepared);
  return hands != nullptr && takes != nullptr && takes->taken() >= 0 &&
         hands->handed_on() == takes->taken() && to.state != 0 && from.previous != nullptr;
}

}  // namespace

DevicePtr HandedTo(const NodeLaunch& launch) noexcept {
  if (launch.next == nullptr || !AreLinked(launch, *launch.next)) return 0;
  return launch.next->state;
}

DevicePtr HandedFrom(const NodeLaunch& launch) noexcept {
  if (launch.previous == nullptr || !AreLinked(*launch.previous, launch)) return 0;
  return launch.state;
}

Status ClearHanded(const NodeLaunch& launch) {
  DevicePtr begin = 0, end = 0;
  bool any = false;
  for (const NodeLaunch* l = &launch; l != nullptr; l = l->next) {
    if (l->state == 0) continue;
    if (begin == 0) begin = l->state;
    end = l->state + l->prepared->state_bytes();
    any = any || HandedFrom(*l) != 0;
  }
  if (!any) return {};
  return CudaStatus(cudaMemsetAsync(FromDevicePtr<void>(begin), 0, end - begin, launch.stream),
                    "zeroing what launches hand on");
}

}  // namespace culet::cuda_ops
