#include "model/gguf_names.h"

#include <charconv>

#include <fmt/format.h>

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

constexpr GgufArchitecture kArchitectures[] = {
    {.name = "llama", .of = "LlamaForCausalLM", .model_type = "llama", .interleaved = true},
    {.name = "llama",
     .of = "MixtralForCausalLM",
     .model_type = "mixtral",
     .experts = true,
     .interleaved = true,
     .modules = kMixtral},
    {.name = "qwen2", .of = "Qwen2ForCausalLM", .model_type = "qwen2"},
    {.name = "qwen2moe", .of = "Qwen2MoeForCausalLM", .model_type = "qwen2_moe", .experts = true},
    {.name = "qwen3", .of = "Qwen3ForCausalLM", .model_type = "qwen3"},
    {.name = "qwen3moe", .of = "Qwen3MoeForCausalLM", .model_type = "qwen3_moe", .experts = true},
    {.name = "gemma2", .of = "Gemma2ForCausalLM", .model_type = "gemma2", .modules = kGemma},
    {.name = "gemma3", .of = "Gemma3ForCausalLM", .model_type = "gemma3_text", .modules = kGemma},
    {.name = "phi3", .of = "Phi3ForCausalLM", .model_type = "phi3", .modules = kPhi3}};

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
      if (module != names.ours) continue;
      place.name = fmt::format("blk.{}.{}{}", name.substr(kLayers.size(), number - kLayers.size()),
                               names.theirs, name.substr(end));
      return place;
    }
  }
  return {};
}

}  // namespace culet
