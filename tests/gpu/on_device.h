// Values in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "jobs.h"

namespace culet {

template <class T>
struct OnDevice {
  /// Copies them; an error ends the program.
  explicit OnDevice(const std::vector<T>& values) : memory(values.size() * sizeof(T)) {
    CheckCuda(
        cudaMemcpy(memory.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  }
  T* data() const { return reinterpret_cast<T*>(memory.data()); }
  DeviceMemory memory;
};

}  // namespace culet
