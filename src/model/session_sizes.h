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

/// Steps that Decode launches before the first one's tokens are read. When a sequence ends, steps
/// that ran ahead are lost, so there are only as many as hide the host's work.
constexpr int kAhead = 3;

/// Blocks of a sequence's ring, for layers with windows or chunks: enough for what a query of a
/// step sees, and for what that step and those ahead store. 0: none, as the whole cache takes no
/// more. Requires: complete sizes.
int RingBlocks(const DecoderConfig& config, const SessionOptions& options);
/// Whether the layer's keys lie in rings if there are any.
bool MayHaveRing(const DecoderConfig& config, std::size_t layer);
/// The most positions that a query of such a layer sees.
int RingReach(const DecoderConfig& config);

/// Bytes of the two states of a layer with linear attention, of all sequences. Requires: complete
/// sizes.
std::size_t ConvStateBytes(const DecoderConfig& config, const SessionOptions& options);
std::size_t DeltaStateBytes(const DecoderConfig& config, const SessionOptions& options);

/// Bytes of a matrix of the layer. Requires: complete sizes.
std::size_t CacheMatrixBytes(const DecoderConfig& config, const SessionOptions& options,
                             std::size_t layer);

/// Bytes from one row of scales to the next; a layer has one for its keys and one for its values. 0
/// but for caches of float8_e4m3.
std::size_t CacheScaleBytes(const DecoderConfig& config, const SessionOptions& options);

}  // namespace culet
