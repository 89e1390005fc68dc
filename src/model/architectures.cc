#include "model/architectures.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>

namespace culet {
namespace {

// Bounds the loops over layers; the deepest public decoders have fewer than 200.
constexpr int kMostLayers = 10000;

int Layers(ConfigReader& config) {
  const int layers = config.Int({"num_hidden_layers"});
  const bool possible =
      config.Require(layers <= kMostLayers,
                     fmt::format("num_hidden_layers is {}, more than {}", layers, kMostLayers));
  return possible ? layers : 1;
}

// Collects the products of one model.
class Builder {
 public:
  explicit Builder(ConfigReader& config)
      : config_(config),
        hidden_(config.Int({"hidden_size"})),
        layers_(Layers(config)),
        heads_(config.Int({"num_attention_heads"})) {}

  int layers() const { return layers_; }

  // A weight of std::int64_t rows, because heads times head size may overflow.
  void Add(const char* name, std::int64_t n, std::int64_t k, int layers, int experts = 0,
           int active = 0) {
    if (layers == 0) return;
    products_.push_back(
        {name, config_.Fit(n, name), config_.Fit(k, name), layers, experts, active});
  }

  // Multi-head latent attention: q and kv are projected down together, then up on their own.
  void AddLatentAttention() {
    const std::int64_t nope = config_.Int({"qk_nope_head_dim"});
    const std::int64_t rope = config_.Int({"qk_rope_head_dim"});
    const std::int64_t value = config_.Int({"v_head_dim"});
    const int kv_rank = config_.Int({"kv_lora_rank"});
    const std::int64_t q_size = heads_ * (nope + rope);
    if (config_.Has({"q_lora_rank"})) {
      const int q_rank = config_.Int({"q_lora_rank"});
      Add("qkv_a", std::int64_t{q_rank} + kv_rank + rope, hidden_, layers_);
      Add("q_b", q_size, q_rank, layers_);
    } else {
      Add("qkv_a", q_size + kv_rank + rope, hidden_, layers_);
    }
    Add("kv_b", heads_ * (nope + value), kv_rank, layers_);
    Add("o", hidden_, heads_ * value, layers_);
  }

  // A gated MLP in `layers` layers; `prefix` is "" or ends in a dot.
  void AddMlp(const std::string& prefix, std::int64_t intermediate, int layers, int experts = 0,
              int active = 0) {
    Add((prefix + "gate_up").c_str(), 2 * intermediate, hidden_, layers, experts, active);
    Add((prefix + "down").c_str(), hidden_, intermediate, layers, experts, active);
  }

  // Router and routed experts in `layers` layers.
  void AddExperts(int intermediate, int layers) {
    const int experts = config_.Int({"num_local_experts", "num_experts", "n_routed_experts"});
    const int active = config_.Int({"num_experts_per_tok"});
    config_.Require(
        active <= experts,
        fmt::format("num_experts_per_tok is {}, more than the {} experts", active, experts));
    if (layers == 0) return;
    Add("router", experts, hidden_, layers);
    AddMlp("experts.", intermediate, layers, experts, active);
  }

  // Tied or not, the product is the same.
  std::vector<ModelProduct> Finish() {
    Add("lm_head", config_.Int({"vocab_size"}), hidden_, 1);
    return std::move(products_);
  }

 private:
  ConfigReader& config_;
  int hidden_, layers_, heads_;
  std::vector<ModelProduct> products_;
};

// The first layers are dense; of the others every moe_layer_freq-th has shared and routed experts.
std::vector<ModelProduct> DeepseekV3(ConfigReader& config) {
  Builder builder(config);
  builder.AddLatentAttention();
  const int first = config.IntOr({"first_k_dense_replace"}, 0, 0);
  const int frequency = config.IntOr({"moe_layer_freq"}, 1);
  int sparse = 0;
  for (int layer = first; layer < builder.layers(); ++layer) sparse += layer % frequency == 0;
  const int dense = builder.layers() - sparse;
  if (dense > 0) builder.AddMlp("", config.Int({"intermediate_size"}), dense);
  const int intermediate = config.Int({"moe_intermediate_size"});
  const int shared = config.IntOr({"n_shared_experts"}, 0, 0);
  if (shared > 0) builder.AddMlp("shared.", std::int64_t{shared} * intermediate, sparse);
  builder.AddExperts(intermediate, sparse);
  return builder.Finish();
}

constexpr Architecture kArchitectures[] = {
    {"DeepseekV3ForCausalLM", "deepseek_v3", DeepseekV3},
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

}  // namespace culet
