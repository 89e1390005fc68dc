// ERNIE 4.5 with experts: a bias of their scores, shared ones.
#include <fmt/format.h>

#include "model/decoder_reader.h"
#include "model/decoders/all.h"

namespace culet {
namespace {

constexpr const char* kKeys[] = {"moe_intermediate_size",
                                 "moe_k",
                                 "moe_layer_end_index",
                                 "moe_layer_interval",
                                 "moe_layer_start_index",
                                 "moe_norm_min",
                                 "moe_num_experts",
                                 "moe_num_shared_experts",
                                 "use_bias"};
constexpr const char* kSilent[] = {"num_nextn_predict_layers"};

void Read(DecoderReader& reader) {
  DecoderConfig& config = reader.config();
  ConfigReader& keys = reader.keys();
  reader.RefuseTrue("use_bias", "known is false: linear layers without biases");
  const int interval = keys.IntOr({"moe_layer_interval"}, 1);
  const int first = keys.IntOr({"moe_layer_start_index"}, 1, 0);
  const int last = keys.IntOr({"moe_layer_end_index"}, -1, -1);
  for (int layer = first; layer < config.layers && (last < 0 || layer <= last); ++layer) {
    config.sparse[static_cast<std::size_t>(layer)] = (layer + 1) % interval == 0;
  }
  reader.Experts(
      {.width = "moe_intermediate_size", .experts = "moe_num_experts", .active = "moe_k"}, true);
  reader.SharedExperts("moe_num_shared_experts", 2);
  config.router_correction = true;
  config.routing.least_sum = reader.Positive("moe_norm_min", 1e-12);
}

}  // namespace

const DecoderArchitecture kErnie45Moe{.name = "Ernie4_5_MoeForCausalLM",
                                      .model_type = "ernie4_5_moe",
                                      .read = Read,
                                      .defaults = {.heads = {.kv_heads = 4},
                                                   .epsilon = 1e-5,
                                                   .theta = 5e5,
                                                   .rope_layout = RopeLayout::kNorm,
                                                   .tied_head = true},
                                      .names = {.correction = "moe_statics.e_score_correction_bias",
                                                .shared = "shared_experts",
                                                .ahead = "mtp"},
                                      .keys = kKeys,
                                      .silent = kSilent,
                                      .parts = "interleaved rope, routed and shared experts"};

}  // namespace culet
