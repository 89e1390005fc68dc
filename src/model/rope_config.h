// The rotary embedding of a config.json, in its old and new spellings.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "culet/tensor.h"
#include "model/config_reader.h"

namespace culet {

/// Reads rope_theta, rope_scaling and partial_rotary_factor, or rope_parameters that holds them.
/// Errors go to `config`: UNSUPPORTED for an unknown rope type, listing the known ones.
RopeParams ReadRope(const nlohmann::json& root, ConfigReader& config, const std::string& origin,
                    int head_dim, int max_position, double default_theta);

}  // namespace culet
