#include "model/gguf_names.h"

#include <charconv>

#include <fmt/format.h>

#include "model/gguf_models.h"

namespace culet {
namespace {

constexpr GgufModule kUsual[] = {{"input_layernorm", "attn_norm"},
                                 {"post_attention_layernorm", "ffn_norm"},
                                 {"self_attn.q_proj", "attn_q"},
                                 {"self_attn.k_proj", "attn_k"},
                                 {"self_attn.v_proj", "attn_v"},
                                 {"self_attn.o_proj", "attn_output"},
                                 {"self_attn.q_norm", "attn_q_norm"},
                                 {"self_attn.k_norm", "attn_k_norm"},
                                 {"mlp.gate_proj", "ffn_gate"},
                                 {"mlp.up_proj", "ffn_up"},
                                 {"mlp.down_proj", "ffn_down"},
                                 {"mlp.gate", "ffn_gate_inp"},
                                 {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                 {"mlp.experts.up_proj", "ffn_up_exps"},
                                 {"mlp.experts.down_proj", "ffn_down_exps"},
                                 {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                 {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                 {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                 {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"}};

constexpr GgufModule kMixtral[] = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                                   {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                                   {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                                   {"block_sparse_moe.experts.w2", "ffn_down_exps"}};

constexpr GgufModule kGemma[] = {{"post_attention_layernorm", "post_attention_norm"},
                                 {"pre_feedforward_layernorm", "ffn_norm"},
                                 {"post_feedforward_layernorm", "post_ffw_norm"}};

constexpr GgufModule kPhi3[] = {{"self_attn.qkv_proj", "attn_qkv"}, {"mlp.gate_up_proj", "ffn_up"}};

constexpr GgufModule kGptOss[] = {{"post_attention_layernorm", "post_attention_norm"},
                                  {"self_attn.sinks", "attn_sinks.weight"},
                                  {"mlp.router", "ffn_gate_inp"}};

constexpr GgufModule kDeepseek[] = {{"self_attn.q_a_proj", "attn_q_a"},
                                    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
                                    {"self_attn.q_b_proj", "attn_q_b"},
                                    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
                                    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
                                    {"self_attn.kv_b_proj.weight[keys]", "attn_k_b.weight"},
                                    {"self_attn.kv_b_proj.weight[values]", "attn_v_b.weight"},
                                    {"self_attn.kv_b_proj", "attn_kv_b"},
                                    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                    {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};

constexpr GgufModule kGlm4[] = {{"post_self_attn_layernorm", "post_attention_norm"},
                                {"mlp.gate_up_proj", "ffn_up"},
                                {"post_mlp_layernorm", "post_ffw_norm"}};

constexpr GgufModule kGlm4Moe[] = {{"post_attention_layernorm", "post_attention_norm"},
                                   {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
                                   {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                   {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                   {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};

constexpr GgufModule kLlama4[] = {{"feed_forward.gate_proj", "ffn_gate"},
                                  {"feed_forward.up_proj", "ffn_up"},
                                  {"feed_forward.down_proj", "ffn_down"},
                                  {"feed_forward.router", "ffn_gate_inp"},
                                  {"feed_forward.experts.gate_proj", "ffn_gate_exps"},
                                  {"feed_forward.experts.up_proj", "ffn_up_exps"},
                                  {"feed_forward.experts.down_proj", "ffn_down_exps"},
                                  {"feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"},
                                  {"feed_forward.shared_expert.up_proj", "ffn_up_shexp"},
                                  {"feed_forward.shared_expert.down_proj", "ffn_down_shexp"}};

constexpr GgufModule kOlmo[] = {{"post_attention_layernorm", "post_attention_norm"},
                                {"post_feedforward_layernorm", "post_ffw_norm"}};

constexpr GgufModule kErnieMoe[] = {{"mlp.moe_statics.e_score_correction_bias", "exp_probs_b.bias"},
                                    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
                                    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
                                    {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};

constexpr GgufModule kMiniMax[] = {{"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
                                   {"block_sparse_moe.gate", "ffn_gate_inp"},
                                   {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
                                   {"block_sparse_moe.experts.w3", "ffn_up_exps"},
                                   {"block_sparse_moe.experts.w2", "ffn_down_exps"}};

constexpr GgufModule kSeedOss[] = {{"post_attention_layernorm", "post_attention_norm"}};

constexpr const char* kPartialRotary = "partial_rotary_factor";
constexpr std::int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama",
     .of = "LlamaForCausalLM",
     .model_type = "llama",
     .interleaved = true,
     .add = AddLlamaKeys},
    {.name = "llama",
     .of = "MixtralForCausalLM",
     .model_type = "mixtral",
     .experts = true,
     .gating = kSoftmax,
     .interleaved = true,
     .modules = kMixtral,
     .add = AddMixtralKeys},
    {.name = "qwen2", .of = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen2moe",
     .of = "Qwen2MoeForCausalLM",
     .model_type = "qwen2_moe",
     .experts = true,
     .gating = kSoftmax,
     .add = AddQwen2MoeKeys},
    {.name = "qwen3", .of = "Qwen3ForCausalLM", .model_type = "qwen3", .add = AddQwen3Keys},
    {.name = "qwen3moe",
     .of = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .experts = true,
     .gating = kSoftmax,
     .add = AddQwen3MoeKeys},
    {.name = "gemma2",
     .of = "Gemma2ForCausalLM",
     .model_type = "gemma2",
     .modules = kGemma,
     .add = AddGemma2Keys},
    {.name = "gemma3",
     .of = "Gemma3ForCausalLM",
     .model_type = "gemma3_text",
     .modules = kGemma,
     .add = AddGemma3Keys},
    {.name = "phi3",
     .of = "Phi3ForCausalLM",
     .model_type = "phi3",
     .partial = kPartialRotary,
     .modules = kPhi3,
     .add = AddPhi3Keys},
    {.name = "gpt-oss",
     .of = "GptOssForCausalLM",
     .model_type = "gpt_oss",
     .experts = true,
     .gating = kSoftmaxOfChosen,
     .modules = kGptOss,
     .add = AddGptOssKeys},
    {.name = "deepseek2",
     .of = "DeepseekV2ForCausalLM",
     .model_type = "deepseek_v2",
     .experts = true,
     .gating = kSoftmax,
     .latent = true,
     .modules = kDeepseek,
     .add = AddDeepseekV2Keys},
    {.name = "deepseek2",
     .of = "DeepseekV3ForCausalLM",
     .model_type = "deepseek_v3",
     .experts = true,
     .gating = kSigmoid,
     .latent = true,
     .modules = kDeepseek,
     .add = AddDeepseekV3Keys},
    {.name = "glm4",
     .of = "Glm4ForCausalLM",
     .model_type = "glm4",
     .partial = kPartialRotary,
     .modules = kGlm4,
     .add = AddGlm4Keys},
    {.name = "glm4moe",
     .of = "Glm4MoeForCausalLM",
     .model_type = "glm4_moe",
     .experts = true,
     .gating = kSigmoid,
     .partial = kPartialRotary,
     .modules = kGlm4Moe,
     .add = AddGlm4MoeKeys},
    {.name = "llama4",
     .of = "Llama4ForCausalLM",
     .model_type = "llama4_text",
     .experts = true,
     .gating = kSigmoid,
     .modules = kLlama4,
     .add = AddLlama4Keys},
    {.name = "olmo2",
     .of = "Olmo2ForCausalLM",
     .model_type = "olmo2",
     .is = HasNoGgufWindow,
     .modules = kOlmo},
    {.name = "olmo2",
     .of = "Olmo3ForCausalLM",
     .model_type = "olmo3",
     .modules = kOlmo,
     .add = AddOlmo3Keys},
    {.name = "granite",
     .of = "GraniteForCausalLM",
     .model_type = "granite",
     .interleaved = true,
     .add = AddGraniteKeys},
    {.name = "command-r",
     .of = "CohereForCausalLM",
     .model_type = "cohere",
     .layer_norm = true,
     .add = AddCohereKeys},
    {.name = "cohere2",
     .of = "Cohere2ForCausalLM",
     .model_type = "cohere2",
     .layer_norm = true,
     .add = AddCohere2Keys},
    {.name = "smollm3",
     .of = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .interleaved = true,
     .add = AddLlamaKeys},
    {.name = "seed_oss",
     .of = "SeedOssForCausalLM",
     .model_type = "seed_oss",
     .modules = kSeedOss,
     .add = AddSeedOssKeys},
    {.name = "ernie4_5",
     .of = "Ernie4_5ForCausalLM",
     .model_type = "ernie4_5",
     .add = AddErnieKeys},
    {.name = "ernie4_5-moe",
     .of = "Ernie4_5_MoeForCausalLM",
     .model_type = "ernie4_5_moe",
     .experts = true,
     .gating = kSoftmax,
     .modules = kErnieMoe,
     .add = AddErnieMoeKeys},
    {.name = "minimax-m2",
     .of = "MiniMaxM2ForCausalLM",
     .model_type = "minimax_m2",
     .experts = true,
     .gating = kSigmoid,
     .partial = "rotary_dim",
     .modules = kMiniMax,
     .add = AddMiniMaxKeys}};

}  // namespace

std::span<const GgufArchitecture> GgufArchitectures() noexcept { return kArchitectures; }

GgufPlace GgufPlaceOf(const GgufArchitecture& architecture, const std::string& name) {
  constexpr GgufModule kWhole[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                                   {"model.norm.weight", "output_norm.weight"},
                                   {"lm_head.weight", "output.weight"}};
  for (const GgufModule& names : kWhole) {
    if (name == names.ours) return {std::string(names.theirs)};
  }
  constexpr std::string_view kLayers = "model.layers.", kExperts = ".experts.";
  if (!name.starts_with(kLayers)) return {};
  const std::size_t number = name.find('.', kLayers.size()), end = name.rfind('.');
  if (number == std::string::npos || end <= number) return {};
  std::string module = name.substr(number + 1, end - number - 1);
  GgufPlace place;
  // "mlp.experts.3.up_proj" is of all experts' "mlp.experts.up_proj".
  if (const std::size_t at = module.find(kExperts); at != std::string::npos) {
    const char* const first = module.data() + at + kExperts.size();
    const auto [behind, error] =
        std::from_chars(first, module.data() + module.size(), place.expert);
    if (error == std::errc() && *behind == '.') {
      module.erase(at + kExperts.size(), static_cast<std::size_t>(behind - first) + 1);
    }
  }
  for (const std::span<const GgufModule> list :
       {architecture.modules, std::span<const GgufModule>(kUsual)}) {
    for (const GgufModule& names : list) {
      const bool whole = std::string_view(name).substr(number + 1) == names.ours;
      if (!whole && module != names.ours) continue;
      place.name = fmt::format("blk.{}.{}{}", name.substr(kLayers.size(), number - kLayers.size()),
                               names.theirs, whole ? "" : name.substr(end));
      return place;
    }
  }
  return {};
}

}  // namespace culet
