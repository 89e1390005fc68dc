// Every key that a config.json may have, and what it is to each architecture.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/find_architecture.h"

namespace culet {

/// The architectures of a DecoderConfig.
enum class Family : std::uint8_t { kLlama, kMistral, kMixtral, kQwen2, kQwen3, kQwen3Moe };

/// Their names, in the order of Family.
std::span<const ArchitectureName> Families();

/// A key that something is made of.
struct ConfigKey {
  const char* name;
  unsigned readers;     ///< bit f: the key has an effect in Family f
  const char* meaning;  ///< for docs/graph.md
  unsigned silent = 0;  ///< bit f: real files of Family f have it without any effect
};
std::span<const ConfigKey> UsedKeys();

/// Keys that change nothing of what culet computes: of training, of generation (which is in
/// generation_config.json), of bookkeeping.
std::span<const char* const> HarmlessKeys();

/// Sentences that name every other key of `config`, and those that say something (are not null,
/// false, 0 or empty) and have no effect in this family.
std::vector<std::string> UnusedKeys(const nlohmann::json& config, Family family,
                                    const std::string& origin);

/// The keys of an object, such as rope_scaling, that are not among `known`, as one sentence; none
/// when there are none. `where` begins it: "config.json: rope_scaling".
std::vector<std::string> UnusedKeysOf(const nlohmann::json& object,
                                      std::span<const char* const> known, const std::string& where);

}  // namespace culet
