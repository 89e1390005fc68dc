// Llama and what differs from it by a few biases.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kLlamaKeys[] = {"attention_bias", "mlp_bias"};
constexpr const char* kSeedOssKeys[] = {"attention_bias", "attention_out_bias", "mlp_bias"};
constexpr const char* kErnieKeys[] = {"use_bias"};

void ReadLlama(DecoderReader& reader) {
  reader.AttentionBias(false, true);
  reader.MlpBias();
}

void ReadSeedOss(DecoderReader& reader) {
  reader.AttentionBias(true, false);
  reader.config().o_bias = reader.keys().FlagOr({"attention_out_bias"}, false);
  reader.MlpBias();
}

void ReadErnie(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  config.qkv_bias = config.o_bias = config.mlp_bias = reader.keys().FlagOr({"use_bias"}, false);
}

}  // namespace

const DecoderArchitecture kLlama{.name = "LlamaForCausalLM",
                                 .model_type = "llama",
                                 .read = ReadLlama,
                                 .keys = kLlamaKeys,
                                 .parts = "biases"};

const DecoderArchitecture kSeedOss{.name = "SeedOssForCausalLM",
                                   .model_type = "seed_oss",
                                   .read = ReadSeedOss,
                                   .defaults = {.heads = {.kv_heads = 8, .head_dim = 128}},
                                   .keys = kSeedOssKeys,
                                   .parts = "biases of q, k and v without one of o"};

const DecoderArchitecture kErnie45{.name = "Ernie4_5ForCausalLM",
                                   .model_type = "ernie4_5",
                                   .read = ReadErnie,
                                   .defaults = {.heads = {.kv_heads = 2, .head_dim = 128},
                                                .epsilon = 1e-5,
                                                .theta = 5e5,
                                                .rope_layout = RopeLayout::kNorm,
                                                .tied_head = true},
                                   .keys = kErnieKeys,
                                   .parts = "interleaved rope"};

}  // namespace culet
