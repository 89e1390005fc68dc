// A decoder's step as a compute graph.
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "culet/decoder.h"

namespace culet {
namespace {

constexpr float kDeltaEpsilon = 1e-6f;  // of the norms of queries and keys

class Builder {
 public:
  Builder(const DecoderConfig& config, const DecoderWeights& weights, const DecoderInputs& inputs,
          const CacheLayout& cache, const DecoderBatch& batch)
      : config_(config), weights_(weights), cache_(cache), batch_(batch) {
    const auto index = [&](DevicePtr data, std::int64_t rows, std::int64_t cols, const char* name) {
      return graph_.add_leaf(data, {rows, cols}, DataType::kInt32, name);
    };
    ids_ = index(inputs.ids, batch.tokens, 1, "ids");
    positions_ = index(inputs.positions, batch.tokens, 1, "positions");
    slots_ = index(inputs.slots, batch.tokens, 1, "slots");
    q_starts_ = index(inputs.q_starts, batch.sequences + 1, 1, "q_starts");
    lengths_ = index(inputs.lengths, batch.sequences, 1, "lengths");
    table_ = index(inputs.block_table, batch.sequences, batch.table_blocks, "block_table");
    if (cache.ring_blocks > 0) {
      ring_slots_ = index(inputs.ring_slots, batch.tokens, 1, "ring_slots");
      ring_table_ = index(inputs.ring_table, batch.sequences, batch.table_blocks, "ring_table");
    }
    if (config.linear.present()) {
      state_rows_ = index(inputs.state_rows, batch.sequences, 1, "state_rows");
    }
    if (batch.log_rows > 0) log_ = index(inputs.log, batch.log_rows, batch.sequences, "log");
    if (batch.logit_rows > 0 && batch.log_rows == 0)
      rows_ = index(inputs.rows, batch.logit_rows, 1, "rows");
    if (batch.sample) {
      constexpr std::int64_t kWords = std::tuple_size_v<SamplingRow>;
      sampling_ = index(inputs.sampling, batch.sequences, kWords, "sampling");
    }
  }

  DecoderGraph Build() {
    OpParams params;
    params.weight = weights_.embedding;
    params.parts = config_.shard.vocab;
    int x = graph_.add_op(TensorOp::kEmbedding, 0, {batch_.tokens, config_.hidden}, {ids_},
                          std::move(params), "embedding");
    x = Scaled(Summed(x, "embedding"), config_.embedding_scale, "embedding_scale");
    for (int layer = 0; layer < config_.layers; ++layer) {
      Keep(x);
      x = Layer(layer, x);
    }
    return Head(x);
  }

 private:
  void Keep(int id) {
    if (!batch_.keep_hidden) return;
    graph_.mark_output(id);
    built_.hidden.push_back(id);
  }

  // The value itself where the layer has no such norm.
  int Norm(int x, const Weight& gamma, std::string name, DataType type,
           NormKind kind = NormKind::kRms) {
    if (!gamma.present()) return x;
    OpParams params;
    params.gamma = gamma;
    params.scalar = config_.rms_norm_eps;
    return Normed(x, std::move(params), std::move(name), type, kind);
  }

  // Of a latent, and what lies behind it in its row.
  int LatentNorm(int x, const Weight& gamma, std::string name) {
    OpParams params;
    params.gamma = gamma;
    params.scalar = config_.latent.norm_eps;
    params.head_dim = static_cast<int>(graph_.node(x).shape.cols);
    return Normed(x, std::move(params), std::move(name), values_, NormKind::kRms);
  }

  int Normed(int x, OpParams params, std::string name, DataType type, NormKind kind) {
    const TensorOp op = kind == NormKind::kLayer ? TensorOp::kLayerNorm : TensorOp::kRmsNorm;
    return graph_.add_op(op, 0, graph_.node(x).shape, {x}, std::move(params), std::move(name),
                         type);
  }

