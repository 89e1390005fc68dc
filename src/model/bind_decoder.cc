// The weights of a decoder under the names of Hugging Face checkpoints.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/decoder_architecture.h"
#include "model/weight_source.h"

namespace culet {
namespace {

class Binder {
 public:
  Binder(const DecoderConfig& config, WeightSource& source)
      : config_(config),
        names_(DecoderArchitectureOf(config.architecture).names),
        source_(source) {}

  Result<DecoderWeights> Bind() {
    DecoderWeights weights;
    weights.embedding = Words("model.embed_tokens.weight", WeightRole::kPlain);
    for (int layer = 0; layer < config_.layers && source_.status().ok(); ++layer) {
      weights.layers.push_back(Layer(layer));
    }
    weights.final_norm = Gamma("model.norm.weight", config_.hidden);
    weights.head =
        config_.tied_head ? weights.embedding : Words("lm_head.weight", WeightRole::kHead);
    CULET_RETURN_IF_ERROR(source_.status());
    CULET_RETURN_IF_ERROR(status_);
    return weights;
  }

 private:
  Weight Vector(const std::string& name, std::int64_t size, ShardRange range = {}) {
    return source_.GetPart({name, 1, size, WeightRole::kVector, range.first, range.of});
  }
  // The rank's rows of the vocabulary.
  Weight Words(const std::string& name, WeightRole role) {
    const RankParts& vocab = config_.shard.vocab;
    WeightRequest request{name, config_.vocab, config_.hidden, role};
    if (vocab.present()) {
      request.rows = vocab.size_of(vocab.rank);
      request.first = vocab.first();
      request.of = vocab.all();
    }
    return source_.GetPart(request);
  }
  Weight Gamma(const std::string& name, std::int64_t size) {
    const WeightRole role = names_.gamma_less_one ? WeightRole::kGammaLessOne : WeightRole::kVector;
    return source_.Get(name, 1, size, role);
  }
  // A norm of the layer, if it has one.
  Weight GammaIf(const std::string& prefix, const char* name) {
    return name != nullptr ? Gamma(prefix + name + ".weight", config_.hidden) : Weight{};
  }
  // Outputs of a product, as a rank has them.
  struct Rows {
    std::int64_t size = 0;
    ShardRange range = {};
    std::int64_t all() const { return range.of > 0 ? range.of : size; }
  };
  static ShardRange Times(ShardRange range, std::int64_t by) {
    return {range.first * by, range.of * by};
  }
  Rows HeadRows(std::int64_t size) const {
    return {config_.heads * size, Times(config_.shard.heads, size)};
  }
  Rows KvRows() const {
    const std::int64_t size = config_.head_dim;
    return {config_.kv_heads * size, Times(config_.shard.kv_heads, size)};
  }

  Weight Product(const std::string& name, Rows rows, std::int64_t k) {
    return source_.GetPart(
        {name + ".weight", rows.size, k, WeightRole::kProduct, rows.range.first, rows.range.of});
  }
  // Of the rank's columns: its values are summed up over all ranks.
  Weight Partial(const std::string& name, std::int64_t n, Rows cols) {
    return source_.GetPart({name + ".weight", n, cols.size, WeightRole::kProduct, 0, 0,
                            cols.range.first, cols.range.of});
  }
  Weight BiasIf(bool present, const std::string& name, std::int64_t n) {
    return present ? Vector(name + ".bias", n) : Weight{};
  }
  // The first rank adds what is added once.
  Weight BiasOfSum(bool present, const std::string& name, std::int64_t n) {
    if (present && config_.shard.rank > 0) source_.Leave(name + ".bias");
    return BiasIf(present && config_.shard.rank == 0, name, n);
  }

  // The same where the checkpoint has them one below the other in tensor `name`.
  void Parts(const std::string& name, const std::vector<Rows>& rows, std::int64_t cols, bool biases,
             const std::vector<Weight*>& weights, const std::vector<Weight*>& bias_weights) {
    std::vector<WeightRequest> requests, bias_requests;
    std::int64_t all = 0;
    for (const Rows& part : rows) {
      const std::int64_t first = all + part.range.first;
      requests.push_back({name + ".weight", part.size, cols, WeightRole::kProduct, first});
      bias_requests.push_back({name + ".bias", 1, part.size, WeightRole::kVector, first});
      all += part.all();
    }
    for (WeightRequest& request : requests) request.of = all;
    for (WeightRequest& request : bias_requests) request.of = all;
    Bind(requests, weights);
    if (biases) Bind(bias_requests, bias_weights);
  }

