// Whole numbers, divided and rounded up.
#pragma once

#include <cstdint>

namespace culet {

/// Requires: a >= 0, b > 0.
constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

}  // namespace culet
