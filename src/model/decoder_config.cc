// DecoderConfig from config.json: each architecture's keys and defaults.
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "culet/printable.h"
#include "culet/decoder.h"
#include "model/config_file.h"
#include "model/config_heads.h"
#include "model/config_keys.h"
#include "model/config_reader.h"
#include "model/find_architecture.h"
#include "base/json_text.h"
#include "model/rope_config.h"
#include "model/text_kind.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr int kMostLayers = 10000;
constexpr int kMostExperts = 65536;
constexpr int kDefaultWindow = 4096;       // where the key is missing; null means none
constexpr int kQwenFirstWindowLayer = 28;  // where max_window_layers is missing

class Parser {
 public:
  Parser(const json& root, const std::string& origin, Family family)
      : root_(root), origin_(origin), family_(family), reader_(root, origin) {}

  Result<DecoderConfig> Parse() {
    const ArchitectureName& name = Families()[static_cast<std::size_t>(family_)];
    config_.architecture = name.name;
    config_.model_type = name.model_type;
    config_.warnings = UnusedKeys(root_, family_, origin_);
    Sizes();
    Biases();
    Refusals();
    Experts();
    Windows();
    Quantization();
    EndTokens();
    CULET_RETURN_IF_ERROR(reader_.status());
    return std::move(config_);
  }

 private:
  bool IsQwen3() const { return family_ == Family::kQwen3 || family_ == Family::kQwen3Moe; }

  void Sizes() {
    config_.vocab = reader_.Int({"vocab_size"});
    config_.hidden = reader_.Int({"hidden_size"});
    config_.layers = reader_.Int({"num_hidden_layers"});
    if (!reader_.Require(
            config_.layers <= kMostLayers,
            fmt::format("num_hidden_layers is {}, more than {}", config_.layers, kMostLayers))) {
      config_.layers = 1;  // the loops over layers stay short
    }
    const HeadSizes sizes = ReadHeads(reader_, config_.hidden, Heads());
    config_.heads = sizes.heads;
    config_.kv_heads = sizes.kv_heads;
    config_.head_dim = sizes.head_dim;
    reader_.Fit(std::int64_t{config_.heads} * config_.head_dim, "num_attention_heads * head_dim");
    config_.max_position = reader_.IntOr({"max_position_embeddings"}, 0);
    const double default_epsilon = family_ == Family::kMixtral ? 1e-5 : 1e-6;
    config_.rms_norm_eps = static_cast<float>(reader_.NumberOr({"rms_norm_eps"}, default_epsilon));
    reader_.Require(config_.rms_norm_eps > 0,
                    fmt::format("rms_norm_eps is {}; it must be above 0", config_.rms_norm_eps));
    const double default_theta = family_ == Family::kMixtral ? 1e6 : 1e4;
    config_.rope = ReadRope(root_, reader_, origin_,
                            {.head_dim = config_.head_dim,
                             .max_position = config_.max_position,
                             .default_theta = default_theta},
                            config_.warnings);
    config_.tied_head = reader_.FlagOr({"tie_word_embeddings"}, false);
    const std::string activation = reader_.TextOrEmpty({"hidden_act"});
    // Two names of one function.
    const bool silu = activation == "silu" || activation == "swish";
    reader_.Supported(
        activation.empty() ? !reader_.Has({"hidden_act"}) : silu,
        fmt::format("hidden_act is {}; known are silu, swish", Printable(activation, kShown)));
  }

  HeadDefaults Heads() const {
    switch (family_) {
      case Family::kMistral:
      case Family::kMixtral:
        return kMistralHeads;
      case Family::kQwen3:
        return kQwen3Heads;
      case Family::kQwen3Moe:
        return kQwen3MoeHeads;
      default:
        return kUsualHeads;
    }
  }

