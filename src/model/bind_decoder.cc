// The weights of a decoder under the names of Hugging Face checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/weight_source.h"

namespace culet {
namespace {

// The names of a sparse layer's parts.
struct ExpertNames {
  const char* block;
  const char* gate;
  const char* up;
  const char* down;
};
constexpr ExpertNames kMixtralNames{"block_sparse_moe", "w1", "w3", "w2"};
constexpr ExpertNames kUsualNames{"mlp", "gate_proj", "up_proj", "down_proj"};

class Binder {
 public:
  Binder(const DecoderConfig& config, WeightSource& source) : config_(config), source_(source) {}

  Result<DecoderWeights> Bind() {
    DecoderWeights weights;
    weights.embedding =
        source_.Get("model.embed_tokens.weight", config_.vocab, config_.hidden, WeightRole::kPlain);
    for (int layer = 0; layer < config_.layers && source_.status().ok(); ++layer) {
      weights.layers.push_back(Layer(layer));
    }
    weights.final_norm = Vector("model.norm.weight", config_.hidden);
    weights.head = config_.tied_head ? weights.embedding
                                     : source_.Get("lm_head.weight", config_.vocab, config_.hidden,
                                                   WeightRole::kHead);
    CULET_RETURN_IF_ERROR(source_.status());
    return weights;
  }

 private:
  Weight Vector(const std::string& name, std::int64_t size) {
    return source_.Get(name, 1, size, WeightRole::kVector);
  }
  Weight Product(const std::string& name, std::int64_t n, std::int64_t k) {
    return source_.Get(name + ".weight", n, k, WeightRole::kProduct);
  }
  Weight BiasIf(bool present, const std::string& name, std::int64_t n) {
    return present ? Vector(name + ".bias", n) : Weight{};
  }

  // Products of one input, and their biases, which one product may serve.
  void Joined(const std::vector<std::string>& names, const std::vector<std::int64_t>& rows,
              std::int64_t cols, bool biases, const std::vector<Weight*>& weights,
              const std::vector<Weight*>& bias_weights) {
    std::vector<WeightRequest> requests, bias_requests;
    for (std::size_t i = 0; i < names.size(); ++i) {
      requests.push_back({names[i] + ".weight", rows[i], cols, WeightRole::kProduct});
      bias_requests.push_back({names[i] + ".bias", 1, rows[i], WeightRole::kVector});
    }
    const auto bind = [&](const std::vector<WeightRequest>& wanted,
                          const std::vector<Weight*>& to) {
      std::vector<Weight> found = source_.GetJoined(wanted);
      for (std::size_t i = 0; i < found.size(); ++i) *to[i] = std::move(found[i]);
    };
    bind(requests, weights);
    if (biases) bind(bias_requests, bias_weights);
  }

  LayerWeights Layer(int number) {
    const std::string prefix = fmt::format("model.layers.{}.", number);
    const std::string attention = prefix + "self_attn.";
    const std::int64_t hidden = config_.hidden;
    const std::int64_t q_size = std::int64_t{config_.heads} * config_.head_dim;
    const std::int64_t kv_size = std::int64_t{config_.kv_heads} * config_.head_dim;
    LayerWeights layer;
    layer.attention_norm = Vector(prefix + "input_layernorm.weight", hidden);
    Joined({attention + "q_proj", attention + "k_proj", attention + "v_proj"},
           {q_size, kv_size, kv_size}, hidden, config_.qkv_bias, {&layer.q, &layer.k, &layer.v},
           {&layer.q_bias, &layer.k_bias, &layer.v_bias});
    layer.o = Product(attention + "o_proj", hidden, q_size);
    layer.o_bias = BiasIf(config_.o_bias, attention + "o_proj", hidden);
    if (config_.qk_norm) {
      layer.q_norm = Vector(attention + "q_norm.weight", config_.head_dim);
      layer.k_norm = Vector(attention + "k_norm.weight", config_.head_dim);
    }
    layer.k_scale = source_.GetIfThere(attention + "k_scale", config_.kv_heads);
    layer.v_scale = source_.GetIfThere(attention + "v_scale", config_.kv_heads);
    layer.mlp_norm = Vector(prefix + "post_attention_layernorm.weight", hidden);
    if (config_.sparse[static_cast<std::size_t>(number)]) {
      Experts(prefix, layer);
    } else {
      DenseMlp(prefix + "mlp.", layer);
    }
    return layer;
  }

  void DenseMlp(const std::string& prefix, LayerWeights& layer) {
    const std::int64_t hidden = config_.hidden, width = config_.intermediate;
    Joined({prefix + "gate_proj", prefix + "up_proj"}, {width, width}, hidden, config_.mlp_bias,
           {&layer.gate, &layer.up}, {&layer.gate_bias, &layer.up_bias});
    layer.down = Product(prefix + "down_proj", hidden, width);
    layer.down_bias = BiasIf(config_.mlp_bias, prefix + "down_proj", hidden);
  }

  void Experts(const std::string& layer_prefix, LayerWeights& layer) {
    const ExpertNames& names = config_.model_type == "mixtral" ? kMixtralNames : kUsualNames;
    const std::string prefix = layer_prefix + names.block + ".";
    const std::int64_t hidden = config_.hidden, width = config_.moe_intermediate;
    layer.router = source_.Get(prefix + "gate.weight", config_.experts, hidden, WeightRole::kPlain);
    auto experts = std::make_shared<ExpertParams>();
    experts->active = config_.active_experts;
    experts->renormalize = config_.renormalize_experts;
    for (int e = 0; e < config_.experts && source_.status().ok(); ++e) {
      const std::string expert = fmt::format("{}experts.{}.", prefix, e);
      experts->experts.push_back({Product(expert + names.gate, width, hidden),
                                  Product(expert + names.up, width, hidden),
                                  Product(expert + names.down, hidden, width)});
    }
    layer.experts = std::move(experts);
  }

  const DecoderConfig& config_;
  WeightSource& source_;
};

}  // namespace

Result<DecoderWeights> BindDecoder(const DecoderConfig& config, WeightSource& source) {
  return Binder(config, source).Bind();
}

}  // namespace culet
