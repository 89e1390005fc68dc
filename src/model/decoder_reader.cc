// DecoderConfig from config.json: what all architectures share, and the parts of which they are
// made.
#include "model/decoder_reader.h"

#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "culet/printable.h"
#include "model/config_keys.h"
#include "model/quantization_config.h"
#include "model/rope_config.h"
#include "model/shown.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr int kMostLayers = 10000;
constexpr int kMostExperts = 65536;

const char* NamesOf(GateKind kind) {
  return kind == GateKind::kSilu ? "silu, swish" : "gelu_pytorch_tanh";
}

}  // namespace

DecoderReader::DecoderReader(const json& root, const std::string& origin,
                             const DecoderArchitecture& architecture)
    : root_(root), origin_(origin), architecture_(architecture), keys_(root, origin) {}

Result<DecoderConfig> DecoderReader::Read(bool quantised) {
  config_.architecture = architecture_.name;
  config_.model_type = architecture_.model_type;
  config_.warnings = UnusedKeys(root_, architecture_, origin_);
  Sizes();
  Refusals();
  architecture_.read(*this);
  bool any_dense = false;
  for (const bool sparse : config_.sparse) any_dense |= !sparse;
  if (any_dense) config_.intermediate = keys_.Int({architecture_.defaults.width_key});
  if (quantised) Quantization();
  if (keys_.Has({"eos_token_id"})) config_.eos_ids = keys_.IntOrInts({"eos_token_id"});
  CULET_RETURN_IF_ERROR(keys_.status());
  return std::move(config_);
}

void DecoderReader::Sizes() {
  const DecoderDefaults& defaults = architecture_.defaults;
  config_.vocab = keys_.IntOrDefault("vocab_size", defaults.vocab);
  config_.hidden = keys_.Int({"hidden_size"});
  config_.layers = keys_.Int({"num_hidden_layers"});
  if (!keys_.Require(
          config_.layers <= kMostLayers,
          fmt::format("num_hidden_layers is {}, more than {}", config_.layers, kMostLayers))) {
    config_.layers = 1;  // the loops over layers stay short
  }
  const auto layers = static_cast<std::size_t>(config_.layers);
  config_.windows.assign(layers, 0);
  config_.chunks.assign(layers, 0);
  config_.ropes.assign(layers, LayerRope::kMain);
  config_.sparse.assign(layers, false);
  config_.linear_layers.assign(layers, false);
  const HeadSizes sizes = ReadHeads(keys_, config_.hidden, defaults.heads);
  config_.heads = sizes.heads;
  config_.kv_heads = sizes.kv_heads;
  config_.head_dim = sizes.head_dim;
  config_.attention_scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(config_.head_dim)));
  keys_.Fit(std::int64_t{config_.heads} * config_.head_dim,
            fmt::format("num_attention_heads * {}", defaults.heads.head_dim_key).c_str());
  config_.max_position = keys_.IntOr({"max_position_embeddings"}, defaults.max_position);
  const char* const epsilon = defaults.epsilon_key;
  config_.rms_norm_eps = static_cast<float>(keys_.NumberOr({epsilon}, defaults.epsilon));
  keys_.Require(config_.rms_norm_eps > 0,
                fmt::format("{} is {}; it must be above 0", epsilon, config_.rms_norm_eps));
  config_.local_rope = config_.rope = RopeOf("full_attention", defaults.theta);
  config_.tied_head = keys_.FlagOr({"tie_word_embeddings"}, defaults.tied_head);
  Gate(defaults.gate_key, defaults.gate);
}

void DecoderReader::Gate(const char* key, GateKind kind) {
  config_.gate = kind;
  const std::string activation = keys_.TextOrEmpty({key});
  // Two names of one function.
  const bool known = kind == GateKind::kSilu ? activation == "silu" || activation == "swish"
                                             : activation == "gelu_pytorch_tanh";
  keys_.Supported(
      activation.empty() ? !keys_.Has({key}) : known,
      fmt::format("{} is {}; known are {}", key, Printable(activation, kShownText), NamesOf(kind)));
}

// What would make another model of it.
void DecoderReader::Refusals() {
  // null, too: transformers asks whether it is true.
  keys_.Supported(!keys_.Stands("is_causal") || keys_.FlagOr({"is_causal"}, false),
                  fmt::format("is_causal is {}; known is true, a query sees no later keys",
                              keys_.Shown({"is_causal"})));
  RefuseTrue("is_encoder_decoder", "known is false");
  keys_.Supported(!keys_.Has({"per_layer_config"}) || root_.at("per_layer_config").empty(),
                  fmt::format("per_layer_config is {}; configs by layer are not known",
                              keys_.Shown({"per_layer_config"})));
}

