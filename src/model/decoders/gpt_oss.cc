// gpt-oss: sinks, windows in every other layer, biases everywhere, experts of a clamped gate.
#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"attention_bias",    "layer_types",    "num_experts_per_tok",
                                 "num_local_experts", "sliding_window", "swiglu_alpha",
                                 "swiglu_limit"};
// Older spellings that its files have beside the ones that count.
constexpr const char* kSilent[] = {"experts_per_token", "initial_context_length"};

constexpr int kWindow = 128;
constexpr double kLimit = 7, kSlope = 1.702;

void Read(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  // Its class has a YaRN of its own where both are missing.
  keys.Require(keys.Has({"rope_parameters"}) || keys.Has({"rope_scaling"}),
               "rope_parameters is missing");
  reader.AttentionBias(true, true);
  config.sinks = true;
  const int window = reader.WindowOfSome(kWindow);
  if (!reader.LayerTypes(window)) reader.WindowsBut(2, window);
  config.sparse.assign(config.sparse.size(), true);
  reader.Experts({.width = "intermediate_size", .experts = "num_local_experts"}, false);
  config.routing.scoring = RouterScoring::kSoftmaxOfChosen;
  config.router_bias = config.expert_bias = true;
  reader.ClampedGate(kLimit, kSlope);
}

}  // namespace

const DecoderArchitecture kGptOss{
    .name = "GptOssForCausalLM",
    .model_type = "gpt_oss",
    .read = Read,
    .defaults = {.heads = {.kv_heads = 8, .head_dim = 64}, .epsilon = 1e-5, .theta = 150000},
    .names = {.stacked = StackedExperts::kInterleaved, .router = "router"},
    .keys = kKeys,
    .silent = kSilent,
    .parts = "attention sinks, windows, YaRN, routed experts with biases and a clamped gate"};

}  // namespace culet
