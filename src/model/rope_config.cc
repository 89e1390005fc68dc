#include "model/rope_config.h"

#include <cmath>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "culet/printable.h"
#include "model/config_keys.h"
#include "model/shown.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr RopeScaling kScalings[] = {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3,
                                     RopeScaling::kYarn, RopeScaling::kLongRope};

// The attention factor of YaRN: grows with the logarithm of the stretch.
double MagnitudeScale(double factor, double weight) {
  constexpr double kPerLog = 0.1;
  return factor <= 1 ? 1.0 : kPerLog * weight * std::log(factor) + 1.0;
}

std::vector<double> Divisors(ConfigReader& scaling, const char* key, int dims) {
  std::vector<double> divisors = scaling.Numbers({key});
  bool positive = true;
  for (const double divisor : divisors) positive &= divisor > 0;
  scaling.Require(divisors.size() == static_cast<std::size_t>(dims / 2) && positive,
                  fmt::format("{} is {}; it must be a list of {} numbers above 0, one for each "
                              "pair of elements that turns",
                              key, scaling.Shown({key}), dims / 2));
  return divisors;
}

// Frequencies are divided each by its own number, by others in sequences beyond the original
// context.
void ReadLongRope(ConfigReader& scaling, double original_context, int max_position,
                  RopeParams& rope) {
  rope.original_context = original_context;
  if (!scaling.Require(original_context > 1,
                       "original_max_position_embeddings and max_position_embeddings are missing, "
                       "or no number above 1")) {
    return;
  }
  rope.factor = scaling.Has({"factor"}) ? scaling.PositiveNumber({"factor"})
                                        : max_position / original_context;
  const double usual =
      rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(original_context));
  rope.attention_factor = scaling.NumberOr({"attention_factor"}, usual);
  scaling.Require(rope.factor > 0 && rope.attention_factor > 0,
                  fmt::format("factor is {} and attention_factor {}; both must be above 0",
                              rope.factor, rope.attention_factor));
  rope.short_divisors = Divisors(scaling, "short_factor", rope.dims);
  rope.long_divisors = Divisors(scaling, "long_factor", rope.dims);
}

