// MiniMax-M2: experts in every layer, chosen by sigmoid and a bias; norms over all heads.
#include <fmt/format.h>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"num_experts", "num_experts_per_tok", "num_local_experts",
                                 "rotary_dim"};
// Of the model's own code.
constexpr const char* kSilent[] = {"attn_type_list",
                                   "layernorm_full_attention_beta",
                                   "layernorm_linear_attention_beta",
                                   "layernorm_mlp_beta",
                                   "mlp_intermediate_size",
                                   "mtp_transformer_layers",
                                   "num_mtp_modules",
                                   "qk_norm_type",
                                   "scoring_func",
                                   "shared_intermediate_size",
                                   "shared_moe_mode",
                                   "use_mtp",
                                   "use_qk_norm",
                                   "use_routing_bias"};

void Read(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  config.qk_norm = config.qk_norm_whole = true;
  config.sparse.assign(config.sparse.size(), true);
  reader.Experts({.width = "intermediate_size", .other_experts = "num_local_experts"}, true);
  config.routing.scoring = RouterScoring::kSigmoid;
  config.router_correction = true;
  // Its own spelling of partial_rotary_factor.
  const int dims = keys.IntOr({"rotary_dim"}, config.rope.dims);
  keys.Require(dims % 2 == 0 && dims <= config.head_dim,
               fmt::format("rotary_dim is {}; it must be even, and at most head_dim {}", dims,
                           config.head_dim));
  keys.Require(config.rope.dims == config.head_dim || config.rope.dims == dims,
               fmt::format("rotary_dim is {}, but partial_rotary_factor makes it {}", dims,
                           config.rope.dims));
  config.rope.dims = config.local_rope.dims = dims;
}

}  // namespace

const DecoderArchitecture kMiniMaxM2{
    .name = "MiniMaxM2ForCausalLM",
    .model_type = "minimax_m2",
    .read = Read,
    .defaults = {.heads = {.kv_heads = 8, .head_dim = 128}, .theta = 5e6, .partial_rotary = 1},
    .names = {.sparse = "block_sparse_moe",
              .correction = "e_score_correction_bias",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2"},
    .keys = kKeys,
    .silent = kSilent,
    .parts = "norms of all heads together, partial rope, routed experts"};

}  // namespace culet