  // A norm of the residual sum, or of what is added to it.
  int LayerNorm(int x, const Weight& gamma, std::string name, DataType type) {
    return Norm(x, gamma, std::move(name), type, config_.norm);
  }

  int Scaled(int x, float by, std::string name) {
    if (by == 1) return x;
    OpParams params;
    params.scalar = by;
    return graph_.add_op(TensorOp::kScale, 0, graph_.node(x).shape, {x}, std::move(params),
                         std::move(name), graph_.node(x).type);
  }

  int SoftCapped(int x, float cap, std::string name) {
    if (cap == 0) return x;
    OpParams params;
    params.scalar = cap;
    return graph_.add_op(TensorOp::kSoftCap, 0, graph_.node(x).shape, {x}, std::move(params),
                         std::move(name), graph_.node(x).type);
  }

  int Product(int x, const Weight& weight, const Weight& bias, std::string name,
              DataType type = DataType::kFloat32) {
    OpParams params;
    params.weight = weight;
    params.bias = bias;
    std::vector<int> inputs{x};
    if (weight.type == DataType::kFloat8_e4m3 && weight.input_quant != QuantDesc{}) {
      params.quant_a = weight.input_quant;
      params.scalar = weight.input_scale;
      const QuantizedNodes quantised = Quantized(x, weight);
      inputs = {quantised.codes, quantised.scales};
    }
    return graph_.add_op(TensorOp::kMulMat, 0, {graph_.node(x).shape.rows, weight.rows},
                         std::move(inputs), std::move(params), std::move(name), type);
  }

  // One for all products of a value that quantise it alike.
  QuantizedNodes Quantized(int x, const Weight& weight) {
    const std::tuple how{x, weight.input_quant, weight.input_scale};
    if (how != quantised_from_) {
      quantised_from_ = how;
      quantised_ = graph_.add_quantize(x, weight.input_quant, graph_.node(x).name + "_e4m3",
                                       weight.input_scale);
    }
    return quantised_;
  }

  // What each rank makes a summand of.
  int Summed(int x, const std::string& name) {
    if (!config_.shard.is_part()) return x;
    OpParams params;
    params.int_param = static_cast<std::uint32_t>(config_.shard.ranks);
    return graph_.add_op(TensorOp::kAllReduce, 0, graph_.node(x).shape, {x}, std::move(params),
                         name + "_sum");
  }

  // Whether there are logits of a part of the vocabulary alone.
  bool OwnLogits() const { return config_.shard.is_part() && !batch_.whole_logits; }

  // The next tokens of rows with such logits.
  int TokenOfAll(int x, int local) {
    if (!OwnLogits()) return local;
    OpParams params;
    params.parts = config_.shard.vocab;
    return graph_.add_op(TensorOp::kAllArgMax, 0, graph_.node(local).shape, {x, local},
                         std::move(params), "all_argmax", DataType::kInt32);
  }

  // The logits of the whole vocabulary, where they are wanted.
  int Gathered(int x, std::string name) {
    if (!config_.shard.is_part() || OwnLogits()) return x;
    OpParams params;
    params.parts = config_.shard.vocab;
    const Shape shape{graph_.node(x).shape.rows, config_.vocab};
    return graph_.add_op(TensorOp::kAllGather, 0, shape, {x}, std::move(params), std::move(name));
  }

  int Add(int x, int y, std::string name) {
    return graph_.add_op(TensorOp::kAdd, 0, graph_.node(x).shape, {x, y}, {}, std::move(name));
  }

  // Heads of `size` elements, of which those from `first` on turn.
  int Rope(int x, int layer, std::string name, int size, int first = 0) {
    const LayerRope kind = config_.ropes[static_cast<std::size_t>(layer)];
    if (kind == LayerRope::kNone) return x;
    OpParams params;
    params.rope = kind == LayerRope::kLocal ? config_.local_rope : config_.rope;
    params.rope.is_long = batch_.long_rope;
    params.rope.first = first;
    params.head_dim = size;
    return graph_.add_op(TensorOp::kRope, 0, graph_.node(x).shape, {x, positions_},
                         std::move(params), std::move(name), graph_.node(x).type);
  }

