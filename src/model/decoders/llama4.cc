// The text part of Llama 4: chunks, layers without rope whose queries grow, routed experts whose
// input is scaled.
#include <fmt/format.h>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {
    "attention_bias",          "attention_chunk_size", "attn_scale",
    "attn_temperature_tuning", "floor_scale",          "interleave_moe_layer_step",
    "intermediate_size_mlp",   "layer_types",          "moe_layers",
    "no_rope_layer_interval",  "no_rope_layers",       "num_experts_per_tok",
    "num_local_experts",       "use_qk_norm"};
// Of training, and of a cache with layers of its own.
constexpr const char* kSilent[] = {"cache_implementation", "for_llm_compressor",
                                   "router_jitter_noise"};

constexpr int kChunk = 8192, kInterval = 4, kFloor = 8192;
constexpr double kGrowth = 0.1;

// Whether layers turn: no_rope_layers has a 1 for those that do. An empty list is none.
void Ropes(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  const int interval = keys.IntOr({"no_rope_layer_interval"}, kInterval);
  const std::vector<int> turns = keys.Ints({"no_rope_layers"});
  const bool enough = turns.empty() || turns.size() == config.ropes.size();
  keys.Require(enough, fmt::format("no_rope_layers has {} numbers; it must have one a layer, {}",
                                   turns.size(), config.layers));
  for (std::size_t layer = 0; enough && layer < config.ropes.size(); ++layer) {
    const bool every = (layer + 1) % static_cast<std::size_t>(interval) != 0;
    const bool turned = turns.empty() ? every : turns[layer] != 0;
    config.ropes[layer] = turned ? LayerRope::kMain : LayerRope::kNone;
  }
}

void Sparse(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  const int step = keys.IntOr({"interleave_moe_layer_step"}, 1);
  if (!keys.Has({"moe_layers"})) {
    for (int layer = step - 1; layer < config.layers; layer += step) {
      config.sparse[static_cast<std::size_t>(layer)] = true;
    }
    return;
  }
  for (const int layer : keys.Ints({"moe_layers"})) {
    if (layer < config.layers) config.sparse[static_cast<std::size_t>(layer)] = true;
  }
}

void Read(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  reader.AttentionBias(false, true);
  Ropes(reader);
  const int chunk = keys.IntOr({"attention_chunk_size"}, kChunk);
  if (!reader.ChunkTypes(chunk)) {
    for (std::size_t layer = 0; layer < config.ropes.size(); ++layer) {
      config.chunks[layer] = config.ropes[layer] != LayerRope::kNone ? chunk : 0;
    }
  }
  config.qk_norm_turned = keys.FlagOr({"use_qk_norm"}, true);
  // Files of before transformers 5 have a number; any but 0 is a yes.
  if (keys.FlagOrNumber({"attn_temperature_tuning"}, true)) {
    config.query_growth = reader.Positive("attn_scale", kGrowth);
    config.query_period = keys.IntOr({"floor_scale"}, kFloor);
    config.query_ahead = 1;
    config.query_growth_unturned = true;
  }
  Sparse(reader);
  reader.Experts({.width = "intermediate_size", .experts = "num_local_experts"}, false);
  config.routing.scoring = RouterScoring::kSigmoid;
  config.share_scales_input = true;
  config.shared_intermediate = config.moe_intermediate;
}

}  // namespace

const DecoderArchitecture kLlama4{
    .name = "Llama4ForCausalLM",
    .model_type = "llama4_text",
    .read = Read,
    .defaults = {.heads = {.kv_heads = 8, .head_dim = 128},
                 .epsilon = 1e-5,
                 .theta = 5e5,
                 .rope_layout = RopeLayout::kNorm,
                 .width_key = "intermediate_size_mlp"},
    .names = {.dense = "feed_forward",
              .sparse = "feed_forward",
              .stacked = StackedExperts::kHalves,
              .router = "router",
              .shared = "shared_expert"},
    .keys = kKeys,
    .silent = kSilent,
    .parts = "chunks, layers without rope, norms behind rope, routed and shared experts"};

}  // namespace culet
