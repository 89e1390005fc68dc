#include "base/accelerator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "base/gpu_class.h"
#include "cuda/error.h"
#include "cuda/power_limit.h"

namespace culet {
namespace {

// An attribute of a device; 0 if the driver does not report it.
double Attribute(cudaDeviceAttr attribute, int ordinal) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, ordinal) == cudaSuccess) return value;
  static_cast<void>(cudaGetLastError());  // not for the next launch to find
  return 0;
}

}  // namespace

bool HasCudaParts() noexcept { return true; }

Status AppendAccelerators(std::vector<DeviceInfo>& devices) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
      return Status(
          StatusCode::kFailedPrecondition,
          fmt::format("the CUDA driver supports CUDA {}.{}, this build needs {}.{}; update "
                      "the driver",
                      driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                      CUDART_VERSION % 1000 / 10));
    }
    return Status(StatusCode::kNotFound, "no CUDA driver on this machine; using the CPU");
  }
  if (error != cudaSuccess || count == 0) {
    return Status(StatusCode::kNotFound,
                  fmt::format("no CUDA device ({}); using the CPU", cudaGetErrorString(error)));
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp prop{};
    CULET_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&prop, i), "cudaGetDeviceProperties"));
    DeviceInfo device;
    device.name = prop.name;
    device.arch = prop.major * 100 + prop.minor * 10;
    device.ordinal = i;
    device.units = prop.multiProcessorCount;
    device.cache_bytes = static_cast<std::size_t>(prop.l2CacheSize);
    device.memory_bytes = prop.totalGlobalMem;
    device.clock_mhz = Attribute(cudaDevAttrClockRate, i) / 1e3;
    // Two transfers a clock.
    device.memory_gbps = 2 * Attribute(cudaDevAttrMemoryClockRate, i) *
                         Attribute(cudaDevAttrGlobalMemoryBusWidth, i) / 8 / 1e6;
    char pci_bus_id[32] = {};
    if (cudaDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id, i) == cudaSuccess) {
      device.power_watts = PowerLimitWatts(pci_bus_id);
    } else {
      static_cast<void>(cudaGetLastError());
    }
    device.device_class = GpuClass(device);
    devices.push_back(std::move(device));
  }
  return {};
}

}  // namespace culet
