// The activation of gated products, on the host.
#pragma once

#include <cmath>

namespace culet::sm90 {

inline float Silu(float x) { return x / (1.0f + std::exp(-x)); }

}  // namespace culet::sm90
