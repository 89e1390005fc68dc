// Qwen3-Next: linear attention by the gated delta rule, and every few layers attention with a gate.
#include <cstdint>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr double kPartialRotary = 0.25;

constexpr const char* kKeys[] = {
    "attention_bias",       "decoder_sparse_step",    "full_attention_interval",
    "layer_types",          "linear_conv_kernel_dim", "linear_key_head_dim",
    "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim",
    "mlp_only_layers",      "moe_intermediate_size",  "norm_topk_prob",
    "num_experts",          "num_experts_per_tok",    "shared_expert_intermediate_size"};

// Which layers have linear attention.
void LinearLayers(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  const int interval = reader.keys().IntOr({"full_attention_interval"}, 4);
  if (reader.LinearTypes()) return;
  for (int layer = 0; layer < config.layers; ++layer) {
    config.linear_layers[static_cast<std::size_t>(layer)] = (layer + 1) % interval != 0;
  }
}

void LinearHeads(DecoderReader& reader) {
  ConfigReader& keys = reader.keys();
  LinearAttention& linear = reader.config().linear;
  GatedDeltaParams& delta = linear.delta;
  linear.taps = keys.IntOr({"linear_conv_kernel_dim"}, 4);
  delta.key_heads = keys.IntOr({"linear_num_key_heads"}, 16);
  delta.value_heads = keys.IntOr({"linear_num_value_heads"}, 32);
  delta.key_dim = keys.IntOr({"linear_key_head_dim"}, 128);
  delta.value_dim = keys.IntOr({"linear_value_head_dim"}, 128);
  keys.Supported(linear.taps >= 2,
                 "linear_conv_kernel_dim is 1; known is a convolution of 2 rows "
                 "or more");
  if (!keys.Require(delta.value_heads % delta.key_heads == 0,
                    "linear_num_value_heads is no multiple of linear_num_key_heads")) {
    return;
  }
  const auto size = [](int a, int b) { return std::int64_t{a} * b; };
  const int of_keys =
      keys.Fit(size(delta.key_heads, delta.key_dim), "linear_num_key_heads * linear_key_head_dim");
  const int of_values = keys.Fit(size(delta.value_heads, delta.value_dim),
                                 "linear_num_value_heads * linear_value_head_dim");
  const int row = keys.Fit(2 * (std::int64_t{of_keys} + of_values),
                           "a row of queries, keys, values and gates of linear attention");
  keys.Fit(size(of_values, delta.key_dim), "the state of a layer of linear attention");
  keys.Fit(size(row, linear.taps), "the convolution of a layer of linear attention");
}

void ReadQwen3Next(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  reader.AttentionBias(false, true);
  config.qk_norm = true;
  config.attention_gate = true;
  keys.Fit(2 * std::int64_t{config.heads} * config.head_dim, "2 * num_attention_heads * head_dim");
  LinearLayers(reader);
  bool any_linear = false, any_sparse = false;
  for (const bool linear : config.linear_layers) any_linear |= linear;
  if (any_linear) LinearHeads(reader);
  reader.SparseLayers();
  for (const bool sparse : config.sparse) any_sparse |= sparse;
  reader.Experts({.width = "moe_intermediate_size"}, keys.FlagOr({"norm_topk_prob"}, true));
  if (!any_sparse) return;
  config.shared_intermediate = keys.Int({"shared_expert_intermediate_size"});
  config.shared_gate = true;
}

}  // namespace

const DecoderArchitecture kQwen3Next{
    .name = "Qwen3NextForCausalLM",
    .model_type = "qwen3_next",
    .read = ReadQwen3Next,
    .defaults = {.heads = {.kv_heads = 2, .head_dim = 256}, .partial_rotary = kPartialRotary},
    .names = {.gamma_less_one = true,
              .shared = "shared_expert",
              .shared_router = "shared_expert_gate",
              .ahead = "mtp."},
    .keys = kKeys,
    .parts =
        "gated delta nets, attention with a gate, routed experts and a gated "
        "shared one"};

}  // namespace culet
