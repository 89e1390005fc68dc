// What a GGUF file says of its model beside the weights.
#pragma once

#include <string>

#include "culet/status.h"

namespace culet {

/// The metadata of a GGUF file, or of the only one of a folder without config.json, as JSON: an
/// object by the file's keys, texts that are no UTF-8 with replacement characters; "null" for a
/// path that means no such file.
/// Errors: NOT_FOUND, IO; DATA_LOSS for a damaged file; UNSUPPORTED for a version that is not
/// known; INVALID_ARGUMENT for a folder of several.
Result<std::string> GgufMetadataJson(const std::string& path);

}  // namespace culet
