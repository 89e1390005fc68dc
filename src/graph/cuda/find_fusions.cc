// The search for fusions: what one kernel, or a product and one kernel, can compute.
#include <algorithm>
#include <array>
#include <utility>

#include "graph/cuda/fused.h"
#include "graph/cuda/grouped_experts.h"
#include "graph/cuda/router.h"
#include "graph/fusion_search.h"
#include "graph/joined_weight.h"

namespace culet::cuda_ops {
namespace {

bool IsValue(DataType type) { return type == DataType::kFloat32 || type == DataType::kBfloat16; }

bool IsAligned(DevicePtr pointer) { return pointer % 16 == 0; }

class Search {
 public:
  Search(const ComputeGraph& graph, FusedProducts& fused, const DeviceInfo& device)
      : graph_(graph), readers_(graph), fused_(fused), device_(device) {}

  std::vector<Fusion> Run() {
    for (int id = 0; id < graph_.size(); ++id) {
      const TensorOp op = graph_.node(id).op;
      if (op == TensorOp::kMulMat) FindHeads(id);
      if (op == TensorOp::kSwiGlu) FindGateUp(id);
      if (op == TensorOp::kSwiGlu || op == TensorOp::kClampedSwiGlu) FindExperts(id);
      if (op == TensorOp::kRmsNorm) FindNorm(id);
      if (op == TensorOp::kRoute) FindRouter(id);
    }
    std::erase_if(found_, [&](const Fusion& fusion) { return !CanFuse(graph_, fusion).ok(); });
    // A group that holds another one comes first.
    std::ranges::stable_sort(found_, std::ranges::greater(),
                             [](const Fusion& fusion) { return fusion.nodes.size(); });
    return std::move(found_);
  }

 private:
  // Whole vectors of a value or leaf.
  bool IsWide(int id) const {
    const TensorNode& node = graph_.node(id);
    return IsAligned(node.data_ptr) && node.shape.cols % 8 == 0;
  }
  bool IsWideValue(int id) const { return IsWide(id) && IsValue(graph_.node(id).type); }

  // The only reader of a value; -1 if there are several or the value is an output.
  int OnlyReader(int id, TensorOp op) const {
    if (!readers_.IsOne(id)) return -1;
    const int reader = readers_.of(id).front();
    return graph_.node(reader).op == op ? reader : -1;
  }

  // A quantize of the value in groups of 128, whose codes can be stored in whole vectors; -1: none.
  int CodesOf(int id) const {
    const auto fits = [&](int reader) {
      const TensorNode& node = graph_.node(reader);
      return node.op == TensorOp::kQuantize && node.params.quant_a.group_size == kCodesGroup &&
             IsAligned(node.data_ptr);
    };
    const std::vector<int>& readers = readers_.of(id);
    const auto codes = std::ranges::find_if(readers, fits);
    return codes == readers.end() ? -1 : *codes;
  }

  bool IsSum(int id) const {
    const TensorNode& node = graph_.node(id);
    return node.op == TensorOp::kAdd && IsWideValue(id) &&
           std::ranges::all_of(node.inputs, [&](int in) { return IsWide(in); });
  }

  // The sum whose rows the value gathers, if nobody else needs either; else -1.
  int SumOfRows(int id) const {
    const TensorNode& node = graph_.node(id);
    if (node.op != TensorOp::kGatherRows || !readers_.IsOne(id)) return -1;
    return IsSum(node.inputs[0]) && readers_.IsOne(node.inputs[0]) ? node.inputs[0] : -1;
  }

  void FindNorm(int id) {
    const TensorNode& norm = graph_.node(id);
    const int x = norm.inputs[0];
    if (norm.params.gamma.cols != norm.shape.cols || !IsAligned(norm.params.gamma.data_ptr)) return;
    if (!IsWideValue(id) || !IsWideValue(x)) return;
    if (const int of = SumOfRows(x); of >= 0)
      found_.push_back({kAddRmsNormOfRows, {of, x, id}, {}});
    const int codes = CodesOf(id);
    const bool sum = IsSum(x);
    if (sum && codes >= 0) found_.push_back(WithSum(graph_, kAddRmsNormQuantize, {x, id, codes}));
    if (codes >= 0) found_.push_back({kRmsNormQuantize, {id, codes}, {}});
    if (sum) found_.push_back(WithSum(graph_, kAddRmsNorm, {x, id}));
  }

