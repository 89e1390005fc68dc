#include "model/gguf_models.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

namespace culet {
namespace {

using nlohmann::json;

void AddBias(const GgufFile& file, json& config, const char* key, const char* module) {
  config[key] = file.Find(std::string("blk.0.") + module + ".bias") != nullptr;
}

// Where the file has none, the architecture's default must not count.
void NoWindowByDefault(json& config) {
  if (!config.contains("sliding_window")) config["sliding_window"] = nullptr;
}

// How many a token uses, and how wide each is.
void AddExperts(GgufKeys& keys, json& config, const char* count, const char* width) {
  config["num_experts_per_tok"] = keys.Count("expert_used_count");
  config[count] = keys.Count("expert_count");
  config[width] = keys.Count("expert_feed_forward_length");
}

// Files do not say whether shares are divided by their sum; the architectures do.
void AddQwenExperts(GgufKeys& keys, json& config, bool sum_is_one) {
  AddExperts(keys, config, "num_experts", "moe_intermediate_size");
  config["norm_topk_prob"] = sum_is_one;
}

// Files do not say what attention is scaled by: a head's size, but in the models of 27B the share
// of the hidden size that a head has.
void AddGemma(GgufKeys& keys, json& config, std::int64_t layers_of_27b, double usual_cap) {
  const std::int64_t layers = config["num_hidden_layers"];
  const std::int64_t hidden = config["hidden_size"], heads = config["num_attention_heads"];
  if (keys.Find("attention.scale") != nullptr) {
    const double scale = keys.Number("attention.scale");
    config["query_pre_attn_scalar"] = 1 / (scale * scale);
  } else {
    config["query_pre_attn_scalar"] =
        layers == layers_of_27b ? hidden / heads : config["head_dim"].get<std::int64_t>();
  }
  config["hidden_activation"] = "gelu_pytorch_tanh";
  const bool none = keys.Find("final_logit_softcapping") == nullptr && usual_cap == 0;
  config["final_logit_softcapping"] =
      none ? json() : json(ShortestDecimal(keys.Number("final_logit_softcapping", usual_cap)));
}

// Routed and shared experts behind layers without; groups where the file has them.
void AddGroupedExperts(GgufKeys& keys, json& config) {
  AddExperts(keys, config, "n_routed_experts", "moe_intermediate_size");
  config["n_shared_experts"] = keys.CountOrZero("expert_shared_count");
  config["first_k_dense_replace"] = keys.CountOrZero("leading_dense_block_count");
  config["routed_scaling_factor"] = ShortestDecimal(keys.Number("expert_weights_scale", 1.0));
  config["norm_topk_prob"] = keys.Flag("expert_weights_norm");
  config["n_group"] = keys.CountOr("expert_group_count", 1);
  config["topk_group"] = keys.CountOr("expert_group_used_count", 1);
}

// Files from before the two parts of kv_b_proj were stored apart name the sizes of heads
// key_length and value_length, others those of the latent.
void AddLatent(GgufKeys& keys, json& config) {
  const bool apart = keys.Find("attention.key_length_mla") != nullptr;
  const std::int64_t key = keys.Count(apart ? "attention.key_length_mla" : "attention.key_length");
  const std::int64_t rope = keys.Count("rope.dimension_count");
  keys.Supported(rope < key, fmt::format("metadata has rope.dimension_count {} and heads of {}; "
                                         "known are heads of which a part turns",
                                         rope, key));
  config["qk_rope_head_dim"] = config["head_dim"] = rope;
  config["qk_nope_head_dim"] = rope < key ? key - rope : 1;
  config["v_head_dim"] =
      keys.Count(apart ? "attention.value_length_mla" : "attention.value_length");
  config["kv_lora_rank"] = keys.Count("attention.kv_lora_rank");
  config["q_lora_rank"] = keys.Find("attention.q_lora_rank") == nullptr
                              ? json()
                              : json(keys.Count("attention.q_lora_rank"));
  // Each head has keys of its own; head_count_kv is that of the latent, which all of them share.
  const std::int64_t heads = config["num_attention_heads"], rank = config["kv_lora_rank"];
  const std::int64_t kv = keys.CountOr("attention.head_count_kv", heads);
  const std::int64_t width = keys.CountOr("attention.key_length", key);
  const std::int64_t values = keys.CountOr("attention.value_length", rank);
  keys.Supported((kv == 1 || kv == heads) && (!apart || (width == rank + rope && values == rank)),
                 fmt::format("metadata has attention.head_count_kv {}, attention.key_length {} and "
                             "attention.value_length {}; known are one head of a latent of {} and "
                             "{} that turn",
                             kv, width, values, rank, rope));
  config["num_key_value_heads"] = heads;
  // A tenth of mscale_all_dim; mscale, which files do not have, is the same in all models.
  if (keys.Find("rope.scaling.yarn_log_multiplier") != nullptr && config.contains("rope_scaling")) {
    json& scaling = config["rope_scaling"];
    scaling["mscale"] = scaling["mscale_all_dim"] =
        ShortestDecimal(10 * ShortestDecimal(keys.Number("rope.scaling.yarn_log_multiplier")));
  }
  AddGroupedExperts(keys, config);
}

}  // namespace

bool HasNoGgufWindow(const GgufFile& file) {
  const auto name = file.metadata().find("general.architecture");
  if (name == file.metadata().end() || !name->is_string()) return true;
  const auto window = file.metadata().find(name->get<std::string>() + ".attention.sliding_window");
  return window == file.metadata().end() || *window == 0;
}

void AddLlamaKeys(const GgufFile& file, GgufKeys&, json& config) {
  AddBias(file, config, "attention_bias", "attn_q");
  AddBias(file, config, "mlp_bias", "ffn_gate");
}

void AddMixtralKeys(const GgufFile&, GgufKeys& keys, json& config) {
  config["num_experts_per_tok"] = keys.Count("expert_used_count");
  config["num_local_experts"] = keys.Count("expert_count");
  config["intermediate_size"] =
      keys.CountOr("expert_feed_forward_length", config["intermediate_size"]);
  NoWindowByDefault(config);
}

void AddQwen2MoeKeys(const GgufFile&, GgufKeys& keys, json& config) {
  AddQwenExperts(keys, config, false);
  config["shared_expert_intermediate_size"] = keys.Count("expert_shared_feed_forward_length");
}

void AddQwen3Keys(const GgufFile& file, GgufKeys&, json& config) {
  AddBias(file, config, "attention_bias", "attn_q");
}

void AddQwen3MoeKeys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddQwen3Keys(file, keys, config);
  AddQwenExperts(keys, config, true);
}

