// The scales of a cache of keys and values in E4M3.
#pragma once

#include <vector>

#include "culet/decoder.h"
#include "culet/status.h"

namespace culet {

/// One a key-value head.
struct CacheScales {
  std::vector<float> keys, values;
};

/// The checkpoint's scales, or powers of two such that no key or value of the layer exceeds 448 of
/// them: inputs of its products come from a norm, so their length, and with it each sum, is
/// bounded. Division by powers of two is exact. Errors: INVALID_ARGUMENT for a scale of the
/// checkpoint that is no positive number, for weights that bound nothing, and for layers without a
/// norm before attention; as DeviceMemory::Download.
Result<CacheScales> ScalesOfLayer(const DecoderConfig& config, const LayerWeights& layer,
                                  int number, DeviceMemory& memory);

}  // namespace culet
