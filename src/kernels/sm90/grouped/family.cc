#include "kernels/catalog.h"
#include "kernels/sm90/grouped/kernels.h"

namespace culet {

void AddSm90Grouped(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch == 900) sm90::AddGroupedKernels(kernels);
}

}  // namespace culet
