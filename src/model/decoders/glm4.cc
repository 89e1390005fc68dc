// GLM-4: norms before and behind, half of each head turns by neighbours. GLM-4.5: routed experts,
// half of each head turns by halves.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"attention_bias"};

constexpr const char* kMoeKeys[] = {"attention_bias",
                                    "first_k_dense_replace",
                                    "moe_intermediate_size",
                                    "n_group",
                                    "n_routed_experts",
                                    "n_shared_experts",
                                    "norm_topk_prob",
                                    "num_experts_per_tok",
                                    "num_nextn_predict_layers",
                                    "routed_scaling_factor",
                                    "topk_group",
                                    "use_qk_norm"};

void Read(DecoderReader& reader) { reader.AttentionBias(false, false); }

void ReadMoe(DecoderReader& reader) {
  reader.AttentionBias(false, false);
  reader.config().qk_norm = reader.keys().FlagOr({"use_qk_norm"}, false);
  reader.ExpertsInGroups({});
}

}  // namespace

const DecoderArchitecture kGlm4{
    .name = "Glm4ForCausalLM",
    .model_type = "glm4",
    .read = Read,
    .defaults = {.heads = {.kv_heads = 2, .head_dim = 128},
                 .epsilon = 1.5625e-7,
                 .rope_layout = RopeLayout::kNorm,
                 .partial_rotary = 0.5},
    .names = {.attention_post_norm = "post_self_attn_layernorm",
              .mlp_post_norm = "post_mlp_layernorm",
              .gate_up = "gate_up_proj"},
    .keys = kKeys,
    .parts = "norms before and behind, partial interleaved rope, gate and up in one tensor"};

const DecoderArchitecture kGlm4Moe{
    .name = "Glm4MoeForCausalLM",
    .model_type = "glm4_moe",
    .read = ReadMoe,
    .defaults = {.heads = {.kv_heads = 8}, .epsilon = 1e-5, .partial_rotary = 0.5},
    .names = {.correction = "gate.e_score_correction_bias", .shared = "shared_experts"},
    .keys = kMoeKeys,
    .parts = "norms of heads, partial rope, routed and shared experts"};

}  // namespace culet
