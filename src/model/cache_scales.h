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

/// Those of the checkpoint, or such that no key and no value that the layer can make is beyond 448
/// of them: the rows that its products read come from an RMS norm, so their length has a bound, and
/// with it each sum. Powers of two, by which division is exact.
/// Errors: INVALID_ARGUMENT for a scale of the checkpoint that is no positive number, and for
/// weights that bound nothing; as DeviceMemory::Download.
Result<CacheScales> ScalesOfLayer(const DecoderConfig& config, const LayerWeights& layer,
                                  DeviceMemory& memory);

}  // namespace culet