  // Queries that grow with their position.
  int Grown(int q, int layer, std::string name) {
    if (config_.query_growth == 0) return q;
    const bool turned = config_.ropes[static_cast<std::size_t>(layer)] != LayerRope::kNone;
    if (config_.query_growth_unturned && turned) return q;
    OpParams params;
    params.scalar = config_.query_growth;
    params.int_param = static_cast<std::uint32_t>(config_.query_ahead);
    params.rope.original_context = config_.query_period;
    return graph_.add_op(TensorOp::kPositionScale, 0, graph_.node(q).shape, {q, positions_},
                         std::move(params), std::move(name), graph_.node(q).type);
  }

  // The scales of one of the layer's caches; -1: it has none.
  int Scales(const std::vector<DevicePtr>& scales, std::size_t layer, std::string name) {
    if (cache_.type != DataType::kFloat8_e4m3) return -1;
    return graph_.add_leaf(scales[layer], {1, config_.kv_heads}, DataType::kFloat32,
                           std::move(name));
  }

  bool HasRing(int layer) const {
    const auto number = static_cast<std::size_t>(layer);
    return ring_table_ >= 0 && (config_.windows[number] > 0 || config_.chunks[number] > 0);
  }
  int TableOf(int layer) const { return HasRing(layer) ? ring_table_ : table_; }

  // Adds this step's rows to one of the layer's caches.
  int Store(DevicePtr data, int rows, int scales, int layer, const std::string& name) {
    const bool ring = HasRing(layer);
    const std::int64_t blocks =
        ring ? std::int64_t{cache_.sequences} * cache_.ring_blocks : cache_.blocks;
    const Shape shape{blocks * cache_.block_size, graph_.node(rows).shape.cols};
    const int leaf = graph_.add_leaf(data, shape, cache_.type, name);
    OpParams params;
    params.int_param = static_cast<std::uint32_t>(layer);
    std::vector<int> inputs{leaf, rows, ring ? ring_slots_ : slots_};
    if (scales >= 0) inputs.push_back(scales);
    return graph_.add_op(TensorOp::kKvWrite, 0, shape, std::move(inputs), std::move(params),
                         name + "_write", cache_.type);
  }

  int Attention(int layer, int x, const std::string& prefix) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    int q = Product(x, w.q, w.q_bias, prefix + "q", values_);
    int k = Product(x, w.k, w.k_bias, prefix + "k", values_);
    const int v = Product(x, w.v, w.v_bias, prefix + "v", values_);
    const int both = q;
    if (config_.attention_gate) {
      q = Slice(both, 2 * config_.head_dim, 0, config_.head_dim, prefix + "q_slice");
    }
    if (config_.qk_norm) {
      q = Norm(q, w.q_norm, prefix + "q_norm", values_);
      k = Norm(k, w.k_norm, prefix + "k_norm", values_);
    }
    q = Rope(q, layer, prefix + "q_rope", config_.head_dim);
    k = Rope(k, layer, prefix + "k_rope", config_.head_dim);
    const auto number = static_cast<std::size_t>(layer);
    if (config_.qk_norm_turned && config_.ropes[number] != LayerRope::kNone) {
      q = Norm(q, w.q_norm, prefix + "q_norm", values_);
      k = Norm(k, w.k_norm, prefix + "k_norm", values_);
    }
    q = Grown(q, layer, prefix + "q_scale");
    const int key_scales = Scales(cache_.key_scales, number, prefix + "key_scales");
    const int value_scales = Scales(cache_.value_scales, number, prefix + "value_scales");
    const int keys = Store(cache_.keys[number], k, key_scales, layer, prefix + "key_cache");
    const int values = Store(cache_.values[number], v, value_scales, layer, prefix + "value_cache");
    std::vector<int> inputs{q, keys, values, q_starts_, positions_, lengths_, TableOf(layer)};
    if (key_scales >= 0) inputs.insert(inputs.end(), {key_scales, value_scales});
    int out = Attend(layer, std::move(inputs), 0, prefix);
    if (config_.attention_gate) {
      const int gate =
          Slice(both, 2 * config_.head_dim, config_.head_dim, config_.head_dim, prefix + "q_gate");
      out = graph_.add_op(TensorOp::kSigmoidGate, 0, graph_.node(out).shape, {out, gate}, {},
                          prefix + "gated", values_);
    }
    return Product(out, w.o, w.o_bias, prefix + "o");
  }

