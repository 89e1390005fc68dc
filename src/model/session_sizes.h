// The sizes of a session, and of its cache of keys and values.
#pragma once

#include <cstddef>

#include "culet/decoder.h"
#include "culet/status.h"

namespace culet {

/// Checks the sizes and the cache's type, and puts what 0 stands for in its place.
/// Errors: INVALID_ARGUMENT, with the name and the value.
Status CompleteSizes(const DecoderConfig& config, SessionOptions& options);

/// Matrices of a layer: of keys and of values, or one of both where attention is latent.
int CacheMatrices(const DecoderConfig& config);

/// Layers that have keys in the cache; the others have linear attention.
std::size_t LayersWithKeys(const DecoderConfig& config);

/// Bytes of the two states of a layer with linear attention, of all sequences. Requires: complete
/// sizes.
std::size_t ConvStateBytes(const DecoderConfig& config, const SessionOptions& options);
std::size_t DeltaStateBytes(const DecoderConfig& config, const SessionOptions& options);

/// Bytes from one matrix to the next. Requires: complete sizes.
std::size_t CacheMatrixBytes(const DecoderConfig& config, const SessionOptions& options);

/// Bytes from one row of scales to the next; a layer has one for its keys and one for its values. 0
/// but for caches of float8_e4m3.
std::size_t CacheScaleBytes(const DecoderConfig& config, const SessionOptions& options);

}  // namespace culet
