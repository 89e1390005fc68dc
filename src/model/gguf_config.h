// The metadata of a GGUF file as what its checkpoint's JSON files would say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "culet/decoder.h"
#include "model/gguf_file.h"
#include "model/gguf_names.h"

namespace culet {

/// What general.architecture says, and expert_count.
/// Errors: INVALID_ARGUMENT without the key; UNSUPPORTED for one that is not known, listing those
/// that are, and for a file of several that belong together.
Result<const GgufArchitecture*> GgufArchitectureOf(const GgufFile& file);

/// The text of a config.json; its quantization_config says gguf.
/// Errors: as GgufArchitectureOf; INVALID_ARGUMENT for a key of metadata that is missing or
/// impossible, named with its value; UNSUPPORTED for what no decoder has.
Result<std::string> GgufConfigText(const GgufFile& file);

/// What no config.json can say: how rows of q and k lie, and how many elements the largest blocks
/// have. Requires: a config of GgufConfigText.
void FinishGgufConfig(const GgufFile& file, DecoderConfig& config);

/// So many blocks behind the layers predict tokens ahead. Requires: as FinishGgufConfig.
std::int64_t GgufBlocksAhead(const GgufFile& file);

/// Tokens that end a text, by the metadata and by the names that chat models give them; may be
/// empty.
std::vector<int> GgufEndTokens(const GgufFile& file);

/// All metadata as JSON; texts that are no UTF-8 with replacement characters.
std::string GgufMetadataText(const GgufFile& file);

}  // namespace culet
