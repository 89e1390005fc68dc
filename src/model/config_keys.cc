#include "model/config_keys.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/printable.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr ConfigKey kUsed[] = {
    {"architectures", true, "which architecture; with model_type, of which it must not differ"},
    {"attention_bias", false, "biases of q, k, v and o"},
    {"attention_chunk_size", false, "keys of a chunk, which only its own queries see; else 8192"},
    {"attention_multiplier", false, "of queries times keys, else 1"},
    {"attention_out_bias", false, "a bias of o"},
    {"attn_logit_softcapping", false, "cap of queries times keys; null: none"},
    {"attn_scale", false, "how queries grow in layers without rope; else 0.1"},
    {"attn_temperature_tuning", false, "whether they do; else true"},
    {"decoder_sparse_step", false, "every so many layers, one has experts"},
    {"dtype", true, "type of the weights, for shapes without files"},
    {"embedding_multiplier", false, "of what enters the first layer"},
    {"eos_token_id", true, "end tokens, where generation_config.json has none"},
    {"first_k_dense_replace", false, "so many first layers have no experts"},
    {"final_logit_softcapping", false, "cap of the logits; null: none"},
    {"floor_scale", false, "positions in which they grow once; else 8192"},
    {"full_attention_interval", false, "every so many layers, one has attention; else 4"},
    {"head_dim", true,
     "else the class's own, mostly hidden_size / num_attention_heads; not in DeepSeek"},
    {"hidden_act", true, "silu or swish; others are refused"},
    {"hidden_activation", false, "gelu_pytorch_tanh; others are refused"},
    {"hidden_size", true, ""},
    {"interleave_moe_layer_step", false, "every so many layers, one has experts; else 1"},
    {"intermediate_size", true, "of layers without experts; in Mixtral of experts"},
    {"intermediate_size_mlp", false, "of dense layers"},
    {"is_causal", true, "must be true"},
    {"is_encoder_decoder", true, "must be false"},
    {"kv_lora_rank", false, "elements of the latent of keys and values"},
    {"layer_norm_eps", false, "else 1e-5"},
    {"layer_types", false, "which layers have the window, or linear attention"},
    {"linear_conv_kernel_dim", false, "rows that its convolution takes; else 4"},
    {"linear_key_head_dim", false, "elements of its keys and queries; else 128"},
    {"linear_num_key_heads", false, "else 16"},
    {"linear_num_value_heads", false, "else 32"},
    {"linear_value_head_dim", false, "else 128"},
    {"logit_scale", false, "of the logits, else 0.0625"},
    {"logits_scaling", false, "what logits are divided by"},
    {"max_position_embeddings", true, "longest context"},
    {"max_window_layers", false, "the first layer with the window"},
    {"mlp_bias", false, "biases of gate, up and down"},
    {"mlp_only_layers", false, "layers without experts"},
    {"model_type", true, "which architecture"},
    {"moe_intermediate_size", false, "of experts"},
    {"moe_k", false, "experts that a token uses"},
    {"moe_layer_end_index", false, "the last layer with experts; else -1, the last of all"},
    {"moe_layer_freq", false, "must be 1"},
    {"moe_layer_interval", false, "every so many layers, one has experts"},
    {"moe_layer_start_index", false, "the first layer with experts; else 1"},
    {"moe_layers", false, "layers with experts, instead of interleave_moe_layer_step"},
    {"moe_norm_min", false, "what shares are divided by at least; else 1e-12"},
    {"moe_num_experts", false, ""},
    {"moe_num_shared_experts", false, "else 2"},
    {"n_group", false, "of experts; else 1, in DeepSeek V3 8"},
    {"n_routed_experts", false, ""},
    {"n_shared_experts", false, "else 1, in DeepSeek V2 2"},
    {"no_rope_layer_interval", false, "every so many layers, one does not turn; else 4"},
    {"no_rope_layers", false, "which layers turn: 1, or 0"},
    {"norm_topk_prob", false, "whether shares add up to 1"},
    {"num_attention_heads", true, ""},
    {"num_experts", false, "or num_local_experts"},
    {"num_experts_per_tok", false, ""},
    {"num_hidden_layers", true, ""},
    {"num_nextn_predict_layers", false, "layers behind the others, which are passed over"},
    {"num_key_value_heads", true, "else the class's own; null: num_attention_heads"},
    {"num_local_experts", false, "or num_experts"},
    {"num_mtp_layers", false, "or num_nextn_predict_layers"},
    {"original_max_position_embeddings", true,
     "of llama3, yarn and longrope; counts more than rope's own"},
    {"partial_rotary_factor", true,
     "in Phi-3 and GLM-4 the part of a head that turns; else 1 if scaled"},
    {"per_layer_config", true, "must be empty"},
    {"q_lora_rank", false, "elements of the latent of queries; null: there is none"},
    {"qk_nope_head_dim", false, "elements of a head of queries that do not turn"},
    {"qk_rope_head_dim", false, "elements behind them, which turn"},
    {"quantization_config", true, "of linear layers: docs/formats.md"},
    {"qkv_bias", false, "biases of q, k and v"},
    {"query_pre_attn_scalar", false, "queries times keys are divided by its root; else 256"},
    {"residual_multiplier", false, "of what attention and feed-forward add"},
    {"rms_norm_eps", true, "else the class's own, mostly 1e-6; not in Cohere"},
    {"rope_interleave", false, "whether neighbours turn together, or halves"},
    {"rope_local_base_freq", false, "theta of layers with the window, else 1e4"},
    {"rope_parameters", true, "or rope_scaling"},
    {"rope_scaling", true, "or rope_parameters; both must mean the same"},
    {"rope_theta", true, "else the class's own, mostly 1e4"},
    {"rotary_dim", false, "elements of a head that turn; else all"},
    {"routed_scaling_factor", false, "of the experts' shares; else 1, V3 2.5"},
    {"shared_expert_intermediate_size", false, ""},
    {"scoring_func", false, "of experts: softmax in DeepSeek V2, sigmoid in V3"},
    {"sliding_window", false, "keys that a query sees"},
    {"sliding_window_pattern", false, "every so many layers, one has no window"},
    {"swiglu_alpha", false, "slope of the gate's sigmoid; else 1.702"},
    {"swiglu_limit", false, "of gate and up; else 7"},
    {"tie_word_embeddings", true, "the embedding is the head, unless the file's head differs"},
    {"topk_group", false, "groups whose experts a token may use; else 1, V3 4"},
    {"topk_method", false, "greedy, group_limited_greedy in DeepSeek V2, noaux_tc in V3"},
    {"torch_dtype", true, "older spelling of dtype"},
    {"use_bias", false, "biases of all linear layers"},
    {"use_bidirectional_attention", false, "must be false"},
    {"use_qk_norm", false, "norms of heads; in Cohere it must be false"},
    {"use_sliding_window", false, "whether sliding_window counts"},
    {"v_head_dim", false, "elements of a head of values"},
    {"vocab_size", true, ""},
};