  void Bind(const std::vector<WeightRequest>& wanted, const std::vector<Weight*>& to) {
    std::vector<Weight> found = source_.GetJoined(wanted);
    for (std::size_t i = 0; i < found.size(); ++i) *to[i] = std::move(found[i]);
  }

  // Products of one input, and their biases, which one product may serve.
  void Joined(const std::vector<std::string>& names, const std::vector<Rows>& rows,
              std::int64_t cols, bool biases, const std::vector<Weight*>& weights,
              const std::vector<Weight*>& bias_weights) {
    std::vector<WeightRequest> requests, bias_requests;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& [size, range] = rows[i];
      requests.push_back(
          {names[i] + ".weight", size, cols, WeightRole::kProduct, range.first, range.of});
      bias_requests.push_back(
          {names[i] + ".bias", 1, size, WeightRole::kVector, range.first, range.of});
    }
    Bind(requests, weights);
    if (biases) Bind(bias_requests, bias_weights);
  }

  LayerWeights Layer(int number) {
    const std::string prefix = fmt::format("model.layers.{}.", number);
    const std::string attention = prefix + "self_attn.";
    LayerWeights layer;
    layer.attention_norm = GammaIf(prefix, names_.attention_norm);
    if (config_.linear_layers[static_cast<std::size_t>(number)]) {
      Linear(prefix + "linear_attn.", layer);
    } else if (config_.latent.present()) {
      Latent(attention, layer);
    } else {
      Attention(attention, layer);
    }
    layer.attention_post_norm = GammaIf(prefix, names_.attention_post_norm);
    layer.mlp_norm = GammaIf(prefix, names_.mlp_norm);
    layer.mlp_post_norm = GammaIf(prefix, names_.mlp_post_norm);
    if (config_.sparse[static_cast<std::size_t>(number)]) {
      Experts(prefix, layer);
    } else {
      DenseMlp(prefix + names_.dense + ".", layer);
    }
    return layer;
  }

  void Attention(const std::string& attention, LayerWeights& layer) {
    const std::int64_t hidden = config_.hidden;
    const Rows q_size = HeadRows(config_.head_dim), kv_size = KvRows();
    const Rows q_rows = HeadRows(config_.head_dim * (config_.attention_gate ? 2 : 1));
    const std::vector<Weight*> qkv{&layer.q, &layer.k, &layer.v};
    const std::vector<Weight*> qkv_bias{&layer.q_bias, &layer.k_bias, &layer.v_bias};
    if (names_.qkv != nullptr) {
      Parts(attention + names_.qkv, {q_rows, kv_size, kv_size}, hidden, config_.qkv_bias, qkv,
            qkv_bias);
    } else {
      Joined({attention + "q_proj", attention + "k_proj", attention + "v_proj"},
             {q_rows, kv_size, kv_size}, hidden, config_.qkv_bias, qkv, qkv_bias);
    }
    layer.o = Partial(attention + "o_proj", hidden, q_size);
    layer.o_bias = BiasOfSum(config_.o_bias, attention + "o_proj", hidden);
    if (config_.sinks) {
      layer.sinks = Vector(attention + "sinks", config_.heads, config_.shard.heads);
    }
    if (config_.qk_norm) {
      const bool whole = config_.qk_norm_whole;
      layer.q_norm = Gamma(attention + "q_norm.weight", whole ? q_size.size : config_.head_dim);
      layer.k_norm = Gamma(attention + "k_norm.weight", whole ? kv_size.size : config_.head_dim);
    }
    if (config_.qk_norm_turned) {
      if (!ones_.present()) {
        auto ones = source_.Ones(config_.head_dim);
        if (ones) ones_ = *std::move(ones);
        if (!ones && status_.ok()) status_ = ones.status();
      }
      layer.q_norm = layer.k_norm = ones_;
    }
    const ShardRange kv = config_.shard.kv_heads;
    layer.k_scale = source_.GetIfThere(attention + "k_scale", config_.kv_heads, kv);
    layer.v_scale = source_.GetIfThere(attention + "v_scale", config_.kv_heads, kv);
  }

