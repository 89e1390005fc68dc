// The libraries that culet looks for at run time, as they are found here.
#pragma once

#include <string>
#include <vector>

#include "culet/doctor.h"

namespace culet {

/// The file of a loaded library whose name begins so, "libcublasLt.so"; empty when none is loaded.
std::string LoadedFile(const std::string& name);

/// cuBLASLt, oneDNN and NCCL. `devices`: whose kernels are asked.
std::vector<LibraryState> LookForLibraries(const std::vector<DeviceInfo>& devices);

}  // namespace culet