  // What would make another model of it.
  void Refusals() {
    // null, too: transformers asks whether it is true.
    reader_.Supported(!reader_.Stands("is_causal") || reader_.FlagOr({"is_causal"}, false),
                      fmt::format("is_causal is {}; known is true, a query sees no later keys",
                                  reader_.Shown({"is_causal"})));
    reader_.Supported(!reader_.FlagOr({"is_encoder_decoder"}, false),
                      "is_encoder_decoder is true; known is false");
    reader_.Supported(!reader_.Has({"per_layer_config"}) || root_.at("per_layer_config").empty(),
                      fmt::format("per_layer_config is {}; configs by layer are not known",
                                  reader_.Shown({"per_layer_config"})));
  }

  void Biases() {
    const bool has_key = family_ == Family::kLlama || IsQwen3();
    const bool attention = has_key && reader_.FlagOr({"attention_bias"}, false);
    config_.qkv_bias = family_ == Family::kQwen2 || attention;
    config_.o_bias = attention;
    config_.mlp_bias = family_ == Family::kLlama && reader_.FlagOr({"mlp_bias"}, false);
    config_.qk_norm = IsQwen3();
  }

  void Experts() {
    config_.sparse.assign(static_cast<std::size_t>(config_.layers), false);
    if (family_ == Family::kMixtral) config_.sparse.assign(config_.sparse.size(), true);
    if (family_ == Family::kQwen3Moe) {
      // Numbers in decoder_sparse_step count from 1, in mlp_only_layers from 0.
      const int step = reader_.IntOr({"decoder_sparse_step"}, 1);
      for (int layer = 0; layer < config_.layers; ++layer) {
        config_.sparse[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0;
      }
      for (const int layer : reader_.Ints({"mlp_only_layers"})) {
        if (layer < config_.layers) config_.sparse[static_cast<std::size_t>(layer)] = false;
      }
    }
    bool any_sparse = false, any_dense = false;
    for (const bool sparse : config_.sparse) (sparse ? any_sparse : any_dense) = true;
    if (any_dense) config_.intermediate = reader_.Int({"intermediate_size"});
    if (!any_sparse) return;
    config_.experts = reader_.Int({"num_local_experts", "num_experts"});
    config_.active_experts = reader_.Int({"num_experts_per_tok"});
    const bool mixtral = family_ == Family::kMixtral;
    config_.moe_intermediate =
        mixtral ? reader_.Int({"intermediate_size"}) : reader_.Int({"moe_intermediate_size"});
    config_.renormalize_experts = mixtral || reader_.FlagOr({"norm_topk_prob"}, false);
    reader_.Require(config_.experts <= kMostExperts,
                    fmt::format("{} experts, more than {}", config_.experts, kMostExperts));
    reader_.Require(config_.active_experts <= config_.experts,
                    fmt::format("num_experts_per_tok is {}, more than the {} experts",
                                config_.active_experts, config_.experts));
  }

  void Windows() {
    config_.windows.assign(static_cast<std::size_t>(config_.layers), 0);
    if (family_ == Family::kLlama) return;
    const bool mistral = family_ == Family::kMistral || family_ == Family::kMixtral;
    const bool used = mistral || reader_.FlagOr({"use_sliding_window"}, false);
    int window = reader_.IntOr({"sliding_window"}, 0);
    if (family_ != Family::kMixtral && root_.find("sliding_window") == root_.end()) {
      window = kDefaultWindow;
    }
    const bool by_number = family_ == Family::kQwen2 || family_ == Family::kQwen3;
    const int first =
        by_number ? reader_.IntOr({"max_window_layers"}, kQwenFirstWindowLayer, 0) : 0;
    for (int layer = 0; used && layer < config_.layers; ++layer) {
      if (layer >= first) config_.windows[static_cast<std::size_t>(layer)] = window;
    }
    // Elsewhere transformers does not look at it.
    if (by_number && reader_.Has({"layer_types"})) LayerTypes(used ? window : 0);
  }

  // layer_types says it for each layer and counts more than the numbers.
  void LayerTypes(int window) {
    const json& types = root_.at("layer_types");
    if (!reader_.Require(types.is_array() && types.size() == config_.windows.size(),
                         "layer_types must be a list of one text a layer")) {
      return;
    }
    for (std::size_t layer = 0; layer < types.size(); ++layer) {
      const std::string type = types[layer].is_string() ? types[layer].get<std::string>() : "";
      const bool sliding = type == "sliding_attention";
      reader_.Supported(sliding || type == "full_attention",
                        fmt::format("layer_types holds {}; known are full_attention, "
                                    "sliding_attention",
                                    Printable(type, kShown)));
      config_.windows[layer] = sliding ? window : 0;
    }
  }

  void Quantization() {
    const std::string type = reader_.TextOrEmpty({"dtype", "torch_dtype"});
    if (type == "float32") config_.stored_type = DataType::kFloat32;
    if (type == "float16") config_.stored_type = DataType::kFloat16;
    if (!reader_.Has({"quantization_config"})) return;
    const json& quantization = root_.at("quantization_config");
    const bool block_fp8 = quantization.is_object() &&
                           quantization.value("quant_method", json()) == "fp8" &&
                           quantization.value("fmt", json("e4m3")) == "e4m3" &&
                           quantization.value("weight_block_size", json()) == json{128, 128} &&
                           quantization.value("activation_scheme", json("dynamic")) == "dynamic";
    reader_.Supported(block_fp8,
                      "quantization_config is none that is known; known is quant_method fp8 of fmt "
                      "e4m3 with weight_block_size [128, 128] and activation_scheme dynamic");
    config_.fp8_block = block_fp8;
    if (!quantization.is_object()) return;
    ConfigReader part(quantization, origin_ + ": quantization_config");
    // Scales that are powers of two: the inputs' are rounded, too, so ignoring it would be wrong.
    const std::pair<const char*, json> only[] = {{"scale_fmt", "float"},
                                                 {"expert_dtype", "fp8"},
                                                 {"dequantize", false},
                                                 {"modules_to_convert", json::array()}};
    for (const auto& [key, known] : only) {
      reader_.Supported(
          !part.Has({key}) || quantization.at(key) == known,
          fmt::format("quantization_config has {} {}; known is {}", key, part.Shown({key}),
                      known.is_string() ? known.get<std::string>() : JsonText(known)));
    }
    // Which modules are quantised the types of their tensors say.
    constexpr const char* kKnown[] = {"quant_method",
                                      "fmt",
                                      "weight_block_size",
                                      "activation_scheme",
                                      "scale_fmt",
                                      "expert_dtype",
                                      "dequantize",
                                      "modules_to_convert",
                                      "modules_to_not_convert",
                                      "ignored_layers"};
    for (std::string& unused :
         UnusedKeysOf(quantization, kKnown, origin_ + ": quantization_config")) {
      config_.warnings.push_back(std::move(unused));
    }
  }

  void EndTokens() {
    if (reader_.Has({"eos_token_id"})) config_.eos_ids = reader_.IntOrInts({"eos_token_id"});
  }

  static constexpr std::size_t kShown = 40;  // characters of a text of the file in a message

  const json& root_;
  const std::string& origin_;
  Family family_;
  ConfigReader reader_;
  DecoderConfig config_;
};

}  // namespace

std::vector<std::string> KnownDecoders() {
  std::vector<std::string> names;
  for (const ArchitectureName& known : Families()) names.emplace_back(known.name);
  return names;
}

Result<DecoderConfig> ParseDecoderConfig(std::string_view text, const std::string& origin) {
  const json root = ParseJson(text);
  if (!root.is_object()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} is not a JSON object; it must be a model's config.json{}", origin,
                              ReplacedBy(text)));
  }
  const auto family = FindArchitecture(root, origin, Families());
  if (!family) return family.status();
  return Parser(root, origin, static_cast<Family>(*family)).Parse();
}

Result<DecoderConfig> ReadDecoderConfig(const std::string& path) {
  const auto file = ReadConfigFile(path);
  if (!file.ok()) return file.status();
  auto config = ParseDecoderConfig(file->text, file->path);
  if (!config.ok() || file->path == path) return config;
  auto end_tokens = ReadGenerationEndTokens(path);
  if (!end_tokens.ok()) return end_tokens.status();
  if (end_tokens->has_value()) config->eos_ids = *std::move(*end_tokens);
  return config;
}

}  // namespace culet