  // Of each head of `size` elements `count` from `first` on.
  int Slice(int x, std::int64_t size, std::int64_t first, std::int64_t count, std::string name) {
    OpParams params;
    params.head_dim = static_cast<int>(size);
    params.int_param = static_cast<std::uint32_t>(first);
    const TensorNode& from = graph_.node(x);
    const Shape shape{from.shape.rows, from.shape.cols / size * count};
    return graph_.add_op(TensorOp::kHeadSlice, 0, shape, {x}, std::move(params), std::move(name),
                         from.type);
  }

  int LinearAttention(int layer, int x, const std::string& prefix) {
    const GatedDeltaParams& delta = config_.linear.delta;
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    const LinearWeights& of = w.linear;
    const int in = Product(x, of.in, {}, prefix + "linear_in", values_);
    const int gates = Product(x, of.gates, {}, prefix + "linear_gates");
    // The inputs of an operation with a state, behind its own.
    const auto with_state = [&](std::vector<int> inputs, DevicePtr states, std::int64_t cols,
                                const char* name) {
      const int leaf =
          graph_.add_leaf(states, {cache_.sequences, cols}, DataType::kFloat32, prefix + name);
      inputs.insert(inputs.end(), {leaf, state_rows_, q_starts_, positions_});
      return inputs;
    };
    const auto number = static_cast<std::size_t>(layer);
    OpParams conv;
    conv.weight = of.conv;
    conv.delta = delta;
    const std::int64_t kept = (of.conv.cols - 1) * delta.qkv_cols();
    const int mixed =
        graph_.add_op(TensorOp::kCausalConv, 0, {batch_.tokens, delta.qkv_cols()},
                      with_state({in}, cache_.conv_states[number], kept, "conv_states"),
                      std::move(conv), prefix + "conv", values_);
    OpParams rule;
    rule.gamma = of.decay;
    rule.bias = of.step;
    rule.delta = delta;
    rule.scalar = kDeltaEpsilon;
    int out = graph_.add_op(
        TensorOp::kGatedDelta, 0, {batch_.tokens, delta.out_cols()},
        with_state({mixed, gates}, cache_.delta_states[number], delta.state_cols(), "delta_states"),
        std::move(rule), prefix + "delta", values_);
    out = Norm(out, of.norm, prefix + "linear_norm", values_);
    const std::int64_t values = delta.out_cols() / delta.key_heads;
    const std::int64_t group = graph_.node(in).shape.cols / delta.key_heads;
    const int gate = Slice(in, group, group - values, values, prefix + "linear_gate");
    out = graph_.add_op(TensorOp::kSwiGlu, 0, graph_.node(out).shape, {gate, out}, {},
                        prefix + "linear_swiglu", values_);
    return Product(out, w.o, {}, prefix + "o");
  }

  int Attend(int layer, std::vector<int> inputs, int value_dim, const std::string& prefix) {
    OpParams params;
    AttentionParams& attention = params.attention;
    attention.heads = config_.heads;
    attention.kv_heads = config_.kv_heads;
    attention.head_dim = config_.head_dim;
    attention.value_dim = value_dim;
    attention.scale = config_.attention_scale;
    attention.softcap = config_.attention_softcap;
    attention.window = config_.windows[static_cast<std::size_t>(layer)];
    attention.chunk = config_.chunks[static_cast<std::size_t>(layer)];
    attention.block_size = cache_.block_size;
    attention.single_rows = batch_.log_rows > 0;
    params.sinks = weights_.layers[static_cast<std::size_t>(layer)].sinks;
    params.int_param = static_cast<std::uint32_t>(layer);
    const Shape shape{batch_.tokens, std::int64_t{config_.heads} * attention.out_dim()};
    return graph_.add_op(TensorOp::kAttention, 0, shape, std::move(inputs), std::move(params),
                         prefix + "attention", values_);
  }

