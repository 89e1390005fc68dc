// Gemma 2 and the text model of Gemma 3.
#include <cmath>

#include <fmt/format.h>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr int kDefaultWindow = 4096;
constexpr double kLocalTheta = 1e4;

constexpr const char* kGemma2Keys[] = {"attention_bias",
                                       "attn_logit_softcapping",
                                       "final_logit_softcapping",
                                       "hidden_activation",
                                       "layer_types",
                                       "query_pre_attn_scalar",
                                       "sliding_window",
                                       "use_bidirectional_attention"};
constexpr const char* kGemma3Keys[] = {
    "attention_bias",       "final_logit_softcapping", "hidden_activation",
    "layer_types",          "query_pre_attn_scalar",   "sliding_window",
    "rope_local_base_freq", "sliding_window_pattern",  "use_bidirectional_attention"};

// What files of transformers 5 have beside layer_types, which it gave.
constexpr const char* kGemma3Silent[] = {"_sliding_window_pattern"};

constexpr DecoderNames kNames{.attention_post_norm = "post_attention_layernorm",
                              .mlp_norm = "pre_feedforward_layernorm",
                              .mlp_post_norm = "post_feedforward_layernorm",
                              .gamma_less_one = true};

// Released files of Gemma 3 lack what is their class's default.
constexpr DecoderDefaults Defaults(double theta, int heads, int vocab, int max_position) {
  return {.heads = {.heads = heads, .kv_heads = 4, .head_dim = 256},
          .vocab = vocab,
          .max_position = max_position,
          .theta = theta,
          .tied_head = true,
          .gate_key = "hidden_activation",
          .gate = GateKind::kGeluTanh};
}

void ReadBoth(DecoderReader& reader, double logit_cap) {
  DecoderConfig& config = reader.config();
  reader.AttentionBias(false, true);
  reader.RefuseTrue("use_bidirectional_attention", "a query sees no later keys");
  const double scalar = reader.Positive("query_pre_attn_scalar", 256);
  config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  config.logit_softcap = reader.PositiveOrNone("final_logit_softcapping", logit_cap);
  config.embedding_scale = std::sqrt(static_cast<float>(config.hidden));
}

void ReadGemma2(DecoderReader& reader) {
  ReadBoth(reader, 30);
  reader.config().attention_softcap = reader.PositiveOrNone("attn_logit_softcapping", 50);
  const int window = reader.WindowOfSome(kDefaultWindow);
  if (!reader.LayerTypes(window)) reader.WindowsBut(2, window);
}

void ReadGemma3(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ReadBoth(reader, 0);
  config.qk_norm = true;
  const int window = reader.WindowOfSome(kDefaultWindow);
  const int pattern = reader.keys().IntOr({"sliding_window_pattern"}, 6);
  if (!reader.LayerTypes(window)) reader.WindowsBut(pattern, window);
  const double theta = reader.keys().NumberOr({"rope_local_base_freq"}, kLocalTheta);
  if (reader.HasRopeByType()) {
    config.local_rope = reader.RopeOf("sliding_attention", theta);
  } else {
    reader.keys().Require(theta > 1,
                          fmt::format("rope_local_base_freq is {}; it must be above 1", theta));
    config.local_rope = {};
    config.local_rope.dims = config.rope.dims;
    config.local_rope.theta = theta;
  }
  reader.LocalRopesWithWindows();
}

}  // namespace

const DecoderArchitecture kGemma2{
    .name = "Gemma2ForCausalLM",
    .model_type = "gemma2",
    .read = ReadGemma2,
    .defaults = Defaults(1e4, 0, 0, 0),
    .names = kNames,
    .keys = kGemma2Keys,
    .parts = "norms before and behind, GELU gate, soft caps, windows, scaled embedding"};

const DecoderArchitecture kGemma3{.name = "Gemma3ForCausalLM",
                                  .model_type = "gemma3_text",
                                  .read = ReadGemma3,
                                  .defaults = Defaults(1e6, 8, 262208, 131072),
                                  .names = kNames,
                                  .keys = kGemma3Keys,
                                  .silent = kGemma3Silent,
                                  .parts = "as Gemma 2 without caps, norms of heads, two ropes"};

}  // namespace culet