  void FindGateUp(int id) {
    const TensorNode& node = graph_.node(id);
    if (!IsWideValue(id)) return;
    const int codes = CodesOf(id);
    const int gate = node.inputs[0], up = node.inputs[1];
    const auto wide = [&](int in) { return IsWide(in); };
    if (codes >= 0 && std::ranges::all_of(node.inputs, wide)) {
      found_.push_back({kSwiGluQuantize, {id, codes}, {}});
    }
    const std::array products{gate, up};
    if (gate == up || !AreJoined(products)) return;
    if (!readers_.IsOne(gate) || !readers_.IsOne(up)) return;
    std::vector<int> nodes{gate, up, id};
    std::ranges::sort(nodes);
    Push({kGateUp, nodes, {}}, products, true);
    if (codes < 0) return;
    nodes.push_back(codes);
    Push({kGateUpQuantize, std::move(nodes), {}}, products, false);
  }

  void FindExperts(int id) {
    const ExpertNodes experts = ExpertsOf(graph_, id);
    if (experts.product < 0 || !readers_.IsOne(experts.product) || !readers_.IsOne(experts.up)) {
      return;
    }
    if (!GroupedExperts::Takes(device_, fused_.options(), graph_, experts)) return;
    std::vector<int> nodes{experts.product, experts.up, id};
    std::ranges::sort(nodes);
    found_.push_back({kExpertsGateUp, std::move(nodes), {}});
  }

  // The product of logits and their Route, with what makes the product's input, and its codes.
  void FindRouter(int id) {
    const int logits = graph_.node(id).inputs[0];
    if (!readers_.IsOne(logits) || !TakesRouter(graph_, id)) return;
    const int from = graph_.node(logits).inputs[0];
    found_.push_back({kRouter, {logits, id}, {}});
    const TensorNode& norm = graph_.node(from);
    if (norm.op != TensorOp::kRmsNorm || norm.params.gamma.cols != norm.shape.cols ||
        !IsAligned(norm.params.gamma.data_ptr) || !IsWideValue(from)) {
      return;
    }
    const int x = norm.inputs[0];
    if (!IsWide(x) || graph_.node(x).type != DataType::kFloat32) return;
    const int codes = norm.type == DataType::kFloat32 ? CodesOf(from) : -1;
    // Every block of a token's cluster reads the sum's operands, so it lies over none of them.
    for (const bool sums : {false, true}) {
      for (const bool quantises : {false, true}) {
        if ((sums && !IsSum(x)) || (quantises && codes < 0)) continue;
        std::vector<int> nodes{from, logits, id};
        if (sums) nodes.push_back(x);
        if (quantises) nodes.push_back(codes);
        std::ranges::sort(nodes);
        found_.push_back({InputNorm::NameBefore(kRouter), std::move(nodes), {}});
      }
    }
  }

  // Offers a fusion with the joined product of `products`, and one that includes the norm of their
  // input if a kernel computes both, and SwiGlu if it `may_gate`.
  void Push(Fusion fusion, std::span<const int> products, bool may_gate) {
    Fusion with = fusion;
    found_.push_back(std::move(fusion));
    int input = graph_.node(products.front()).inputs[0];
    const auto is_own = [&](int id) {
      return std::ranges::all_of(readers_.of(id), [&](int reader) {
        return IsSecond(graph_.node(reader).op) ||
               std::ranges::find(with.nodes, reader) != with.nodes.end();
      });
    };
    const auto add = [&](int id) { with.nodes.insert(with.nodes.begin(), id); };
    const auto hidden = [&](int id) {
      return is_own(id) && !graph_.is_output(id) && graph_.node(id).data_ptr == 0;
    };
    if (!hidden(input)) return;
    if (graph_.node(input).op == TensorOp::kQuantize) {
      // Kernels that norm what they multiply quantise it in groups.
      if (graph_.node(input).params.quant_a.type != QuantType::kK) return;
      if (!hidden(input + 1)) return;  // its scales
      add(input);
      input = graph_.node(input).inputs[0];
      if (!hidden(input) || graph_.node(input).type != DataType::kFloat32) return;
    }
    const TensorNode& norm = graph_.node(input);
    if (norm.op != TensorOp::kRmsNorm || norm.params.gamma.cols != norm.shape.cols ||
        !IsAligned(norm.params.gamma.data_ptr)) {
      return;
    }
    add(input);
    const int x = norm.inputs[0];
    const auto fits = [&](int id) {
      return IsWide(id) && graph_.node(id).type == DataType::kFloat32;
    };
    if (!fits(x)) return;
    if (graph_.node(x).op == TensorOp::kAdd && std::ranges::all_of(graph_.node(x).inputs, fits)) {
      add(x);
      // Without the sum if an earlier node needs it.
      if (!CanFuse(graph_, with).ok()) with.nodes.erase(with.nodes.begin());
    }
    with.name = InputNorm::NameBefore(with.name);
    const InputNorm before = NormWithin(graph_, with, products.front());
    const ProductSpec spec = JoinedProduct(graph_, products);
    const auto is_faster = [&](bool gated) {
      return fused_.Choose(spec, FusionWith(graph_, before, gated)) != nullptr;
    };
    if ((may_gate && is_faster(true)) || is_faster(false)) found_.push_back(std::move(with));
  }

