// Sampling of one row of logits on the host.
#pragma once

#include <cstdint>
#include <span>

#include "culet/sampling.h"

namespace culet::sampling {

/// The token that a graph's Sample draws. `scratch`: as many elements as logits.
/// Requires: at least one logit, fewer than 2^32.
std::int32_t SampleRow(std::span<const float> logits, const std::int32_t* options,
                       std::uint64_t draw, std::span<std::uint64_t> scratch);

}  // namespace culet::sampling