  void Latent(const std::string& attention, LayerWeights& layer) {
    const LatentAttention& latent = config_.latent;
    LatentWeights& of = layer.latent;
    const std::int64_t hidden = config_.hidden, heads = config_.heads;
    const Rows q_size = HeadRows(latent.nope_dim + latent.rope_dim);
    const bool bias = config_.qkv_bias;
    // Their products read the same rows.
    const std::string kv_a = attention + "kv_a_proj_with_mqa";
    if (latent.q_rank > 0) {
      Joined({attention + "q_a_proj", kv_a}, {{latent.q_rank}, {config_.head_dim}}, hidden, bias,
             {&of.q_a, &of.kv_a}, {&of.q_a_bias, &of.kv_a_bias});
      of.q_a_norm = Gamma(attention + "q_a_layernorm.weight", latent.q_rank);
      layer.q = Product(attention + "q_b_proj", q_size, latent.q_rank);
    } else {
      Joined({attention + "q_proj", kv_a}, {q_size, {config_.head_dim}}, hidden, false,
             {&layer.q, &of.kv_a}, {});
      of.kv_a_bias = BiasIf(bias, kv_a, config_.head_dim);
    }
    of.kv_a_norm = Gamma(attention + "kv_a_layernorm.weight", latent.kv_rank);
    auto parts = source_.GetHeadParts(attention + "kv_b_proj.weight", heads, latent.nope_dim,
                                      latent.value_dim, latent.kv_rank, config_.shard.heads);
    of.keys = std::move(parts.first);
    of.values = std::move(parts.second);
    layer.o = Partial(attention + "o_proj", hidden, HeadRows(latent.value_dim));
    layer.o_bias = BiasOfSum(config_.o_bias, attention + "o_proj", hidden);
  }

  void Linear(const std::string& prefix, LayerWeights& layer) {
    const GatedDeltaParams& delta = config_.linear.delta;
    LinearWeights& of = layer.linear;
    const std::int64_t hidden = config_.hidden, heads = delta.value_heads;
    Joined({prefix + "in_proj_qkvz", prefix + "in_proj_ba"},
           {{delta.qkv_cols() + delta.out_cols()}, {2 * heads}}, hidden, false, {&of.in, &of.gates},
           {});
    of.conv = source_.Get(prefix + "conv1d.weight", delta.qkv_cols(), config_.linear.taps,
                          WeightRole::kTaps);
    of.decay = Vector(prefix + "A_log", heads);
    of.step = Vector(prefix + "dt_bias", heads);
    of.norm = Vector(prefix + "norm.weight", delta.value_dim);
    layer.o = Product(prefix + "out_proj", {hidden}, delta.out_cols());
  }

  void DenseMlp(const std::string& prefix, LayerWeights& layer) {
    const std::int64_t hidden = config_.hidden;
    const Rows width{config_.intermediate, config_.shard.intermediate};
    const std::vector<Weight*> both{&layer.gate, &layer.up};
    const std::vector<Weight*> biases{&layer.gate_bias, &layer.up_bias};
    if (names_.gate_up != nullptr) {
      Parts(prefix + names_.gate_up, {width, width}, hidden, config_.mlp_bias, both, biases);
    } else {
      Joined({prefix + "gate_proj", prefix + "up_proj"}, {width, width}, hidden, config_.mlp_bias,
             both, biases);
    }
    layer.down = Partial(prefix + "down_proj", hidden, width);
    layer.down_bias = BiasOfSum(config_.mlp_bias, prefix + "down_proj", hidden);
  }

  // All experts of a layer quantise their inputs alike, and read them as they are.
  void CheckExpert(const Weight& weight) {
    if (!status_.ok() || (weight.input_scale == 0 && weight.order_ptr == 0)) return;
    status_ =
        Status(StatusCode::kUnsupported,
               fmt::format("{} is an expert's weight {}; take a checkpoint without", weight.name,
                           weight.order_ptr != 0 ? "with a g_idx that is no plain order"
                                                 : "with an input_scale"));
  }

  void Experts(const std::string& layer_prefix, LayerWeights& layer) {
    const std::string prefix = layer_prefix + names_.sparse + ".";
    const std::int64_t hidden = config_.hidden;
    layer.router = source_.Get(prefix + names_.router + ".weight", config_.experts, hidden,
                               WeightRole::kPlain);
    if (config_.router_bias)
      layer.router_bias = Vector(prefix + names_.router + ".bias", config_.experts);
    if (config_.router_correction) {
      layer.router_correction = Vector(prefix + names_.correction, config_.experts);
    }
    if (config_.shared_intermediate > 0) SharedExpert(prefix, layer);
    if (names_.stacked != StackedExperts::kNone) {
      AllExperts(prefix + "experts.", layer);
    } else {
      SeparateExperts(prefix, layer);
    }
  }

  // The rank's own.
  int FirstExpert() const {
    const RankParts& parts = config_.shard.experts;
    return parts.present() ? static_cast<int>(parts.first()) : 0;
  }
  int EndExpert() const {
    const RankParts& parts = config_.shard.experts;
    return parts.present() ? FirstExpert() + static_cast<int>(parts.size_of(parts.rank))
                           : config_.experts;
  }