constexpr const char* kHarmless[] = {
    // Of training.
    "attention_dropout", "classifier_dropout", "embd_pdrop", "hidden_dropout", "embedding_dropout",
    "initializer_range", "output_router_logits", "pretraining_tp", "resid_pdrop",
    "residual_dropout", "router_aux_loss_coef", "router_jitter_noise", "aux_loss_alpha", "seq_aux",
    "ep_size",
    // What a forward pass returns, and how transformers computes it.
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation",
    "attn_implementation", "chunk_size_feed_forward", "experts_implementation", "output_attentions",
    "output_hidden_states", "return_dict", "tie_last_hidden_states", "torchscript", "use_bfloat16",
    "use_cache", "cache_implementation",
    // Tokens and labels.
    "bos_token_id", "decoder_start_token_id", "finetuning_task", "id2label", "label2id",
    "num_labels", "pad_token_id", "prefix", "problem_type", "sep_token_id", "task_specific_params",
    "tokenizer_class",
    // Of generation.
    "assistant_confidence_threshold", "assistant_lookbehind", "bad_words_ids",
    "begin_suppress_tokens", "diversity_penalty", "do_sample", "early_stopping",
    "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff", "eta_cutoff",
    "exponential_decay_length_penalty", "forced_bos_token_id", "forced_eos_token_id",
    "length_penalty", "max_length", "min_length", "no_repeat_ngram_size", "num_assistant_tokens",
    "num_assistant_tokens_schedule", "num_beam_groups", "num_beams", "num_return_sequences",
    "output_scores", "remove_invalid_values", "repetition_penalty", "return_dict_in_generate",
    "suppress_tokens", "target_lookbehind", "temperature", "top_k", "top_p", "typical_p",
    // Where the file comes from.
    "_commit_hash", "_name_or_path", "auto_map", "name_or_path", "transformers_version"};

