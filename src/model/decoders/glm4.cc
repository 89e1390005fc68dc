// GLM-4: norms before and behind, half of each head turns by neighbours.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"attention_bias"};

void Read(DecoderReader& reader) { reader.AttentionBias(false, false); }

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

}  // namespace culet