void DecoderReader::RefuseTrue(const char* key, const char* why) {
  keys_.Supported(!keys_.FlagOr({key}, false), fmt::format("{} is true; {}", key, why));
}

float DecoderReader::Positive(const char* key, double fallback) {
  const double value = keys_.NumberOr({key}, fallback);
  const auto narrow = static_cast<float>(value);
  keys_.Require(narrow > 0 && std::isfinite(narrow),
                fmt::format("{} is {}; it must be above 0, and a float", key, value));
  return narrow > 0 && std::isfinite(narrow) ? narrow : 1;
}

float DecoderReader::PositiveOrNone(const char* key, double fallback) {
  if (keys_.Stands(key) ? !keys_.Has({key}) : fallback == 0) return 0;
  return Positive(key, fallback);
}

void DecoderReader::AttentionBias(bool fallback, bool output) {
  config_.qkv_bias = keys_.FlagOr({"attention_bias"}, fallback);
  config_.o_bias = output && config_.qkv_bias;
}

void DecoderReader::MlpBias() { config_.mlp_bias = keys_.FlagOr({"mlp_bias"}, false); }

int DecoderReader::WindowOfSome(int fallback) {
  const int window = Window(fallback);
  keys_.Require(window > 0, "sliding_window is null; layers of this architecture have one");
  return window;
}

int DecoderReader::Window(int fallback) {
  return keys_.Stands("sliding_window") ? keys_.IntOr({"sliding_window"}, 0) : fallback;
}

void DecoderReader::WindowsFrom(int first, int window) {
  for (int layer = first; layer < config_.layers; ++layer) {
    config_.windows[static_cast<std::size_t>(layer)] = window;
  }
}

void DecoderReader::WindowsBut(int pattern, int window) {
  for (int layer = 0; layer < config_.layers; ++layer) {
    const bool full = pattern > 0 && (layer + 1) % pattern == 0;
    config_.windows[static_cast<std::size_t>(layer)] = full ? 0 : window;
  }
}

bool DecoderReader::LayerTypes(int window) {
  return Types("sliding_attention", window, config_.windows);
}

bool DecoderReader::ChunkTypes(int chunk) {
  return Types("chunked_attention", chunk, config_.chunks);
}

bool DecoderReader::LinearTypes() {
  std::vector<int> linear(config_.linear_layers.size());
  const bool given = Types("linear_attention", 1, linear);
  for (std::size_t layer = 0; given && layer < linear.size(); ++layer) {
    config_.linear_layers[layer] = linear[layer] != 0;
  }
  return given;
}

bool DecoderReader::Types(const char* limited, int limit, std::vector<int>& limits) {
  if (!keys_.Has({"layer_types"})) return false;
  const json& types = root_.at("layer_types");
  if (!keys_.Require(types.is_array() && types.size() == limits.size(),
                     "layer_types must be a list of one text a layer")) {
    return true;
  }
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    const std::string type = types[layer].is_string() ? types[layer].get<std::string>() : "";
    const bool is_limited = type == limited;
    keys_.Supported(is_limited || type == "full_attention",
                    fmt::format("layer_types holds {}; known are full_attention, {}",
                                Printable(type, kShownText), limited));
    limits[layer] = is_limited ? limit : 0;
  }
  return true;
}

