// Qwen 2 and 3.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr int kDefaultWindow = 4096;   // where the key is missing; null means none
constexpr int kFirstWindowLayer = 28;  // where max_window_layers is missing

constexpr const char* kQwen2Keys[] = {"layer_types", "max_window_layers", "sliding_window",
                                      "use_sliding_window"};
constexpr const char* kQwen3Keys[] = {"attention_bias", "layer_types", "max_window_layers",
                                      "sliding_window", "use_sliding_window"};
constexpr const char* kQwen3MoeKeys[] = {
    "attention_bias", "decoder_sparse_step", "mlp_only_layers",   "moe_intermediate_size",
    "norm_topk_prob", "num_experts",         "num_local_experts", "num_experts_per_tok",
    "sliding_window", "use_sliding_window"};
constexpr const char* kQwen3MoeSilent[] = {"max_window_layers"};

// 0 where use_sliding_window is false.
int WindowInUse(DecoderReader& reader) {
  const int window = reader.Window(kDefaultWindow);
  return reader.keys().FlagOr({"use_sliding_window"}, false) ? window : 0;
}

void DenseWindows(DecoderReader& reader) {
  const int window = WindowInUse(reader);
  const int first = reader.keys().IntOr({"max_window_layers"}, kFirstWindowLayer, 0);
  reader.WindowsFrom(first, window);
  reader.LayerTypes(window);
}

void ReadQwen2(DecoderReader& reader) {
  reader.config().qkv_bias = true;
  DenseWindows(reader);
}

void ReadQwen3(DecoderReader& reader) {
  reader.AttentionBias(false, true);
  reader.config().qk_norm = true;
  DenseWindows(reader);
}

void ReadQwen3Moe(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  reader.AttentionBias(false, true);
  config.qk_norm = true;
  // Numbers in decoder_sparse_step count from 1, in mlp_only_layers from 0.
  const int step = reader.keys().IntOr({"decoder_sparse_step"}, 1);
  for (int layer = 0; layer < config.layers; ++layer) {
    config.sparse[static_cast<std::size_t>(layer)] = (layer + 1) % step == 0;
  }
  for (const int layer : reader.keys().Ints({"mlp_only_layers"})) {
    if (layer < config.layers) config.sparse[static_cast<std::size_t>(layer)] = false;
  }
  reader.Experts("moe_intermediate_size", reader.keys().FlagOr({"norm_topk_prob"}, false));
  reader.WindowsFrom(0, WindowInUse(reader));
}

}  // namespace

const DecoderArchitecture kQwen2{.name = "Qwen2ForCausalLM",
                                 .model_type = "qwen2",
                                 .read = ReadQwen2,
                                 .keys = kQwen2Keys,
                                 .parts = "biases of q, k and v, windows"};

const DecoderArchitecture kQwen3{.name = "Qwen3ForCausalLM",
                                 .model_type = "qwen3",
                                 .read = ReadQwen3,
                                 .defaults = {.heads = kQwen3Heads},
                                 .keys = kQwen3Keys,
                                 .parts = "norms of heads, windows"};

const DecoderArchitecture kQwen3Moe{.name = "Qwen3MoeForCausalLM",
                                    .model_type = "qwen3_moe",
                                    .read = ReadQwen3Moe,
                                    .defaults = {.heads = kQwen3MoeHeads},
                                    .keys = kQwen3MoeKeys,
                                    .silent = kQwen3MoeSilent,
                                    .parts = "norms of heads, routed experts, windows"};

}  // namespace culet
