// SmolLM3: some layers do not turn.
#include <fmt/format.h>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"attention_bias",         "mlp_bias",    "no_rope_layers",
                                 "no_rope_layer_interval", "layer_types", "sliding_window",
                                 "use_sliding_window"};

void Read(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  reader.AttentionBias(false, true);
  reader.MlpBias();
  const int interval = keys.IntOr({"no_rope_layer_interval"}, 4);
  for (int layer = 0; layer < config.layers; ++layer) {
    if ((layer + 1) % interval == 0) {
      config.ropes[static_cast<std::size_t>(layer)] = LayerRope::kNone;
    }
  }
  if (keys.Has({"no_rope_layers"})) {
    const std::vector<int> turns = keys.Ints({"no_rope_layers"});
    const bool enough = turns.size() >= config.ropes.size();
    keys.Require(enough, fmt::format("no_rope_layers has {} numbers; it must have one a layer, {}",
                                     turns.size(), config.layers));
    for (std::size_t layer = 0; enough && layer < config.ropes.size(); ++layer) {
      config.ropes[layer] = turns[layer] != 0 ? LayerRope::kMain : LayerRope::kNone;
    }
  }
  const int given = reader.Window(0);
  const int window = keys.FlagOr({"use_sliding_window"}, false) ? given : 0;
  if (reader.LayerTypes(window)) return;
  for (std::size_t layer = 0; layer < config.ropes.size(); ++layer) {
    config.windows[layer] = config.ropes[layer] == LayerRope::kNone ? window : 0;
  }
}

}  // namespace

const DecoderArchitecture kSmolLm3{
    .name = "SmolLM3ForCausalLM",
    .model_type = "smollm3",
    .read = Read,
    .defaults = {.heads = {.kv_heads = 4}, .theta = 2e6, .tied_head = true},
    .keys = kKeys,
    .parts = "layers without rope, windows"};

}  // namespace culet
