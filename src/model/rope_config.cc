#include "model/rope_config.h"

#include <cmath>

#include <fmt/format.h>

namespace culet {
namespace {

using nlohmann::json;

constexpr std::size_t kShown = 40;  // characters of a text of the file in a message

constexpr RopeScaling kScalings[] = {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3,
                                     RopeScaling::kYarn};

// The attention factor of YaRN: grows with the logarithm of the stretch.
double MagnitudeScale(double factor, double weight) {
  constexpr double kPerLog = 0.1;
  return factor <= 1 ? 1.0 : kPerLog * weight * std::log(factor) + 1.0;
}

void ReadScaling(ConfigReader& scaling, int max_position, RopeParams& rope) {
  rope.factor = scaling.PositiveNumber({"factor"});
  scaling.Require(rope.factor >= 1,
                  fmt::format("factor is {}; it must be at least 1", rope.factor));
  if (rope.scaling == RopeScaling::kLinear) return;
  if (rope.scaling == RopeScaling::kYarn) {
    rope.original_context = scaling.NumberOr({"original_max_position_embeddings"}, max_position);
    scaling.Require(rope.original_context > 0,
                    "original_max_position_embeddings and max_position_embeddings are missing");
    rope.beta_fast = scaling.NumberOr({"beta_fast"}, 32);
    rope.beta_slow = scaling.NumberOr({"beta_slow"}, 1);
    rope.truncate = scaling.FlagOr({"truncate"}, true);
    scaling.Require(rope.beta_slow > 0 && rope.beta_fast >= rope.beta_slow,
                    fmt::format("beta_fast is {} and beta_slow {}; 0 < beta_slow <= beta_fast",
                                rope.beta_fast, rope.beta_slow));
    const double mscale = scaling.NumberOr({"mscale"}, 0);
    const double mscale_all = scaling.NumberOr({"mscale_all_dim"}, 0);
    const double usual =
        mscale != 0 && mscale_all != 0
            ? MagnitudeScale(rope.factor, mscale) / MagnitudeScale(rope.factor, mscale_all)
            : MagnitudeScale(rope.factor, 1);
    rope.attention_factor = scaling.NumberOr({"attention_factor"}, usual);
    scaling.Require(
        rope.attention_factor > 0,
        fmt::format("attention_factor is {}; it must be above 0", rope.attention_factor));
    return;
  }
  rope.original_context = scaling.PositiveNumber({"original_max_position_embeddings"});
  rope.low_freq_factor = scaling.PositiveNumber({"low_freq_factor"});
  rope.high_freq_factor = scaling.PositiveNumber({"high_freq_factor"});
  scaling.Require(rope.high_freq_factor > rope.low_freq_factor,
                  fmt::format("high_freq_factor is {}, not above low_freq_factor {}",
                              rope.high_freq_factor, rope.low_freq_factor));
}

}  // namespace

RopeParams ReadRope(const json& root, ConfigReader& config, const std::string& origin, int head_dim,
                    int max_position, double default_theta) {
  const char* const key = config.Has({"rope_parameters"}) ? "rope_parameters" : "rope_scaling";
  static const json kEmpty = json::object();
  const json* object = &kEmpty;
  if (config.Has({key})) {
    object = &root.at(key);
    if (!config.Require(object->is_object(), fmt::format("{} is no object", key))) object = &kEmpty;
  }
  ConfigReader scaling(*object, origin + ": " + key);

  RopeParams rope;
  const double outer_theta = config.NumberOr({"rope_theta"}, default_theta);
  rope.theta = scaling.NumberOr({"rope_theta"}, outer_theta);
  config.Require(!config.Has({"rope_theta"}) || rope.theta == outer_theta,
                 fmt::format("rope_theta is {}, but {} holds {}", outer_theta, key, rope.theta));
  config.Require(rope.theta > 1, fmt::format("rope_theta is {}; it must be above 1", rope.theta));

  for (const auto& [name, value] : object->items()) {
    config.Supported(!value.is_object(),
                     fmt::format("{} holds an object, {}; parameters by layer type are not known",
                                 key, name.substr(0, kShown)));
  }

  std::string type = scaling.TextOrEmpty({"rope_type", "type"});
  if (type.empty()) {
    config.Require(!scaling.Has({"rope_type", "type"}), fmt::format("{}'s type is no text", key));
    // A scaling object must name its type.
    config.Require(!scaling.Has({"factor"}), fmt::format("{} has a factor but no rope_type", key));
    type = ToString(RopeScaling::kNone);
  }
  bool known = false;
  for (const RopeScaling scale : kScalings) {
    if (type != ToString(scale)) continue;
    known = true;
    rope.scaling = scale;
  }
  if (config.Supported(known, fmt::format("{}: the rope type {} is unknown; known are default, "
                                          "linear, llama3, yarn",
                                          key, type.substr(0, kShown))) &&
      rope.scaling != RopeScaling::kNone) {
    ReadScaling(scaling, max_position, rope);
    const double outer_part = config.NumberOr({"partial_rotary_factor"}, 1);
    const double part = scaling.NumberOr({"partial_rotary_factor"}, outer_part);
    config.Supported(
        part == 1,
        fmt::format("partial_rotary_factor is {} with rope type {}; known is 1", part, type));
  }
  rope.dims = head_dim;
  config.Require(head_dim % 2 == 0,
                 fmt::format("head_dim is {}; a head turns by pairs of elements", head_dim));
  config.Adopt(scaling.status());
  return rope;
}

}  // namespace culet
