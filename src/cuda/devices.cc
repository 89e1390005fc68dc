#include "cuda/devices.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "cuda/error.h"

namespace culet {

Status AppendCudaDevices(std::vector<DeviceInfo>& devices) {
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
    // Memory is rounded to 10 GB: boards of one class differ by what the driver keeps.
    const std::size_t memory_gb = (prop.totalGlobalMem / 1'000'000'000 + 5) / 10 * 10;
    device.device_class = fmt::format("cuda/{}/{}sm/l2-{}m/mem{}g", device.arch, device.units,
                                      device.cache_bytes >> 20, memory_gb);
    devices.push_back(std::move(device));
  }
  return {};
}

}  // namespace culet
