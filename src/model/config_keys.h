// Every key that a config.json may have, and what it is to each architecture.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/decoder_architecture.h"

namespace culet {

/// A key that something is made of.
struct ConfigKey {
  const char* name;
  bool everywhere;      ///< has an effect in all architectures, else where they list it
  const char* meaning;  ///< for docs/graph.md
};
std::span<const ConfigKey> UsedKeys();

/// Whether the key has an effect there.
bool Reads(const DecoderArchitecture& architecture, const ConfigKey& key);

/// Keys that change nothing of what culet computes: of training, of generation (which is in
/// generation_config.json), of bookkeeping.
std::span<const char* const> HarmlessKeys();

/// Sentences that name every other key of `config`, and those that say something (are not null,
/// false, 0 or empty) and have no effect in this architecture.
std::vector<std::string> UnusedKeys(const nlohmann::json& config,
                                    const DecoderArchitecture& architecture,
                                    const std::string& origin);

/// The same of a model of several parts, whose text_config is looked at by itself.
std::vector<std::string> UnusedKeysOfContainer(const nlohmann::json& config,
                                               const std::string& origin);

/// The keys of an object, such as rope_scaling, that are not among `known`, as one sentence; none
/// when there are none. `where` begins it: "config.json: rope_scaling".
std::vector<std::string> UnusedKeysOf(const nlohmann::json& object,
                                      std::span<const char* const> known, const std::string& where);

}  // namespace culet