void ReadScaling(ConfigReader& scaling, double original_context, RopeParams& rope) {
  rope.factor = scaling.PositiveNumber({"factor"});
  scaling.Require(rope.factor >= 1,
                  fmt::format("factor is {}; it must be at least 1", rope.factor));
  if (rope.scaling == RopeScaling::kLinear) return;
  rope.original_context = original_context;
  scaling.Require(rope.original_context > 0,
                  "original_max_position_embeddings and max_position_embeddings are missing, or no "
                  "number above 0");
  if (rope.scaling == RopeScaling::kYarn) {
    rope.beta_fast = scaling.NumberOr({"beta_fast"}, 32);
    rope.beta_slow = scaling.NumberOr({"beta_slow"}, 1);
    scaling.NotNull("truncate");
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
  rope.low_freq_factor = scaling.PositiveNumber({"low_freq_factor"});
  rope.high_freq_factor = scaling.PositiveNumber({"high_freq_factor"});
  scaling.Require(rope.high_freq_factor >= rope.low_freq_factor,
                  fmt::format("high_freq_factor is {}, less than low_freq_factor {}",
                              rope.high_freq_factor, rope.low_freq_factor));
}

constexpr const char* kPlainKeys[] = {"rope_type", "type", "rope_theta"};
constexpr const char* kLinearKeys[] = {"rope_type", "type", "rope_theta", "factor",
                                       "partial_rotary_factor"};
constexpr const char* kLlama3Keys[] = {"rope_type",
                                       "type",
                                       "rope_theta",
                                       "factor",
                                       "partial_rotary_factor",
                                       "original_max_position_embeddings",
                                       "low_freq_factor",
                                       "high_freq_factor"};
constexpr const char* kLongRopeKeys[] = {"rope_type",
                                         "type",
                                         "rope_theta",
                                         "factor",
                                         "partial_rotary_factor",
                                         "original_max_position_embeddings",
                                         "attention_factor",
                                         "short_factor",
                                         "long_factor"};
constexpr const char* kYarnKeys[] = {"rope_type",
                                     "type",
                                     "rope_theta",
                                     "factor",
                                     "partial_rotary_factor",
                                     "original_max_position_embeddings",
                                     "attention_factor",
                                     "beta_fast",
                                     "beta_slow",
                                     "mscale",
                                     "mscale_all_dim",
                                     "truncate",
                                     "llama_4_scaling_beta",
                                     "max_position_embeddings"};

std::span<const char* const> KeysOf(RopeScaling scaling) {
  switch (scaling) {
    case RopeScaling::kLinear:
      return kLinearKeys;
    case RopeScaling::kLlama3:
      return kLlama3Keys;
    case RopeScaling::kYarn:
      return kYarnKeys;
    case RopeScaling::kLongRope:
      return kLongRopeKeys;
    default:
      return kPlainKeys;
  }
}

class RopeReader {
 public:
  RopeReader(const json& root, ConfigReader& config, const std::string& origin,
             const RopeContext& context, std::vector<std::string>& warnings)
      : root_(root), config_(config), origin_(origin), context_(context), warnings_(warnings) {}

  RopeParams Read() {
    constexpr const char* kScaling = "rope_scaling";
    constexpr const char* kParameters = "rope_parameters";
    const bool scaling = Counts(kScaling), parameters = Counts(kParameters);
    RopeParams rope = ReadObject(scaling ? kScaling : kParameters);
    if (scaling && parameters) {
      config_.Require(ReadObject(kParameters) == rope,
                      fmt::format("rope_scaling is {}, but rope_parameters is {}; the two are "
                                  "spellings of one key, and must mean the same: remove one",
                                  config_.Shown({kScaling}), config_.Shown({kParameters})));
    }
    if (rope.scaling == RopeScaling::kNone || rope.scaling == RopeScaling::kLinear) {
      // Files of Phi-3 name the context that is not stretched.
      const double original = config_.NumberOr({kOriginal}, context_.max_position);
      WarnUnless(original == context_.max_position, kOriginal, rope.scaling);
    }
    if (context_.partial > 0) return rope;
    const bool whole = config_.NumberOr({kPart}, 1) == 1;
    if (rope.scaling == RopeScaling::kNone) WarnUnless(whole, kPart, rope.scaling);
    return rope;
  }

 private:
  static constexpr const char* kOriginal = "original_max_position_embeddings";
  static constexpr const char* kPart = "partial_rotary_factor";

  void WarnUnless(bool fine, const char* key, RopeScaling scaling) {
    if (fine) return;
    warnings_.push_back(
        fmt::format("{}: {} has no effect with rope type {}", origin_, key, ToString(scaling)));
  }

  // Elements of a head that turn.
  int Dims(ConfigReader& scaling) {
    if (context_.partial == 0) {
      config_.Require(context_.head_dim % 2 == 0,
                      fmt::format("{} is {}; a head turns by pairs of elements",
                                  context_.head_dim_key, context_.head_dim));
      return context_.head_dim;
    }
    config_.NotNull(kPart);
    scaling.NotNull(kPart);
    const double outer = config_.NumberOr({kPart}, context_.partial);
    const double part = scaling.NumberOr({kPart}, outer);
    config_.Require(!config_.Has({kPart}) || part == outer,
                    fmt::format("{} is {}, but within rope_parameters {}", kPart, outer, part));
    const int dims = part > 0 && part <= 1 ? static_cast<int>(context_.head_dim * part) : 0;
    return config_.Require(dims >= 2 && dims % 2 == 0,
                           fmt::format("{} is {}; of a head of {} elements an even number must "
                                       "turn, 2 or more",
                                       kPart, part, context_.head_dim))
               ? dims
               : 2;
  }

  // Whether the key holds something.
  bool Counts(const char* key) {
    if (!config_.Has({key})) return false;
    const json& value = root_.at(key);
    return config_.Require(value.is_object(), fmt::format("{} is no object", key)) &&
           !value.empty();
  }

  RopeParams ReadObject(const char* key) {
    static const json kEmpty = json::object();
    const auto it = root_.find(key);
    const json* found = it != root_.end() && it->is_object() ? &*it : &kEmpty;
    std::string where = fmt::format("{}: {}", origin_, key);
    if (context_.layer_type != nullptr && found->contains(context_.layer_type)) {
      found = &found->at(context_.layer_type);
      where += fmt::format(".{}", context_.layer_type);
      if (!config_.Require(found->is_object(), fmt::format("{} is no object", where))) {
        found = &kEmpty;
      }
    }
    const json& object = *found;
    ConfigReader scaling(object, where);
    RopeParams rope;
    const double outer_theta = config_.NumberOr({"rope_theta"}, context_.default_theta);
    rope.theta = scaling.NumberOr({"rope_theta"}, outer_theta);
    config_.Require(!config_.Has({"rope_theta"}) || rope.theta == outer_theta,
                    fmt::format("rope_theta is {}, but {} holds {}", outer_theta, key, rope.theta));
    config_.Require(rope.theta > 1,
                    fmt::format("rope_theta is {}; it must be above 1", rope.theta));
    for (const auto& [name, value] : object.items()) {
      config_.Supported(
          !value.is_object(),
          fmt::format("{} holds an object, {}; parameters by layer type are not known", key,
                      Printable(name, kShownText)));
    }
    const bool known = ReadType(key, scaling, rope);
    rope.dims = Dims(scaling);
    if (known && rope.scaling == RopeScaling::kLongRope) {
      const double original = scaling.NumberOr({kOriginal}, context_.max_position);
      ReadLongRope(scaling, config_.NumberOr({kOriginal}, original), context_.max_position, rope);
    } else if (known && rope.scaling != RopeScaling::kNone) {
      const double original =
          scaling.NumberOr({kOriginal}, context_.max_position);  // the outer one counts more
      ReadScaling(scaling, config_.NumberOr({kOriginal}, original), rope);
      const double part = scaling.NumberOr({kPart}, config_.NumberOr({kPart}, 1));
      config_.Supported(part == 1 || context_.partial > 0,
                        fmt::format("partial_rotary_factor is {} with rope type {}; known is 1",
                                    part, ToString(rope.scaling)));
    }
    config_.Adopt(scaling.status());
    std::vector<const char*> known_keys(KeysOf(rope.scaling).begin(), KeysOf(rope.scaling).end());
    if (context_.partial > 0) known_keys.push_back(kPart);
    for (std::string& unused : UnusedKeysOf(object, known_keys, where)) {
      warnings_.push_back(std::move(unused));
    }
    return rope;
  }

  bool ReadType(const char* key, ConfigReader& scaling, RopeParams& rope) {
    const std::string type = scaling.TextOrEmpty({"rope_type", "type"});
    if (type.empty()) {
      config_.Require(!scaling.Has({"rope_type", "type"}),
                      fmt::format("{}'s type is no text", key));
      // An object that scales must say how.
      config_.Require(!scaling.Has({"factor"}),
                      fmt::format("{} has a factor but no rope_type", key));
      return true;
    }
    // Files of Phi-3 say "su", early ones "yarn".
    const bool lists = scaling.Has({"long_factor"});
    if (type == "su" || (type == "yarn" && lists)) {
      rope.scaling = RopeScaling::kLongRope;
      return true;
    }
    for (const RopeScaling scale : kScalings) {
      if (type != ToString(scale)) continue;
      rope.scaling = scale;
      return true;
    }
    return config_.Supported(false, fmt::format("{}: the rope type {} is unknown; known are "
                                                "default, linear, llama3, yarn, longrope",
                                                key, Printable(type, kShownText)));
  }

  const json& root_;
  ConfigReader& config_;
  const std::string& origin_;
  const RopeContext& context_;
  std::vector<std::string>& warnings_;
};

}  // namespace

double LogitFactor(const json& root, ConfigReader& config, const RopeParams& rope) {
  if (rope.scaling == RopeScaling::kNone) return 1;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = root.find(key);
    if (it == root.end() || !it->is_object() || it->empty()) continue;
    ConfigReader scaling(*it, key);
    const double weight = scaling.NumberOr({"mscale_all_dim"}, 0);
    if (weight == 0) return 1;
    config.Supported(rope.scaling == RopeScaling::kYarn,
                     fmt::format("{} has mscale_all_dim with rope type {}; known is yarn", key,
                                 ToString(rope.scaling)));
    const double magnitude = MagnitudeScale(rope.factor, weight);
    return magnitude * magnitude;
  }
  return 1;
}

RopeParams ReadRope(const json& root, ConfigReader& config, const std::string& origin,
                    const RopeContext& context, std::vector<std::string>& warnings) {
  return RopeReader(root, config, origin, context, warnings).Read();
}

}  // namespace culet