bool Says(const json& value) {
  if (value.is_number()) return value != 0;
  if (value.is_boolean()) return value.get<bool>();
  return !value.empty();  // null is empty, a text never
}

// "a, b": hostile files have many.
std::string Listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 100;
  if (names.size() <= kMost) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format(
      "{}, and {} more",
      fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(kMost), ", "),
      names.size() - kMost);
}

bool Contains(std::span<const char* const> names, std::string_view name) {
  return std::ranges::any_of(names, [&](const char* each) { return name == each; });
}

std::string NameOf(const std::string& key) {
  constexpr std::size_t kShown = 60;
  return Printable(key, kShown);
}

}  // namespace

std::span<const ConfigKey> UsedKeys() { return kUsed; }
std::span<const char* const> HarmlessKeys() { return kHarmless; }

bool Reads(const DecoderArchitecture& architecture, const ConfigKey& key) {
  return key.everywhere || Contains(architecture.keys, key.name);
}

namespace {

void AddUnknown(const std::vector<std::string>& unknown, const std::string& origin,
                std::vector<std::string>& sentences) {
  if (unknown.empty()) return;
  sentences.push_back(
      fmt::format("{}: unknown keys, which have no effect: {}", origin, Listed(unknown)));
}

// Of the parts beside the text model, and of where its embeddings meet theirs.
constexpr const char* kOfContainers[] = {"architectures",
                                         "model_type",
                                         "text_config",
                                         "vision_config",
                                         "dtype",
                                         "torch_dtype",
                                         "tie_word_embeddings",
                                         "quantization_config",
                                         "eos_token_id",
                                         "image_token_id",
                                         "image_token_index",
                                         "multimodal_projector_bias",
                                         "projector_hidden_act",
                                         "spatial_merge_size",
                                         "vision_feature_layer",
                                         "vision_feature_select_strategy",
                                         "mm_tokens_per_image",
                                         "boi_token_index",
                                         "eoi_token_index",
                                         "boi_token_id",
                                         "eoi_token_id",
                                         "image_seq_length",
                                         "is_encoder_decoder"};

}  // namespace

std::vector<std::string> UnusedKeys(const json& config, const DecoderArchitecture& architecture,
                                    const std::string& origin) {
  std::vector<std::string> unknown, idle;
  for (const auto& [name, value] : config.items()) {
    const auto* const used =
        std::ranges::find_if(kUsed, [&](const ConfigKey& key) { return name == key.name; });
    if (used != std::end(kUsed)) {
      const bool known = Reads(architecture, *used) || Contains(architecture.silent, name);
      if (!known && Says(value)) idle.push_back(name);
    } else if (!Contains(kHarmless, name) && !Contains(architecture.silent, name)) {
      unknown.push_back(NameOf(name));
    }
  }
  std::vector<std::string> sentences;
  if (!idle.empty()) {
    sentences.push_back(
        fmt::format("{}: without effect in {}: {}", origin, architecture.name, Listed(idle)));
  }
  AddUnknown(unknown, origin, sentences);
  return sentences;
}

std::vector<std::string> UnusedKeysOfContainer(const json& config, const std::string& origin) {
  std::vector<std::string> unknown, sentences;
  for (const auto& [name, value] : config.items()) {
    if (!Contains(kOfContainers, name) && !Contains(kHarmless, name)) {
      unknown.push_back(NameOf(name));
    }
  }
  AddUnknown(unknown, origin, sentences);
  return sentences;
}

std::vector<std::string> UnusedKeysOf(const json& object, std::span<const char* const> known,
                                      const std::string& where) {
  std::vector<std::string> unused;
  for (const auto& [name, value] : object.items()) {
    if (!Contains(known, name) && !value.is_null()) unused.push_back(NameOf(name));
  }
  if (unused.empty()) return {};
  return {fmt::format("{} has keys without effect: {}", where, Listed(unused))};
}

}  // namespace culet
