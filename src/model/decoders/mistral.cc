// Mistral, Mixtral and Ministral 3.
#include <fmt/format.h>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr int kDefaultWindow = 4096;  // where the key is missing; null means none
constexpr const char* kMistralKeys[] = {"sliding_window"};
constexpr const char* kMixtralKeys[] = {"sliding_window", "num_experts", "num_local_experts",
                                        "num_experts_per_tok"};

void ReadMistral(DecoderReader& reader) { reader.WindowsFrom(0, reader.Window(kDefaultWindow)); }

void ReadMixtral(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  config.sparse.assign(config.sparse.size(), true);
  reader.Experts({.width = "intermediate_size", .other_experts = "num_local_experts"}, true);
  reader.WindowsFrom(0, reader.Window(0));
}

// Queries grow by the logarithm of how often they are beyond the original context.
void ReadMinistral3(DecoderReader& reader) {
  reader.WindowsFrom(0, reader.Window(0));
  ConfigReader& keys = reader.keys();
  // Its class has YaRN of its own where both are missing.
  const bool given = keys.Has({"rope_parameters"}) || keys.Has({"rope_scaling"});
  if (!keys.Require(given, "rope_parameters is missing")) return;
  const auto& rope =
      reader.root().at(keys.Has({"rope_scaling"}) ? "rope_scaling" : "rope_parameters");
  if (!rope.is_object()) return;  // reading it said so
  ConfigReader part(rope, "rope_parameters");
  DecoderConfig& config = reader.config();
  config.query_growth = static_cast<float>(part.NumberOr({"llama_4_scaling_beta"}, 0));
  config.query_period = config.rope.original_context;
  keys.Adopt(part.status());
  keys.Require(
      config.query_growth >= 0,
      fmt::format("llama_4_scaling_beta is {}; it must be 0 or more", config.query_growth));
  keys.Require(config.query_growth == 0 || config.query_period > 0,
               "llama_4_scaling_beta goes with rope type yarn, whose original context it counts");
}

}  // namespace

const DecoderArchitecture kMistral{.name = "MistralForCausalLM",
                                   .model_type = "mistral",
                                   .read = ReadMistral,
                                   .defaults = {.heads = kMistralHeads},
                                   .keys = kMistralKeys,
                                   .parts = "windows"};

const DecoderArchitecture kMixtral{
    .name = "MixtralForCausalLM",
    .model_type = "mixtral",
    .read = ReadMixtral,
    .defaults = {.heads = kMistralHeads, .epsilon = 1e-5, .theta = 1e6},
    .names = {.sparse = "block_sparse_moe",
              .expert_gate = "w1",
              .expert_up = "w3",
              .expert_down = "w2"},
    .keys = kMixtralKeys,
    .parts = "routed experts, windows"};

const DecoderArchitecture kMinistral3{
    .name = "Ministral3ForCausalLM",
    .model_type = "ministral3",
    .read = ReadMinistral3,
    .defaults = {.heads = {.kv_heads = 8, .head_dim = 128}, .epsilon = 1e-5, .theta = 1e6},
    .keys = kMistralKeys,
    .parts = "YaRN, queries that grow with their position"};

}  // namespace culet