  int HeadProduct(int x, int size, const Weight& weight, std::string name) {
    OpParams params;
    params.weight = weight;
    params.head_dim = size;
    const Shape from = graph_.node(x).shape;
    const Shape shape{from.rows, weight.rows + from.cols / size * (size - weight.cols)};
    return graph_.add_op(TensorOp::kHeadMulMat, 0, shape, {x}, std::move(params), std::move(name),
                         values_);
  }

  // A head's keys are its own product of the latent, which is read once for all heads: queries go
  // through that product instead, and the sums of latents through that of the values.
  int LatentAttention(int layer, int x, const std::string& prefix) {
    const culet::LatentAttention& latent = config_.latent;
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    const LatentWeights& of = w.latent;
    int from = x;
    if (latent.q_rank > 0) from = Product(x, of.q_a, of.q_a_bias, prefix + "q_a", values_);
    int kv = Product(x, of.kv_a, of.kv_a_bias, prefix + "kv_a", values_);
    if (latent.q_rank > 0) from = LatentNorm(from, of.q_a_norm, prefix + "q_a_norm");
    const int size = latent.nope_dim + latent.rope_dim;
    int q = Product(from, w.q, {}, prefix + (latent.q_rank > 0 ? "q_b" : "q_proj"), values_);
    q = Rope(q, layer, prefix + "q_rope", size, latent.nope_dim);
    q = HeadProduct(q, size, of.keys, prefix + "q_latent");
    kv = LatentNorm(kv, of.kv_a_norm, prefix + "kv_a_norm");
    kv = Rope(kv, layer, prefix + "k_rope", config_.head_dim, latent.kv_rank);
    const int cache =
        Store(cache_.keys[static_cast<std::size_t>(layer)], kv, -1, layer, prefix + "latent_cache");
    int out = Attend(layer, {q, cache, cache, q_starts_, positions_, lengths_, TableOf(layer)},
                     latent.kv_rank, prefix);
    out = HeadProduct(out, latent.kv_rank, of.values, prefix + "values");
    return Product(out, w.o, w.o_bias, prefix + "o");
  }

  // What gate and up become.
  int Gated(int gate, int up, const std::string& prefix) {
    OpParams params;
    TensorOp op = TensorOp::kSwiGlu;
    if (config_.gate == GateKind::kGeluTanh) op = TensorOp::kGeGlu;
    if (config_.gate == GateKind::kClampedSilu) {
      op = TensorOp::kClampedSwiGlu;
      params.scalar = config_.gate_limit;
      params.slope = config_.gate_slope;
    }
    return graph_.add_op(op, 0, graph_.node(gate).shape, {gate, up}, std::move(params),
                         prefix + ToString(op), values_);
  }

  int Mlp(int layer, int x, const std::string& prefix) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    if (w.expert_gate != nullptr) return Experts(w, x, prefix);
    const int gate = Product(x, w.gate, w.gate_bias, prefix + "gate", values_);
    const int up = Product(x, w.up, w.up_bias, prefix + "up", values_);
    return Product(Gated(gate, up, prefix), w.down, w.down_bias, prefix + "down");
  }

  // Tokens times the weights of their experts.
  int FirstProduct(int x, const RouteNodes& route,
                   const std::shared_ptr<const ExpertWeights>& experts, std::string name) {
    std::vector<int> routed{route.routes};
    if (config_.share_scales_input) routed.push_back(route.shares);
    return ExpertProduct(x, routed, config_.routing.active, experts, std::move(name), values_);
  }

