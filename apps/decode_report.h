// What `culet bench --decode` prints.
#pragma once

#include "culet/device.h"
#include "decode_bench.h"

namespace culet::cli {

/// A summary and tables, or one document.
void PrintDecode(const DeviceInfo& device, const DecodeBenchOptions& options,
                 const DecodeMeasurement& measured, bool complete, bool json);

}  // namespace culet::cli
