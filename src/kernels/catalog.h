// The families of catalog.def.
#pragma once

#include <memory>
#include <vector>

#include "culet/device.h"
#include "culet/kernel.h"

namespace culet {

using KernelList = std::vector<std::unique_ptr<Kernel>>;

/// Appends the kernels of one family that `device` can run, best first.
using FamilyFunction = void(const DeviceInfo& device, KernelList& kernels);

#define CULET_CPU_FAMILY(source, Function) FamilyFunction Function;
#define CULET_CUDA_FAMILY(source, Function) FamilyFunction Function;
#define CULET_PROVIDER(name)
#include "kernels/catalog.def"
#undef CULET_CPU_FAMILY
#undef CULET_CUDA_FAMILY
#undef CULET_PROVIDER

/// The kernels of all families that `device` can run, in the catalog's order.
KernelList BuiltinKernels(const DeviceInfo& device);

}  // namespace culet