  // Rows of x, or with `active` experts a token its tokens, times the weights of their experts.
  int ExpertProduct(int x, const std::vector<int>& routed, int active,
                    const std::shared_ptr<const ExpertWeights>& experts, std::string name,
                    DataType type) {
    const Weight& first = experts->weights.front();
    OpParams params;
    params.experts = experts;
    params.routing.active = active;
    params.parts = config_.shard.experts;
    std::vector<int> inputs{x};
    if (first.type == DataType::kFloat8_e4m3 && first.input_quant != QuantDesc{}) {
      params.quant_a = first.input_quant;
      const QuantizedNodes quantised = Quantized(x, first);
      inputs = {quantised.codes, quantised.scales};
    }
    inputs.insert(inputs.end(), routed.begin(), routed.end());
    const std::int64_t rows = graph_.node(x).shape.rows * (active > 0 ? active : 1);
    return graph_.add_op(TensorOp::kExpertMulMat, 0, {rows, first.rows}, std::move(inputs),
                         std::move(params), std::move(name), type);
  }

  int Combined(int x, const RouteNodes& route, bool shares, std::string name,
               const RankParts& experts = {}) {
    OpParams params;
    params.parts = experts;
    const Shape shape{graph_.node(route.shares).shape.rows, graph_.node(x).shape.cols};
    std::vector<int> inputs{x, route.routes};
    if (shares) inputs.push_back(route.shares);
    return graph_.add_op(TensorOp::kCombine, 0, shape, std::move(inputs), std::move(params),
                         std::move(name));
  }

  int Experts(const LayerWeights& w, int x, const std::string& prefix) {
    const std::string experts = prefix + "experts.", shared = prefix + "shared.";
    const int logits = Product(x, w.router, w.router_bias, prefix + "router");
    const RouteNodes route =
        graph_.add_route(logits, config_.routing, w.router_correction, prefix + "route");
    // What reads x comes first, so that it is quantised once.
    const int gate = FirstProduct(x, route, w.expert_gate, experts + "gate");
    const int up = FirstProduct(x, route, w.expert_up, experts + "up");
    const bool has_shared = w.shared_gate.present();
    int shared_gate = -1, shared_up = -1;
    if (has_shared) {
      shared_gate = Product(x, w.shared_gate, {}, shared + "gate", values_);
      shared_up = Product(x, w.shared_up, {}, shared + "up", values_);
    }
    const int down = ExpertProduct(Gated(gate, up, experts), {route.routes}, 0, w.expert_down,
                                   experts + "down", DataType::kFloat32);
    const int sum = Combined(down, route, !config_.share_scales_input, prefix + "experts",
                             config_.shard.experts);
    if (!has_shared) return sum;
    int always = Product(Gated(shared_gate, shared_up, shared), w.shared_down, {}, shared + "down");
    if (w.shared_router.present()) {
      // One expert, whose share is the sigmoid of its logit.
      RoutingParams one;
      one.active = 1;
      one.scoring = RouterScoring::kSigmoid;
      const RouteNodes to = graph_.add_route(Product(x, w.shared_router, {}, shared + "router"),
                                             one, {}, shared + "route");
      always = Combined(always, to, true, prefix + "shared");
    }
    return Add(sum, always, prefix + "experts_add");
  }

