// Command R (Cohere and Cohere 2): attention and feed-forward read one layer norm.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr int kDefaultWindow = 4096;

constexpr const char* kCohereKeys[] = {"attention_bias", "layer_norm_eps", "logit_scale",
                                       "use_qk_norm"};
constexpr const char* kCohere2Keys[] = {"attention_bias", "layer_norm_eps",
                                        "logit_scale",    "layer_types",
                                        "sliding_window", "sliding_window_pattern"};

constexpr DecoderNames kNames{.mlp_norm = nullptr};
constexpr DecoderDefaults Defaults(double theta) {
  return {.epsilon_key = "layer_norm_eps",
          .epsilon = 1e-5,
          .theta = theta,
          .rope_layout = RopeLayout::kNorm,
          .tied_head = true};
}

void ReadBoth(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  reader.AttentionBias(false, true);
  config.norm = NormKind::kLayer;
  config.parallel_residual = true;
  config.logit_scale = reader.Positive("logit_scale", 0.0625);
}

void ReadCohere(DecoderReader& reader) {
  ReadBoth(reader);
  reader.RefuseTrue("use_qk_norm", "norms of heads are not known here");
}

// Heads turn in layers with a window alone.
void ReadCohere2(DecoderReader& reader) {
  ReadBoth(reader);
  DecoderConfig& config = reader.config();
  const int window = reader.WindowOfSome(kDefaultWindow);
  const int pattern = reader.keys().IntOr({"sliding_window_pattern"}, 4);
  if (!reader.LayerTypes(window)) reader.WindowsBut(pattern, window);
  for (std::size_t layer = 0; layer < config.ropes.size(); ++layer) {
    if (config.windows[layer] == 0) config.ropes[layer] = LayerRope::kNone;
  }
}

}  // namespace

const DecoderArchitecture kCohere{
    .name = "CohereForCausalLM",
    .model_type = "cohere",
    .read = ReadCohere,
    .defaults = Defaults(5e5),
    .names = kNames,
    .keys = kCohereKeys,
    .parts = "layer norms, parallel residual, interleaved rope, logit scale"};

const DecoderArchitecture kCohere2{.name = "Cohere2ForCausalLM",
                                   .model_type = "cohere2",
                                   .read = ReadCohere2,
                                   .defaults = Defaults(1e4),
                                   .names = kNames,
                                   .keys = kCohere2Keys,
                                   .parts = "as Cohere, windows, layers without rope"};

}  // namespace culet
