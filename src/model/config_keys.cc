#include "model/config_keys.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/printable.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr ArchitectureName kFamilies[] = {
    {"LlamaForCausalLM", "llama"},     {"MistralForCausalLM", "mistral"},
    {"MixtralForCausalLM", "mixtral"}, {"Qwen2ForCausalLM", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3"},     {"Qwen3MoeForCausalLM", "qwen3_moe"},
};

constexpr unsigned Bit(Family family) { return 1U << static_cast<unsigned>(family); }
constexpr unsigned kLlama = Bit(Family::kLlama), kMistral = Bit(Family::kMistral),
                   kMixtral = Bit(Family::kMixtral), kQwen2 = Bit(Family::kQwen2),
                   kQwen3 = Bit(Family::kQwen3), kQwen3Moe = Bit(Family::kQwen3Moe);
constexpr unsigned kAll = kLlama | kMistral | kMixtral | kQwen2 | kQwen3 | kQwen3Moe;
constexpr unsigned kSparse = kMixtral | kQwen3Moe;

constexpr ConfigKey kUsed[] = {
    {"architectures", kAll, "which architecture; with model_type, of which it must not differ"},
    {"attention_bias", kLlama | kQwen3 | kQwen3Moe, "biases of q, k, v and o"},
    {"decoder_sparse_step", kQwen3Moe, "every so many layers, one has experts"},
    {"dtype", kAll, "type of the weights, for shapes without files"},
    {"eos_token_id", kAll, "end tokens, where generation_config.json has none"},
    {"head_dim", kAll, "else hidden_size / num_attention_heads, in Qwen3 128"},
    {"hidden_act", kAll, "silu or swish; others are refused"},
    {"hidden_size", kAll, ""},
    {"intermediate_size", kAll, "in Mixtral of experts, in Qwen3-MoE of layers without"},
    {"is_causal", kAll, "must be true"},
    {"is_encoder_decoder", kAll, "must be false"},
    {"layer_types", kQwen2 | kQwen3, "which layers have the window"},
    {"max_position_embeddings", kAll, "longest context"},
    {"max_window_layers", kQwen2 | kQwen3, "the first layer with the window", kQwen3Moe},
    {"mlp_bias", kLlama, "biases of gate, up and down"},
    {"mlp_only_layers", kQwen3Moe, "layers without experts"},
    {"model_type", kAll, "which architecture"},
    {"moe_intermediate_size", kQwen3Moe, "of experts"},
    {"norm_topk_prob", kQwen3Moe, "whether the shares of the chosen experts add up to 1"},
    {"num_attention_heads", kAll, ""},
    {"num_experts", kSparse, "or num_local_experts"},
    {"num_experts_per_tok", kSparse, ""},
    {"num_hidden_layers", kAll, ""},
    {"num_key_value_heads", kAll,
     "else 8 (Mistral, Mixtral), 4 (Qwen3-MoE) or num_attention_heads, as for null"},
    {"num_local_experts", kSparse, "or num_experts"},
    {"original_max_position_embeddings", kAll, "of llama3 and yarn; counts more than rope's own"},
    {"partial_rotary_factor", kAll, "must be 1 where frequencies are scaled, else without effect"},
    {"per_layer_config", kAll, "must be empty"},
    {"quantization_config", kAll, "FP8 in blocks of 128 x 128; others are refused"},
    {"rms_norm_eps", kAll, "else 1e-6, in Mixtral 1e-5"},
    {"rope_parameters", kAll, "or rope_scaling"},
    {"rope_scaling", kAll, "or rope_parameters; both must mean the same"},
    {"rope_theta", kAll, "else 1e4, in Mixtral 1e6"},
    {"sliding_window", kAll & ~kLlama, "keys that a query sees"},
    {"tie_word_embeddings", kAll, "the embedding is the head, unless the file's head differs"},
    {"torch_dtype", kAll, "older spelling of dtype"},
    {"use_sliding_window", kQwen2 | kQwen3 | kQwen3Moe, "whether sliding_window counts"},
    {"vocab_size", kAll, ""},
};

constexpr const char* kHarmless[] = {
    // Of training.
    "attention_dropout", "classifier_dropout", "embd_pdrop", "hidden_dropout", "initializer_range",
    "output_router_logits", "pretraining_tp", "resid_pdrop", "router_aux_loss_coef",
    "router_jitter_noise",
    // What a forward pass returns, and how transformers computes it.
    "_attn_implementation", "_attn_implementation_autoset", "_experts_implementation",
    "attn_implementation", "chunk_size_feed_forward", "experts_implementation", "output_attentions",
    "output_hidden_states", "return_dict", "tie_last_hidden_states", "torchscript", "use_bfloat16",
    "use_cache",
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
    "_commit_hash", "_name_or_path", "name_or_path", "transformers_version"};

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

std::span<const ArchitectureName> Families() { return kFamilies; }
std::span<const ConfigKey> UsedKeys() { return kUsed; }
std::span<const char* const> HarmlessKeys() { return kHarmless; }

std::vector<std::string> UnusedKeys(const json& config, Family family, const std::string& origin) {
  std::vector<std::string> unknown, idle;
  for (const auto& [name, value] : config.items()) {
    const auto* const used =
        std::ranges::find_if(kUsed, [&](const ConfigKey& key) { return name == key.name; });
    if (used != std::end(kUsed)) {
      if (((used->readers | used->silent) & Bit(family)) == 0 && Says(value)) idle.push_back(name);
    } else if (!Contains(kHarmless, name)) {
      unknown.push_back(NameOf(name));
    }
  }
  std::vector<std::string> sentences;
  if (!idle.empty()) {
    sentences.push_back(fmt::format("{}: without effect in {}: {}", origin,
                                    kFamilies[static_cast<int>(family)].name, Listed(idle)));
  }
  if (!unknown.empty()) {
    sentences.push_back(
        fmt::format("{}: unknown keys, which have no effect: {}", origin, Listed(unknown)));
  }
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