  // Whether one product on joined weights can compute all of them side by side.
  bool AreJoined(std::span<const int> products) const {
    const TensorNode& first = graph_.node(products.front());
    for (const int id : products) {
      const TensorNode& node = graph_.node(id);
      if (node.op != TensorOp::kMulMat || node.inputs != first.inputs || node.type != first.type ||
          !IsValue(node.type) || node.shape.cols % 8 != 0 ||
          node.params.quant_a != first.params.quant_a) {
        return false;
      }
    }
    return JoinedProduct(graph_, products).weight.present();
  }

  // Starts at the product of q: q, k and v read one value, rope turns q and k, k and v are stored,
  // and attention reads all of them.
  void FindHeads(int q) {
    Heads heads;
    heads.q = q;
    if (!Follow(q, heads.q_norm, heads.q_rope)) return;
    const std::vector<int>& others = readers_.of(graph_.node(q).inputs[0]);
    for (const int k : others) {
      heads.k = k;
      if (k <= q || !Follow(k, heads.k_norm, heads.k_rope)) continue;
      heads.key_write = OnlyReader(heads.k_rope, TensorOp::kKvWrite);
      if (heads.key_write < 0 || (heads.q_norm < 0) != (heads.k_norm < 0)) continue;
      for (const int v : others) {
        heads.v = v;
        if (v <= k || graph_.node(v).op != TensorOp::kMulMat) continue;
        heads.value_write = OnlyReader(v, TensorOp::kKvWrite);
        if (heads.value_write < 0 || !Fits(heads)) continue;
        Push({kQkv, heads.Nodes(), {}}, heads.Products(), false);
        if (FindAttention(heads)) Push({kQkvAttention, heads.Nodes(), {}}, heads.Products(), false);
        return;
      }
    }
  }

  // The only attention that reads the queries and, with single rows, these versions of the caches.
  bool FindAttention(Heads& heads) const {
    const int id = OnlyReader(heads.q_rope, TensorOp::kAttention);
    if (id < 0 || OnlyReader(heads.key_write, TensorOp::kAttention) != id ||
        OnlyReader(heads.value_write, TensorOp::kAttention) != id) {
      return false;
    }
    const TensorNode &node = graph_.node(id), &q = graph_.node(heads.q_rope);
    const TensorNode &keys = graph_.node(heads.key_write), &values = graph_.node(heads.value_write);
    const AttentionParams& p = node.params.attention;
    const bool codes = keys.type == DataType::kFloat8_e4m3;
    if (codes && (node.inputs.size() != 9 || p.head_dim % 16 != 0 ||
                  node.inputs[7] != keys.inputs[3] || node.inputs[8] != values.inputs[3])) {
      return false;
    }
    const bool fits =
        p.single_rows && p.causal && p.block_size > 0 && node.inputs.size() >= 7 &&
        node.inputs[0] == heads.q_rope && node.inputs[1] == heads.key_write &&
        node.inputs[2] == heads.value_write && node.inputs[4] == q.inputs[1] &&
        keys.inputs[2] == values.inputs[2] && keys.inputs[0] != values.inputs[0] &&
        p.head_dim == q.params.head_dim && p.heads * p.head_dim == q.shape.cols &&
        p.kv_heads * p.head_dim == keys.shape.cols &&
        graph_.node(node.inputs[3]).shape.rows == node.shape.rows + 1 &&
        (codes || keys.type == DataType::kFloat16 || keys.type == DataType::kBfloat16) &&
        IsWide(id);
    if (fits) heads.attention = id;
    return fits;
  }