void AddGemma2Keys(const GgufFile&, GgufKeys& keys, json& config) {
  AddGemma(keys, config, 46, 30);
  config["attn_logit_softcapping"] = ShortestDecimal(keys.Number("attn_logit_softcapping", 50));
}

void AddGemma3Keys(const GgufFile&, GgufKeys& keys, json& config) {
  AddGemma(keys, config, 62, 0);
  config["sliding_window_pattern"] = keys.CountOr("attention.sliding_window_pattern", 6);
  config["rope_local_base_freq"] = ShortestDecimal(keys.Number("rope.freq_base_swa", 1e4));
}

void AddPhi3Keys(const GgufFile&, GgufKeys&, json& config) {
  config["pad_token_id"] = 0;
  NoWindowByDefault(config);
}

// Files have neither the limit nor the slope of the gate; the defaults are those of all models.
void AddGptOssKeys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddExperts(keys, config, "num_local_experts", "intermediate_size");
  config["sliding_window"] = keys.Count("attention.sliding_window");
  AddBias(file, config, "attention_bias", "attn_q");
  if (config.contains("rope_scaling")) {
    config["rope_scaling"]["truncate"] = false;
  } else {
    config["rope_parameters"] = {{"rope_type", "default"}};
  }
}

void AddDeepseekV2Keys(const GgufFile&, GgufKeys& keys, json& config) {
  AddLatent(keys, config);
  config["topk_method"] = config["n_group"] == 1 ? "greedy" : "group_limited_greedy";
}

void AddDeepseekV3Keys(const GgufFile&, GgufKeys& keys, json& config) { AddLatent(keys, config); }

