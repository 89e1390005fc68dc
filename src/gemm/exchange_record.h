// A line of a cache that says how ranks make their sums.
#pragma once

#include <string>
#include <string_view>

#include "culet/exchange_choice.h"

namespace culet {

/// Whether it is one, with the right checksum.
bool IsExchangeRecord(std::string_view line);

}  // namespace culet
