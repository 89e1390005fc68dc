// The rotary embedding of a config.json, in its old and new spellings.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "culet/tensor.h"
#include "model/config_reader.h"

namespace culet {

/// What the rotary embedding takes from the rest of the config.
struct RopeContext {
  int head_dim = 0;
  int max_position = 0;
  double default_theta = 0;
  double partial = 0;  ///< partial_rotary_factor where the key is missing; 0: whole heads turn
  const char* layer_type = nullptr;       ///< whose part of rope_parameters counts; null: all of it
  const char* head_dim_key = "head_dim";  ///< what head_dim is called in messages
};

/// What YaRN's mscale_all_dim makes of the scale of queries times keys in models that heed it: it
/// is multiplied by this number. 1 without the key. Requires: what ReadRope has checked. Errors go
/// to `config`: UNSUPPORTED for the key with another scaled rope type.
double LogitFactor(const nlohmann::json& root, ConfigReader& config, const RopeParams& rope);

/// Reads rope_theta with rope_scaling or rope_parameters, which may hold rope_theta, too. An empty
/// one of the two does not count; where both are given they must mean the same. Unless the context
/// says that parts of heads may turn, whole heads do: the architectures' own library ignores
/// partial_rotary_factor there where nothing is scaled, and fails where something is. Keys without
/// effect are named in `warnings`. Errors go to `config`: INVALID_ARGUMENT for two that differ,
/// naming both; UNSUPPORTED for an unknown rope type, listing the known ones, for parameters by
/// layer type, and for a partial_rotary_factor of scaled frequencies.
RopeParams ReadRope(const nlohmann::json& root, ConfigReader& config, const std::string& origin,
                    const RopeContext& context, std::vector<std::string>& warnings);

}  // namespace culet
