// DeepSeek V2 and V3, and what has their form: R1, Moonlight, Kimi K2.
#include <cmath>
#include <initializer_list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/printable.h"
#include "model/decoder_reader.h"
#include "model/decoders/all.h"
#include "model/rope_config.h"

namespace culet {
namespace {

constexpr const char* kV2Keys[] = {"attention_bias",
                                   "first_k_dense_replace",
                                   "kv_lora_rank",
                                   "mlp_bias",
                                   "moe_intermediate_size",
                                   "moe_layer_freq",
                                   "n_group",
                                   "n_routed_experts",
                                   "n_shared_experts",
                                   "norm_topk_prob",
                                   "num_experts_per_tok",
                                   "q_lora_rank",
                                   "qk_nope_head_dim",
                                   "qk_rope_head_dim",
                                   "routed_scaling_factor",
                                   "scoring_func",
                                   "topk_group",
                                   "topk_method",
                                   "v_head_dim"};
constexpr const char* kV3Keys[] = {"attention_bias",
                                   "first_k_dense_replace",
                                   "kv_lora_rank",
                                   "moe_intermediate_size",
                                   "moe_layer_freq",
                                   "n_group",
                                   "n_routed_experts",
                                   "n_shared_experts",
                                   "norm_topk_prob",
                                   "num_experts_per_tok",
                                   "num_mtp_layers",
                                   "num_nextn_predict_layers",
                                   "q_lora_rank",
                                   "qk_nope_head_dim",
                                   "qk_rope_head_dim",
                                   "rope_interleave",
                                   "routed_scaling_factor",
                                   "scoring_func",
                                   "topk_group",
                                   "topk_method",
                                   "v_head_dim"};
constexpr const char* kSilent[] = {"qk_head_dim"};  // the sum of two others

constexpr int kRopeDim = 64;
constexpr DecoderDefaults kDefaults{
    .heads = {.head_dim = kRopeDim, .head_dim_key = "qk_rope_head_dim"},
    .rope_layout = RopeLayout::kNorm};
constexpr DecoderNames kNames{.correction = "gate.e_score_correction_bias",
                              .shared = "shared_experts"};

// A text that may be missing, and is one of `known` otherwise.
std::string Known(ConfigReader& keys, const char* key, std::initializer_list<const char*> known) {
  const std::string text = keys.TextOrEmpty({key});
  bool found = !keys.Stands(key);
  for (const char* each : known) found |= text == each;
  constexpr std::size_t kShown = 40;
  keys.Supported(found, fmt::format("{} is {}; known: {}", key,
                                    text.empty() ? keys.Shown({key}) : Printable(text, kShown),
                                    fmt::join(known, ", ")));
  return text;
}

void ReadLatent(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  // Only of q_lora_rank null has a meaning: queries are made of the hidden state.
  for (const char* key : {"first_k_dense_replace", "kv_lora_rank", "moe_intermediate_size",
                          "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
                          "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    keys.Require(!keys.Stands(key) || keys.Has({key}), fmt::format("{} is null", key));
  }
  keys.Require(config.kv_heads == config.heads,
               fmt::format("num_key_value_heads is {}, num_attention_heads {}; heads have keys of "
                           "their own, so the two must be equal",
                           config.kv_heads, config.heads));
  LatentAttention& latent = config.latent;
  latent.kv_rank = keys.IntOr({"kv_lora_rank"}, 512);
  latent.q_rank = keys.Stands("q_lora_rank") ? keys.IntOr({"q_lora_rank"}, 0) : 1536;
  latent.nope_dim = keys.IntOr({"qk_nope_head_dim"}, 128);
  latent.rope_dim = keys.IntOr({"qk_rope_head_dim"}, kRopeDim);
  latent.value_dim = keys.IntOr({"v_head_dim"}, 128);
  latent.norm_eps = 1e-6f;  // whatever rms_norm_eps says
  const std::int64_t heads = config.heads, size = std::int64_t{latent.nope_dim} + latent.rope_dim;
  keys.Fit(heads * size, "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)");
  keys.Fit(heads * latent.kv_rank, "num_attention_heads * kv_lora_rank");
  keys.Fit(heads * latent.value_dim, "num_attention_heads * v_head_dim");
  const double scale = LogitFactor(reader.root(), keys, config.rope);
  config.attention_scale = static_cast<float>(scale / std::sqrt(static_cast<double>(size)));
  config.kv_heads = 1;
  config.head_dim =
      keys.Fit(std::int64_t{latent.kv_rank} + latent.rope_dim, "kv_lora_rank + qk_rope_head_dim");
  reader.AttentionBias(false, true);
  const int frequency = keys.IntOr({"moe_layer_freq"}, 1);
  keys.Supported(frequency == 1, fmt::format("moe_layer_freq is {}; known is 1", frequency));
}

// Shares are those of the softmax over all experts, chosen from all groups or from the best.
void ReadV2(DecoderReader& reader) {
  ReadLatent(reader);
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  reader.RefuseTrue("mlp_bias", "biases of gate, up and down are not known here");
  reader.RefuseTrue("norm_topk_prob", "the shares of the chosen experts stay as they are here");
  Known(keys, "scoring_func", {"softmax"});
  reader.SparseBehind(0);
  reader.Experts({.width = "moe_intermediate_size", .experts = "n_routed_experts"}, false);
  reader.SharedExperts("n_shared_experts", 2);
  config.routing.scale = reader.Positive("routed_scaling_factor", 1);
  const std::string method = Known(keys, "topk_method", {"greedy", "group_limited_greedy"});
  if (method == "group_limited_greedy") {
    keys.Require(
        keys.Has({"n_group"}) && keys.Has({"topk_group"}),
        "n_group or topk_group is missing, which go with topk_method group_limited_greedy");
    reader.Groups({}, GroupScore::kMaximum);
  } else {
    keys.IntOr({"n_group"}, 1);  // of no effect
    keys.IntOr({"topk_group"}, 1);
  }
}

void ReadV3(DecoderReader& reader) {
  ReadLatent(reader);
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  Known(keys, "scoring_func", {"sigmoid"});
  Known(keys, "topk_method", {"noaux_tc"});
  if (keys.Stands("rope_interleave") && !keys.FlagOr({"rope_interleave"}, false)) {
    config.rope.layout = config.local_rope.layout = RopeLayout::kNeox;
  }
  reader.ExpertsInGroups({.dense_layers = 3, .groups = 8, .kept_groups = 4, .scale = 2.5});
  config.ahead_layers = keys.IntOr({"num_nextn_predict_layers", "num_mtp_layers"}, 1, 0);
}

}  // namespace

const DecoderArchitecture kDeepseekV2{
    .name = "DeepseekV2ForCausalLM",
    .model_type = "deepseek_v2",
    .read = ReadV2,
    .defaults = kDefaults,
    .names = kNames,
    .keys = kV2Keys,
    .silent = kSilent,
    .parts = "latent attention (MLA), interleaved rope, routed and shared experts"};

const DecoderArchitecture kDeepseekV3{.name = "DeepseekV3ForCausalLM",
                                      .model_type = "deepseek_v3",
                                      .read = ReadV3,
                                      .defaults = kDefaults,
                                      .names = kNames,
                                      .keys = kV3Keys,
                                      .silent = kSilent,
                                      .parts = "as DeepSeek V2, experts in groups with a bias"};

const DecoderArchitecture kKimiK2{.name = "DeepseekV3ForCausalLM",
                                  .model_type = "kimi_k2",
                                  .read = ReadV3,
                                  .defaults = kDefaults,
                                  .names = kNames,
                                  .keys = kV3Keys,
                                  .silent = kSilent,
                                  .parts = "as DeepSeek V3"};

}  // namespace culet