  int Layer(int layer, int x) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    const std::string prefix = fmt::format("layers.{}.", layer);
    int normed = LayerNorm(x, w.attention_norm, prefix + "attention_norm", values_);
    const int mixed = w.linear.in.present()      ? LinearAttention(layer, normed, prefix)
                      : config_.latent.present() ? LatentAttention(layer, normed, prefix)
                                                 : Attention(layer, normed, prefix);
    const int attended =
        Behind(Summed(mixed, prefix + "attention"), w.attention_post_norm, prefix + "attention");
    x = Add(x, attended, prefix + "attention_add");
    if (!config_.parallel_residual) {
      normed = LayerNorm(x, w.mlp_norm, prefix + "mlp_norm", values_);
    }
    const int fed = Summed(Mlp(layer, normed, prefix), prefix + "mlp");
    return Add(x, Behind(fed, w.mlp_post_norm, prefix + "mlp"), prefix + "mlp_add");
  }

  // What a part of a layer adds to the sum.
  int Behind(int x, const Weight& norm, const std::string& name) {
    x = LayerNorm(x, norm, name + "_post_norm", DataType::kFloat32);
    return Scaled(x, config_.residual_scale, name + "_scale");
  }

  DecoderGraph Head(int x) {
    // Rows whose logits are not wanted are dropped before the head, unless their hidden state is.
    const bool gather = rows_ >= 0;
    const auto pick = [&](int from) {
      return graph_.add_op(TensorOp::kGatherRows, 0, {batch_.logit_rows, config_.hidden},
                           {from, rows_}, {}, "last_rows");
    };
    if (gather && !batch_.keep_hidden) x = pick(x);
    // As a hidden state it is float32 like the others.
    x = LayerNorm(x, weights_.final_norm, "final_norm",
                  batch_.keep_hidden ? DataType::kFloat32 : values_);
    Keep(x);
    if (gather && batch_.keep_hidden) x = pick(x);
    x = Gathered(Product(x, weights_.head, {}, "logits"), "all_logits");
    x = Scaled(x, config_.logit_scale, "logit_scale");
    x = SoftCapped(x, config_.logit_softcap, "logit_softcap");
    const Shape tokens{graph_.node(x).shape.rows, 1};
    // The token after n others is draw n, the sequence's length.
    built_.argmax = batch_.sample
                        ? graph_.add_op(TensorOp::kSample, 0, tokens, {x, sampling_, lengths_}, {},
                                        "sample", DataType::kInt32)
                        : TokenOfAll(x, graph_.add_op(TensorOp::kArgMax, 0, tokens, {x}, {},
                                                      "argmax", DataType::kInt32));
    if (!OwnLogits()) {
      built_.logits = x;
      graph_.mark_output(x);
    }
    graph_.mark_output(built_.argmax);
    if (log_ >= 0) {
      OpParams params;
      params.attention.block_size = cache_.block_size;
      if (OwnLogits()) params.parts = config_.shard.vocab;
      std::vector<int> inputs{log_, built_.argmax, x, ids_, positions_, slots_, lengths_, table_};
      if (ring_table_ >= 0) inputs.insert(inputs.end(), {ring_slots_, ring_table_});
      built_.advance =
          graph_.add_op(TensorOp::kAdvance, 0, graph_.node(log_).shape, std::move(inputs),
                        std::move(params), "advance", DataType::kInt32);
      graph_.mark_output(built_.advance);
    }
    built_.graph = std::move(graph_);
    return std::move(built_);
  }

  const DecoderConfig& config_;
  const DecoderWeights& weights_;
  const CacheLayout& cache_;
  const DecoderBatch& batch_;
  ComputeGraph graph_;
  DecoderGraph built_;
  const DataType values_ = batch_.value_type;
  int ids_ = -1, positions_ = -1, slots_ = -1, q_starts_ = -1, lengths_ = -1, table_ = -1;
  int rows_ = -1, log_ = -1, sampling_ = -1, state_rows_ = -1;
  int ring_slots_ = -1, ring_table_ = -1;
  // The value that was quantised last, and how.
  std::tuple<int, QuantDesc, float> quantised_from_{-1, QuantDesc{}, 0.0f};
  QuantizedNodes quantised_;
};

}  // namespace

DecoderGraph BuildDecoderGraph(const DecoderConfig& config, const DecoderWeights& weights,
                               const DecoderInputs& inputs, const CacheLayout& cache,
                               const DecoderBatch& batch) {
  return Builder(config, weights, inputs, cache, batch).Build();
}

}  // namespace culet
