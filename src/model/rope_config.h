// The rotary embedding of a config.json, in its old and new spellings.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "culet/tensor.h"
#include "model/config_reader.h"

namespace culet {

/// Reads rope_theta and rope_scaling, or rope_parameters that holds both. Rope applies to whole
/// heads: transformers ignores partial_rotary_factor without scaling, and fails with scaling.
/// Errors go to `config`: UNSUPPORTED for an unknown rope type, listing the known ones, for
/// parameters by layer type, and for a partial_rotary_factor of scaled frequencies.
RopeParams ReadRope(const nlohmann::json& root, ConfigReader& config, const std::string& origin,
                    int head_dim, int max_position, double default_theta);

}  // namespace culet
