// What is one architecture's own in the metadata of a GGUF file, and what files leave unsaid.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "model/gguf_file.h"
#include "model/gguf_keys.h"

namespace culet {

/// Each adds to a config that has sizes, norms, rope and vocabulary already, and refuses by `keys`.
using AddGgufKeys = void(const GgufFile& file, GgufKeys& keys, nlohmann::json& config);

AddGgufKeys AddCohere2Keys, AddCohereKeys, AddDeepseekV2Keys, AddDeepseekV3Keys, AddErnieKeys,
    AddErnieMoeKeys, AddGemma2Keys, AddGemma3Keys, AddGlm4Keys, AddGlm4MoeKeys, AddGptOssKeys,
    AddGraniteKeys, AddLlama4Keys, AddLlamaKeys, AddMiniMaxKeys, AddMixtralKeys, AddOlmo3Keys,
    AddPhi3Keys, AddQwen2MoeKeys, AddQwen3Keys, AddQwen3MoeKeys, AddSeedOssKeys;

/// Whether attention.sliding_window is missing, or 0.
bool HasNoGgufWindow(const GgufFile& file);

}  // namespace culet
