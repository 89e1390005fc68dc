// The JSON header of a safetensors file, read without building a document: hostile headers cost no
// more than their tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "culet/status.h"

namespace culet {

struct HeaderTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;  ///< bytes behind the header
};

/// Reads {"name": {"dtype": .., "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__":
/// {..}}. Sizes are whole numbers from 0 to 2^63 - 1; whether they fit together is not asked here.
/// Errors: DATA_LOSS with the reason, "origin: " in front.
Result<std::vector<HeaderTensor>> ParseSafetensorsHeader(std::string_view json,
                                                         const std::string& origin);

}  // namespace culet
