// DeepSeek V2 and V3, and what has their form: R1, Moonlight, Kimi K2.
#include <cmath>

#include <fmt/format.h>

#include "culet/printable.h"
#include "model/decoder_reader.h"
#include "model/decoders/all.h"
#include "model/rope_config.h"

namespace culet {
namespace {

constexpr const char* kV2Keys[] = {
    "attention_bias", "first_k_dense_replace", "kv_lora_rank",     "mlp_bias",
    "q_lora_rank",    "qk_nope_head_dim",      "qk_rope_head_dim", "v_head_dim"};
constexpr const char* kV3Keys[] = {
    "attention_bias",   "first_k_dense_replace",    "kv_lora_rank",
    "num_mtp_layers",   "num_nextn_predict_layers", "q_lora_rank",
    "qk_nope_head_dim", "qk_rope_head_dim",         "rope_interleave",
    "v_head_dim"};
constexpr const char* kSilent[] = {"qk_head_dim"};  // the sum of two others

constexpr int kRopeDim = 64;
constexpr DecoderDefaults kDefaults{
    .heads = {.head_dim = kRopeDim, .head_dim_key = "qk_rope_head_dim"},
    .rope_layout = RopeLayout::kNorm};

// What has a default where the key is missing is not null.
int SizeOr(ConfigReader& keys, const char* key, int fallback, int minimum = 1) {
  keys.Require(!keys.Stands(key) || keys.Has({key}), fmt::format("{} is null", key));
  return keys.IntOr({key}, fallback, minimum);
}

void ReadLatent(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  keys.Require(config.kv_heads == config.heads,
               fmt::format("num_key_value_heads is {}, num_attention_heads {}; heads have keys of "
                           "their own, so the two must be equal",
                           config.kv_heads, config.heads));
  LatentAttention& latent = config.latent;
  latent.kv_rank = SizeOr(keys, "kv_lora_rank", 512);
  // Null means that queries are made of the hidden state.
  latent.q_rank = keys.Stands("q_lora_rank") ? keys.IntOr({"q_lora_rank"}, 0) : 1536;
  latent.nope_dim = SizeOr(keys, "qk_nope_head_dim", 128);
  latent.rope_dim = SizeOr(keys, "qk_rope_head_dim", kRopeDim);
  latent.value_dim = SizeOr(keys, "v_head_dim", 128);
  latent.norm_eps = 1e-6f;  // whatever rms_norm_eps says
  const std::int64_t heads = config.heads, size = std::int64_t{latent.nope_dim} + latent.rope_dim;
  keys.Fit(heads * size, "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)");
  keys.Fit(heads * latent.kv_rank, "num_attention_heads * kv_lora_rank");
  keys.Fit(heads * latent.value_dim, "num_attention_heads * v_head_dim");
  const double scale = LogitFactor(reader.root(), keys, config.rope);
  config.attention_scale = static_cast<float>(scale / std::sqrt(static_cast<double>(size)));
  config.kv_heads = 1;
  config.head_dim =
      keys.Fit(std::int64_t{latent.kv_rank} + latent.rope_dim, "kv_lora_rank + qk_rope_head_dim");
  reader.AttentionBias(false, true);
}

// Layers from first_k_dense_replace on have experts.
void ReadSparse(DecoderReader& reader, int first) {
  DecoderConfig& config = reader.config();
  const int dense = SizeOr(reader.keys(), "first_k_dense_replace", first, 0);
  for (int layer = dense; layer < config.layers; ++layer) {
    config.sparse[static_cast<std::size_t>(layer)] = true;
  }
}

void ReadV2(DecoderReader& reader) {
  ReadLatent(reader);
  ReadSparse(reader, 0);
  reader.MlpBias();
}

void ReadV3(DecoderReader& reader) {
  ReadLatent(reader);
  ReadSparse(reader, 3);
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  const bool missing = !keys.Stands("rope_interleave");
  if (!missing && !keys.FlagOr({"rope_interleave"}, false)) {
    config.rope.layout = config.local_rope.layout = RopeLayout::kNeox;
  }
  config.mtp_layers = keys.IntOr({"num_nextn_predict_layers", "num_mtp_layers"}, 1, 0);
}

}  // namespace

const DecoderArchitecture kDeepseekV2{.name = "DeepseekV2ForCausalLM",
                                      .model_type = "deepseek_v2",
                                      .read = ReadV2,
                                      .defaults = kDefaults,
                                      .keys = kV2Keys,
                                      .silent = kSilent,
                                      .parts = "latent attention (MLA), interleaved rope"};

const DecoderArchitecture kDeepseekV3{.name = "DeepseekV3ForCausalLM",
                                      .model_type = "deepseek_v3",
                                      .read = ReadV3,
                                      .defaults = kDefaults,
                                      .keys = kV3Keys,
                                      .silent = kSilent,
                                      .parts = "latent attention (MLA), interleaved rope"};

const DecoderArchitecture kKimiK2{.name = "DeepseekV3ForCausalLM",
                                  .model_type = "kimi_k2",
                                  .read = ReadV3,
                                  .defaults = kDefaults,
                                  .keys = kV3Keys,
                                  .silent = kSilent,
                                  .parts = "as DeepSeek V3"};

}  // namespace culet
