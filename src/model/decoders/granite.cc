// Granite 3: Llama with multipliers.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"attention_bias",       "attention_multiplier", "logits_scaling",
                                 "embedding_multiplier", "residual_multiplier",  "mlp_bias"};

void Read(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  reader.AttentionBias(false, true);
  reader.MlpBias();
  config.attention_scale = reader.Positive("attention_multiplier", 1);
  config.embedding_scale = reader.Positive("embedding_multiplier", 1);
  config.residual_scale = reader.Positive("residual_multiplier", 1);
  config.logit_scale = 1 / reader.Positive("logits_scaling", 1);
}

}  // namespace

const DecoderArchitecture kGranite{.name = "GraniteForCausalLM",
                                   .model_type = "granite",
                                   .read = Read,
                                   .keys = kKeys,
                                   .parts = "multipliers of embedding, attention, sums and logits"};

}  // namespace culet
