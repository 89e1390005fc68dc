// What culet knows of devices, kernels, problems and models, as JSON for programs. Each text is one
// object, in UTF-8, without line ends; numbers that are not finite are null.
#pragma once

#include <string>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/gemm.h"
#include "culet/kernel.h"
#include "culet/model.h"

namespace culet {

/// "device" ("cpu", "cuda:0"), "name", "class", "arch", "units", "cache_bytes", "memory_bytes".
std::string JsonOf(const DeviceInfo& device);

/// "read_gbps", "gflops", "launch_us", "measured".
std::string JsonOf(const HardwareRates& rates);

/// "id", "backend", "provider", "unavailable" (why, or ""), types, tile, and what it costs. Types
/// and packed formats that a kernel leaves open are null.
std::string JsonOf(const Kernel& kernel);

/// "text", for people, and every field of the key by its name in cache files.
std::string JsonOf(const GemmDesc& problem);

/// "kernel", its parameters, "time_us" and where that comes from.
std::string JsonOf(const LaunchSpec& choice);

/// "problem", "choice", "source", "layer" (whose measurement it is, or null), "predicted_us",
/// "roofline_us", "roofline_share", and "rejected": a list of "kernel", "feasible", "reason".
std::string JsonOf(const Explanation& explanation);

/// "architecture", "model_type", "format" (or null), and "products": a list of "name", "n", "k",
/// "layers", "experts", "active_experts".
std::string JsonOf(const ModelShapes& shapes);

}  // namespace culet