  // A product, maybe a norm of its heads, and a rope.
  bool Follow(int product, int& norm, int& rope) const {
    if (graph_.node(product).op != TensorOp::kMulMat) return false;
    norm = OnlyReader(product, TensorOp::kRmsNorm);
    const int last = norm >= 0 ? norm : product;
    rope = OnlyReader(last, TensorOp::kRope);
    if (rope < 0 || graph_.node(rope).inputs[0] != last) return false;
    const TensorNode& turned = graph_.node(rope);
    if (graph_.node(last).type != turned.type) return false;
    if (norm < 0) return true;
    const TensorNode& node = graph_.node(norm);
    return node.params.gamma.cols == turned.params.head_dim && node.type == turned.type &&
           IsAligned(node.params.gamma.data_ptr);
  }

  bool Fits(const Heads& heads) const {
    const TensorNode &q = graph_.node(heads.q_rope), &k = graph_.node(heads.k_rope);
    const TensorNode &keys = graph_.node(heads.key_write), &values = graph_.node(heads.value_write);
    const int size = q.params.head_dim;
    const RopeParams& rope = q.params.rope;
    const auto type_of = [&](int id) { return graph_.node(id).type; };
    return size % 8 == 0 && size <= kMostHeadDim && k.params.head_dim == size &&
           rope == k.params.rope && (rope.layout == RopeLayout::kNorm || rope.dims % 16 == 0) &&
           rope.first == 0 && q.inputs[1] == k.inputs[1] && IsWide(heads.q_rope) &&
           type_of(heads.v) == q.type && type_of(heads.q) == q.type && type_of(heads.k) == q.type &&
           keys.type == values.type && keys.shape == values.shape &&
           keys.shape.cols == k.shape.cols && graph_.node(heads.v).shape == k.shape &&
           keys.inputs[1] == heads.k_rope && values.inputs[1] == heads.v &&
           IsAligned(graph_.node(keys.inputs[0]).data_ptr) &&
           IsAligned(graph_.node(values.inputs[0]).data_ptr) &&
           (keys.type == DataType::kFloat16 || IsValue(keys.type) ||
            HasScales(keys, values, size)) &&
           AreJoined(heads.Products());
  }

  // Whether both are codes, with a scale for each head of `size` elements.
  bool HasScales(const TensorNode& keys, const TensorNode& values, int size) const {
    const auto has = [&](const TensorNode& node) {
      return node.type == DataType::kFloat8_e4m3 &&
             graph_.node(node.inputs[3]).shape.cols * size == node.shape.cols;
    };
    return has(keys) && has(values);
  }

  const ComputeGraph& graph_;
  const Readers readers_;
  FusedProducts& fused_;
  const DeviceInfo& device_;
  std::vector<Fusion> found_;
};

}  // namespace

std::vector<int> Heads::Nodes() const {
  std::vector<int> nodes;
  for (const int id :
       {q, k, v, q_norm, k_norm, q_rope, k_rope, key_write, value_write, attention}) {
    if (id >= 0) nodes.push_back(id);
  }
  std::ranges::sort(nodes);
  return nodes;
}

ProductSpec JoinedProduct(const ComputeGraph& graph, std::span<const int> products) {
  ProductSpec spec = ProductSpec::Of(graph, products.front());
  std::vector<const Weight*> weights, biases;
  for (const int id : products) {
    const OpParams& params = graph.node(id).params;
    weights.push_back(&params.weight);
    if (params.bias.present()) biases.push_back(&params.bias);
  }
  spec.weight = JoinedWeight(weights);
  if (!biases.empty()) {
    spec.bias = biases.size() == weights.size() ? JoinedWeight(biases) : Weight{};
    if (!spec.bias.present()) spec.weight = {};
  }
  spec.output = 0;  // in scratch memory
  return spec;
}

std::vector<std::string> FusionNames() {
  std::vector<std::string> names = {
      kQkvAttention,    kQkv,        kGateUpQuantize,   kGateUp,         kAddRmsNormQuantize,
      kRmsNormQuantize, kAddRmsNorm, kAddRmsNormOfRows, kSwiGluQuantize, kExpertsGateUp,
      kRouter};
  for (const char* const name : {kQkvAttention, kQkv, kGateUpQuantize, kGateUp, kRouter})
    names.push_back(InputNorm::NameBefore(name));
  return names;
}

std::vector<Fusion> FindFusions(const ComputeGraph& graph, FusedProducts& fused,
                                const DeviceInfo& device) {
  return Search(graph, fused, device).Run();
}

}  // namespace culet::cuda_ops
