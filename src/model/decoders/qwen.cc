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
constexpr const char* kQwen2MoeKeys[] = {"decoder_sparse_step",
                                         "layer_types",
                                         "max_window_layers",
                                         "mlp_only_layers",
                                         "moe_intermediate_size",
                                         "norm_topk_prob",
                                         "num_experts",
                                         "num_experts_per_tok",
                                         "qkv_bias",
                                         "shared_expert_intermediate_size",
                                         "sliding_window",
                                         "use_sliding_window"};
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
  reader.SparseLayers();
  reader.Experts({.width = "moe_intermediate_size", .other_experts = "num_local_experts"},
                 reader.keys().FlagOr({"norm_topk_prob"}, false));
  reader.WindowsFrom(0, WindowInUse(reader));
}

// A shared expert with a gate of its own; every second layer may have a window.
void ReadQwen2Moe(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  config.qkv_bias = keys.FlagOr({"qkv_bias"}, true);
  reader.SparseLayers();
  reader.Experts({.width = "moe_intermediate_size"}, keys.FlagOr({"norm_topk_prob"}, false));
  config.shared_intermediate = keys.Int({"shared_expert_intermediate_size"});
  config.shared_gate = true;
  const bool none = keys.Stands("sliding_window") && !keys.Has({"sliding_window"});
  const int given = none ? 0 : keys.IntOr({"sliding_window"}, kDefaultWindow, 0);
  const int first_full = keys.IntOr({"max_window_layers"}, kFirstWindowLayer, 0);
  const bool used = keys.FlagOr({"use_sliding_window"}, false);
  keys.Require(!used || given > 0, "sliding_window is 0 or null, but use_sliding_window true");
  for (int layer = 0; layer < config.layers && layer < first_full && used; layer += 2) {
    config.windows[static_cast<std::size_t>(layer)] = given;
  }
  reader.LayerTypes(used ? given : 0);
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

const DecoderArchitecture kQwen2Moe{
    .name = "Qwen2MoeForCausalLM",
    .model_type = "qwen2_moe",
    .read = ReadQwen2Moe,
    .defaults = {.heads = {.kv_heads = 16}},
    .names = {.shared = "shared_expert", .shared_router = "shared_expert_gate"},
    .keys = kQwen2MoeKeys,
    .parts = "biases of q, k and v, routed experts and a gated shared one, windows"};

const DecoderArchitecture kQwen3Moe{.name = "Qwen3MoeForCausalLM",
                                    .model_type = "qwen3_moe",
                                    .read = ReadQwen3Moe,
                                    .defaults = {.heads = kQwen3MoeHeads},
                                    .keys = kQwen3MoeKeys,
                                    .silent = kQwen3MoeSilent,
                                    .parts = "norms of heads, routed experts, windows"};

}  // namespace culet