  void SeparateExperts(const std::string& prefix, LayerWeights& layer) {
    const std::int64_t hidden = config_.hidden, width = config_.moe_intermediate;
    const auto [first, of] = config_.shard.moe_intermediate;
    const WeightRole role = WeightRole::kProduct;
    // Of each expert gate and up, then of each down: where experts are joined, gate and up of one
    // lie side by side.
    std::vector<WeightRequest> in, out;
    for (int e = 0; e < config_.experts; ++e) {
      const std::string expert = fmt::format("{}experts.{}.", prefix, e);
      if (e < FirstExpert() || e >= EndExpert()) {
        source_.LeaveAll(expert);
        continue;
      }
      in.push_back({expert + names_.expert_gate + ".weight", width, hidden, role, first, of});
      in.push_back({expert + names_.expert_up + ".weight", width, hidden, role, first, of});
      out.push_back(
          {expert + names_.expert_down + ".weight", hidden, width, role, 0, 0, first, of});
    }
    auto gate = std::make_shared<ExpertWeights>(), up = std::make_shared<ExpertWeights>();
    for (Weight& weight : BoundExperts(in)) {
      auto& weights = gate->weights.size() > up->weights.size() ? up->weights : gate->weights;
      weights.push_back(std::move(weight));
    }
    layer.expert_gate = std::move(gate);
    layer.expert_up = std::move(up);
    layer.expert_down = std::make_shared<ExpertWeights>(ExpertWeights{BoundExperts(out), {}});
  }

  // Of one tensor for all of them.
  void AllExperts(const std::string& prefix, LayerWeights& layer) {
    const std::int64_t hidden = config_.hidden, width = config_.moe_intermediate;
    const ShardRange range = config_.shard.moe_intermediate;
    const std::int64_t whole = range.of > 0 ? range.of : width;
    const bool halves = names_.stacked == StackedExperts::kHalves;
    const StackedRequest gate{.name = prefix + "gate_up_proj",
                              .count = config_.experts,
                              .rows = width,
                              .cols = hidden,
                              .first = range.first * (halves ? 1 : 2),
                              .step = halves ? 1 : 2,
                              .of = 2 * whole};
    StackedRequest up = gate;
    up.first += halves ? whole : 1;
    const StackedRequest down{.name = prefix + "down_proj",
                              .count = config_.experts,
                              .rows = hidden,
                              .cols = width,
                              .of = hidden,
                              .first_col = range.first,
                              .of_cols = range.of};
    std::vector<std::vector<Weight>> in = source_.GetJoined({gate, up}, FirstExpert(), EndExpert());
    layer.expert_gate = Experts(std::move(in[0]), gate, false);
    layer.expert_up = Experts(std::move(in[1]), up, false);
    layer.expert_down =
        Experts(std::move(source_.GetJoined({down}, FirstExpert(), EndExpert())[0]), down, true);
  }

  // With their biases, of which one rank adds those of what all ranks sum.
  std::shared_ptr<ExpertWeights> Experts(std::vector<Weight> weights, StackedRequest bias,
                                         bool summed) {
    auto made = std::make_shared<ExpertWeights>();
    made->weights = std::move(weights);
    if (!config_.expert_bias) return made;
    bias.name += "_bias";
    bias.cols = 0;
    const bool by_width = !config_.shard.experts.present();
    for (bias.number = FirstExpert(); bias.number < EndExpert(); ++bias.number) {
      if (!summed || !by_width || config_.shard.rank == 0) {
        made->biases.push_back(source_.GetStacked(bias));
      } else {
        source_.Leave(bias.name);
      }
    }
    return made;
  }

  void SharedExpert(const std::string& prefix, LayerWeights& layer) {
    const std::string shared = prefix + names_.shared + ".";
    const std::int64_t hidden = config_.hidden;
    const Rows width{config_.shared_intermediate, config_.shard.shared_intermediate};
    Joined({shared + names_.expert_gate, shared + names_.expert_up}, {width, width}, hidden, false,
           {&layer.shared_gate, &layer.shared_up}, {});
    layer.shared_down = Partial(shared + names_.expert_down, hidden, width);
    if (!config_.shared_gate) return;
    layer.shared_router =
        source_.Get(prefix + names_.shared_router + ".weight", 1, hidden, WeightRole::kPlain);
  }

  std::vector<Weight> BoundExperts(const std::vector<WeightRequest>& requests) {
    std::vector<Weight> weights = source_.GetJoined(requests);
    for (const Weight& weight : weights) CheckExpert(weight);
    return weights;
  }

  const DecoderConfig& config_;
  const DecoderNames& names_;
  WeightSource& source_;
  Weight ones_;  // gammas of heads that have none
  Status status_;
};

}  // namespace

Result<DecoderWeights> BindDecoder(const DecoderConfig& config, WeightSource& source) {
  return Binder(config, source).Bind();
}

}  // namespace culet
