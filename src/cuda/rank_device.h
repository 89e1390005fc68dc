// The GPU of a rank.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "culet/device_memory.h"
#include "culet/ranks.h"
#include "culet/status.h"

namespace culet {

/// The number of the GPU whose memory it is. All ranks call it together. Errors: INVALID_ARGUMENT
/// for two ranks on one GPU, which would wait for each other; as Communicator.
Result<int> DeviceOfRank(Communicator& ranks, DeviceMemory& memory);
/// What tells the GPUs of all ranks apart, by ranks; `device` is this one's. All ranks call it
/// together. Errors: as Communicator.
Result<std::vector<cudaUUID_t>> DevicesOfRanks(Communicator& ranks, int device);

}  // namespace culet
