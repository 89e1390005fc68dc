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
                                                   WeightRole::kPlain);
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

  LayerWeights Layer(int number) {
    const std::string prefix = fmt::format("model.layers.{}.", number);
    const std::string attention = prefix + "self_attn.";
    const std::int64_t hidden = config_.hidden;
    const std::int64_t q_size = std::int64_t{config_.heads} * config_.head_dim;
    const std::int64_t kv_size = std::int64_t{config_.kv_heads} * config_.head_dim;
    LayerWeights layer;
    layer.attention_norm = Vector(prefix + "input_layernorm.weight", hidden);
    layer.q = Product(attention + "q_proj", q_size, hidden);
    layer.k = Product(attention + "k_proj", kv_size, hidden);
    layer.v = Product(attention + "v_proj", kv_size, hidden);
    layer.o = Product(attention + "o_proj", hidden, q_size);
    layer.q_bias = BiasIf(config_.qkv_bias, attention + "q_proj", q_size);
    layer.k_bias = BiasIf(config_.qkv_bias, attention + "k_proj", kv_size);
    layer.v_bias = BiasIf(config_.qkv_bias, attention + "v_proj", kv_size);
    layer.o_bias = BiasIf(config_.o_bias, attention + "o_proj", hidden);
    if (config_.qk_norm) {
      layer.q_norm = Vector(attention + "q_norm.weight", config_.head_dim);
      layer.k_norm = Vector(attention + "k_norm.weight", config_.head_dim);
    }
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
    layer.gate = Product(prefix + "gate_proj", width, hidden);
    layer.up = Product(prefix + "up_proj", width, hidden);
    layer.down = Product(prefix + "down_proj", hidden, width);
    layer.gate_bias = BiasIf(config_.mlp_bias, prefix + "gate_proj", width);
    layer.up_bias = BiasIf(config_.mlp_bias, prefix + "up_proj", width);
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

Result<DevicePtr> WeightMemory::Copy(const void* data, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{64} << 20, kAlignment = 256;
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (padded > left_) {
    auto buffer = DeviceBuffer::Create(memory_, std::max(padded, kPiece));
    if (!buffer) return buffer.status();
    next_ = buffer->get();
    left_ = buffer->bytes();
    buffers_.push_back(*std::move(buffer));
  }
  CULET_RETURN_IF_ERROR(memory_.Upload(next_, data, bytes, nullptr));
  left_ -= padded;
  return std::exchange(next_, next_ + padded);
}

}  // namespace culet
