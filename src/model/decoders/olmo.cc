// OLMo 2 and 3: norms behind attention and feed-forward alone, and over all heads of q and of k.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr int kDefaultWindow = 4096;
constexpr int kPattern = 4;  // every so many layers, one has no window
constexpr double kOlmo3Theta = 5e5;

constexpr const char* kOlmo2Keys[] = {"attention_bias"};
constexpr const char* kOlmo3Keys[] = {"attention_bias", "layer_types", "sliding_window"};

constexpr DecoderNames kNames{.attention_norm = nullptr,
                              .attention_post_norm = "post_attention_layernorm",
                              .mlp_norm = nullptr,
                              .mlp_post_norm = "post_feedforward_layernorm"};

void ReadOlmo2(DecoderReader& reader) {
  reader.AttentionBias(false, true);
  reader.config().qk_norm = reader.config().qk_norm_whole = true;
}

// Frequencies are scaled in layers without a window alone, of which rope_theta is, too.
void ReadOlmo3(DecoderReader& reader) {
  ReadOlmo2(reader);
  DecoderConfig& config = reader.config();
  const int window = reader.WindowOfSome(kDefaultWindow);
  if (!reader.LayerTypes(window)) reader.WindowsBut(kPattern, window);
  if (reader.HasRopeByType()) {
    config.local_rope = reader.RopeOf("sliding_attention", kOlmo3Theta);
  } else {
    config.local_rope = {};
    config.local_rope.layout = config.rope.layout;
    config.local_rope.dims = config.rope.dims;
    config.local_rope.theta = kOlmo3Theta;
  }
  reader.LocalRopesWithWindows();
}

}  // namespace

const DecoderArchitecture kOlmo2{.name = "Olmo2ForCausalLM",
                                 .model_type = "olmo2",
                                 .read = ReadOlmo2,
                                 .defaults = {.epsilon = 1e-5},
                                 .names = kNames,
                                 .keys = kOlmo2Keys,
                                 .parts = "norms behind, norms of all heads together"};

const DecoderArchitecture kOlmo3{.name = "Olmo3ForCausalLM",
                                 .model_type = "olmo3",
                                 .read = ReadOlmo3,
                                 .defaults = {.epsilon = 1e-5, .theta = kOlmo3Theta},
                                 .names = kNames,
                                 .keys = kOlmo3Keys,
                                 .parts = "as OLMo 2, windows, two ropes"};

}  // namespace culet