void DecoderReader::SparseLayers() {
  // Numbers in decoder_sparse_step count from 1, in mlp_only_layers from 0.
  const int step = keys_.IntOr({"decoder_sparse_step"}, 1);
  for (int layer = 0; layer < config_.layers; ++layer) {
    config_.sparse[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0;
  }
  for (const int layer : keys_.Ints({"mlp_only_layers"})) {
    if (layer < config_.layers) config_.sparse[static_cast<std::size_t>(layer)] = false;
  }
}

void DecoderReader::SharedExperts(const char* key, int fallback) {
  const std::int64_t count = keys_.IntOr({key}, fallback, 0);
  const std::string width = fmt::format("{} * moe_intermediate_size", key);
  config_.shared_intermediate = keys_.Fit(count * config_.moe_intermediate, width.c_str());
}

void DecoderReader::SparseBehind(int fallback) {
  const int dense = keys_.IntOr({"first_k_dense_replace"}, fallback, 0);
  for (int layer = dense; layer < config_.layers; ++layer) {
    config_.sparse[static_cast<std::size_t>(layer)] = true;
  }
}

void DecoderReader::ExpertsInGroups(const GroupDefaults& defaults) {
  SparseBehind(defaults.dense_layers);
  keys_.NotNull("norm_topk_prob");
  Experts({.width = "moe_intermediate_size", .experts = "n_routed_experts"},
          keys_.FlagOr({"norm_topk_prob"}, true));
  SharedExperts("n_shared_experts", 1);
  config_.ahead_layers = keys_.IntOr({"num_nextn_predict_layers"}, 0, 0);
  config_.router_correction = true;
  RoutingParams& routing = config_.routing;
  routing.scoring = RouterScoring::kSigmoid;
  routing.scale = Positive("routed_scaling_factor", defaults.scale);
  Groups(defaults, GroupScore::kBestTwo);
}

void DecoderReader::ClampedGate(double limit, double slope) {
  config_.gate = GateKind::kClampedSilu;
  config_.gate_limit = Positive("swiglu_limit", limit);
  config_.gate_slope = Positive("swiglu_alpha", slope);
}

void DecoderReader::Groups(const GroupDefaults& defaults, GroupScore score) {
  RoutingParams& routing = config_.routing;
  routing.group_score = score;
  routing.groups = keys_.IntOr({"n_group"}, defaults.groups);
  routing.kept_groups = keys_.IntOr({"topk_group"}, defaults.kept_groups);
  if (config_.experts == 0) return;  // no layer has any
  const int size = config_.experts / routing.groups;
  const int least = routing.groups > 1 && score == GroupScore::kBestTwo ? 2 : 1;
  keys_.Require(config_.experts % routing.groups == 0 && size >= least,
                fmt::format("n_group is {}; the {} experts must be in groups of one size, {} or "
                            "more",
                            routing.groups, config_.experts, least));
  keys_.Require(
      routing.kept_groups <= routing.groups &&
          std::int64_t{routing.kept_groups} * size >= routing.active,
      fmt::format("topk_group is {}; of {} groups of {} experts it must keep the {} of a token",
                  routing.kept_groups, routing.groups, size, routing.active));
}

void DecoderReader::Experts(const ExpertKeys& keys, bool renormalize) {
  bool any_sparse = false;
  for (const bool sparse : config_.sparse) any_sparse |= sparse;
  if (!any_sparse) return;
  config_.experts = keys.other_experts != nullptr ? keys_.Int({keys.other_experts, keys.experts})
                                                  : keys_.Int({keys.experts});
  config_.routing.active = keys_.Int({keys.active});
  config_.moe_intermediate = keys_.Int({keys.width});
  config_.routing.renormalize = renormalize;
  keys_.Require(config_.experts <= kMostExperts,
                fmt::format("{} is {}, more than {}", keys.experts, config_.experts, kMostExperts));
  keys_.Require(config_.routing.active <= config_.experts,
                fmt::format("{} is {}, more than the {} experts", keys.active,
                            config_.routing.active, config_.experts));
}

RopeParams DecoderReader::RopeOf(const char* layer_type, double default_theta) {
  const DecoderDefaults& defaults = architecture_.defaults;
  RopeParams rope = ReadRope(root_, keys_, origin_,
                             {.head_dim = config_.head_dim,
                              .max_position = config_.max_position,
                              .default_theta = default_theta,
                              .partial = defaults.partial_rotary,
                              .layer_type = HasRopeByType() ? layer_type : nullptr,
                              .head_dim_key = defaults.heads.head_dim_key},
                             config_.warnings);
  rope.layout = defaults.rope_layout;
  return rope;
}

void DecoderReader::LocalRopesWithWindows() {
  for (std::size_t layer = 0; layer < config_.ropes.size(); ++layer) {
    if (config_.windows[layer] > 0) config_.ropes[layer] = LayerRope::kLocal;
  }
}

bool DecoderReader::HasRopeByType() const {
  bool by_type = false;
  for (const char* key : architecture_.keys) by_type |= std::string_view(key) == "layer_types";
  const auto it = root_.find("rope_parameters");
  return by_type && it != root_.end() && it->is_object() && it->contains("full_attention") &&
         it->at("full_attention").is_object();
}

void DecoderReader::Quantization() {
  const std::string type = keys_.TextOrEmpty({"dtype", "torch_dtype"});
  if (type == "float32") config_.stored_type = DataType::kFloat32;
  if (type == "float16") config_.stored_type = DataType::kFloat16;
  if (!keys_.Has({"quantization_config"})) return;
  config_.coding =
      ReadWeightCoding(root_.at("quantization_config"), keys_, origin_, config_.warnings);
}

}  // namespace culet