void AddGlm4Keys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddBias(file, config, "attention_bias", "attn_q");
  keys.Supported(keys.Find("rope.dimension_sections") == nullptr,
                 fmt::format("metadata {}rope.dimension_sections is there; positions of one kind "
                             "are known",
                             keys.prefix()));
}

void AddGlm4MoeKeys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddGlm4Keys(file, keys, config);
  config["use_qk_norm"] = file.Find("blk.0.attn_q_norm.weight") != nullptr;
  AddGroupedExperts(keys, config);
}

// Files have neither the chunk nor how queries grow, which are the same in both models; keys have
// a norm in the one of 16 experts alone.
void AddLlama4Keys(const GgufFile& file, GgufKeys& keys, json& config) {
  constexpr std::int64_t kExpertsWithoutNorm = 128;
  AddBias(file, config, "attention_bias", "attn_q");
  config["intermediate_size_mlp"] = config["intermediate_size"];
  AddExperts(keys, config, "num_local_experts", "intermediate_size");
  config["interleave_moe_layer_step"] = keys.Count("interleave_moe_layer_step");
  config["use_qk_norm"] = config["num_local_experts"] != kExpertsWithoutNorm;
  config.erase("sliding_window");
  const json* const window = keys.Find("attention.sliding_window");
  keys.Supported(window == nullptr || *window != 0,
                 fmt::format("metadata {}attention.sliding_window is 0; known are layers that see "
                             "chunks",
                             keys.prefix()));
}

void AddOlmo3Keys(const GgufFile&, GgufKeys& keys, json& config) {
  const std::vector<bool> windows =
      keys.Flags("attention.sliding_window_pattern", config["num_hidden_layers"]);
  if (windows.empty()) return;
  for (const bool window : windows) {
    config["layer_types"].push_back(window ? "sliding_attention" : "full_attention");
  }
}

void AddGraniteKeys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddLlamaKeys(file, keys, config);
  const double size = config["head_dim"];
  config["attention_multiplier"] =
      ShortestDecimal(keys.Number("attention.scale", 1 / std::sqrt(size)));
  config["embedding_multiplier"] = ShortestDecimal(keys.Number("embedding_scale", 1.0));
  config["residual_multiplier"] = ShortestDecimal(keys.Number("residual_scale", 1.0));
  config["logits_scaling"] = ShortestDecimal(keys.Number("logit_scale"));
}

void AddCohereKeys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddBias(file, config, "attention_bias", "attn_q");
  config["layer_norm_eps"] = ShortestDecimal(keys.Number("attention.layer_norm_epsilon"));
  config["logit_scale"] = ShortestDecimal(keys.Number("logit_scale"));
}

void AddCohere2Keys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddCohereKeys(file, keys, config);
  config["sliding_window"] = keys.Count("attention.sliding_window");
}

void AddSeedOssKeys(const GgufFile& file, GgufKeys&, json& config) {
  AddBias(file, config, "attention_bias", "attn_q");
  AddBias(file, config, "attention_out_bias", "attn_output");
  AddBias(file, config, "mlp_bias", "ffn_gate");
}

void AddErnieKeys(const GgufFile& file, GgufKeys&, json& config) {
  AddBias(file, config, "use_bias", "attn_q");
}

void AddErnieMoeKeys(const GgufFile& file, GgufKeys& keys, json& config) {
  AddErnieKeys(file, keys, config);
  config["moe_num_experts"] = keys.Count("expert_count");
  config["moe_k"] = keys.Count("expert_used_count");
  config["moe_intermediate_size"] = keys.Count("expert_feed_forward_length");
  config["moe_num_shared_experts"] = keys.CountOrZero("expert_shared_count");
  config["moe_layer_interval"] = keys.CountOr("interleave_moe_layer_step", 1);
  config["moe_layer_start_index"] = keys.CountOrZero("leading_dense_block_count");
}

void AddMiniMaxKeys(const GgufFile&, GgufKeys& keys, json& config) {
  AddExperts(keys, config, "num_local_experts", "intermediate_size");
}

}  // namespace culet
