// ComputeGraph::Verify: what each operation demands of its inputs and attributes.
#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "base/scales.h"
#include "culet/graph.h"
#include "culet/sampling.h"
#include "graph/liveness.h"
#include "graph/node_rules.h"
#include "graph/operations.h"
#include "graph/verify_weight.h"

namespace culet {
namespace {

constexpr const char* kExchanged = "ranks exchange float32 values; cast first";
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

Status Refused(const ComputeGraph& graph, int id, const std::string& reason) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{}: {}", DescribeNode(graph, id), reason));
}

}  // namespace

std::string NodeRules::Check() const {
  if (auto r = Value(); !r.empty()) return r;
  const OperationInfo& info = InfoOf(node_.op);
  if (info.op != node_.op) return "there is no such operation";
  if (auto r = Inputs(); !r.empty() || info.rule == nullptr) return r;
  if (info.inputs > 0) {
    if (auto r = CountIs(static_cast<std::size_t>(info.inputs)); !r.empty()) return r;
  }
  return (this->*info.rule)();
}

std::string NodeRules::Inputs() const {
  if (node_.op == TensorOp::kNone) {
    if (!node_.inputs.empty()) return "a leaf has no inputs";
    return node_.data_ptr == 0 ? "a leaf needs a data_ptr" : "";
  }
  for (const int input : node_.inputs) {
    if (input < 0 || input >= graph_.size()) {
      return fmt::format("input {} is no node of the graph", input);
    }
    if (input >= id_) return fmt::format("input {} comes later; add it first", input);
  }
  return {};
}

std::string NodeRules::Value() const {
  const Shape& shape = node_.shape;
  if (shape.rows < 1 || shape.cols < 1 || shape.rows > kMost || shape.cols > kMost) {
    return fmt::format("the shape is [{}, {}]; rows and columns must be from 1 to {}", shape.rows,
                       shape.cols, kMost);
  }
  if (!IsFloat(node_.type) && node_.type != DataType::kInt32 &&
      node_.type != DataType::kFloat8_e4m3) {
    return fmt::format(
        "the type is {}; values are float32, float16, bfloat16, int32, or float8_e4m3 codes",
        ToString(node_.type));
  }
  if (node_.data_ptr % SizeOf(node_.type) != 0) {
    return fmt::format("data_ptr {:#x} is not a multiple of {} bytes", node_.data_ptr,
                       SizeOf(node_.type));
  }
  return {};
}

// Whether the parts are some, in order, and the rank is one of theirs.
std::string NodeRules::Parts() const {
  const RankParts& parts = params_.parts;
  if (parts.ranks() < 1 || parts.rank < 0 || parts.rank >= parts.ranks()) {
    return fmt::format("parts.rank is {} of {}; ranks go from 0 to their number less 1", parts.rank,
                       parts.ranks());
  }
  bool ascend = parts.bounds.front() == 0;
  for (int r = 0; r < parts.ranks(); ++r) ascend &= parts.size_of(r) > 0;
  return ascend ? "" : "parts.bounds must begin with 0 and ascend";
}

std::string NodeRules::AllReduce() const {
  if (node_.type != DataType::kFloat32) return kExchanged;
  return params_.int_param > 0 ? Operands() : "int_param, the number of ranks, is 0";
}

std::string NodeRules::AllGather() const {
  if (auto r = Parts(); !r.empty()) return r;
  if (node_.type != DataType::kFloat32 || In(0).type != DataType::kFloat32) return kExchanged;
  const RankParts& parts = params_.parts;
  if (parts.all() != node_.shape.cols) {
    return fmt::format("parts has {} columns, the value {}", parts.all(), node_.shape.cols);
  }
  return InputIs(0, {node_.shape.rows, parts.size_of(parts.rank)}, "X");
}

std::string NodeRules::AllArgMax() const {
  if (auto r = Parts(); !r.empty()) return r;
  if (In(0).type != DataType::kFloat32) return kExchanged;
  if (node_.type != DataType::kInt32) return "the value must be int32";
  const RankParts& parts = params_.parts;
  if (auto r = InputIs(0, {node_.shape.rows, parts.size_of(parts.rank)}, "X"); !r.empty()) return r;
  if (auto r = Indices(1, {node_.shape.rows, 1}, "its ArgMax"); !r.empty()) return r;
  return node_.shape.cols == 1 ? "" : "the value must have one column";
}

std::string NodeRules::MulMat() const {
  const bool codes = !node_.inputs.empty() && In(0).type == DataType::kFloat8_e4m3;
  if (auto r = CountIs(codes ? 2 : 1); !r.empty()) return r;
  if (codes) {
    if (auto r = CheckScales(1, In(0).shape); !r.empty()) return r;
    if (params_.weight.type != DataType::kFloat8_e4m3) {
      return fmt::format("input 0 is quantised, the weight {}; it must be float8_e4m3",
                         ToString(params_.weight.type));
    }
    if (params_.quant_a == QuantDesc{}) {
      return "input 0 is quantised; quant_a must say how, as its quantize does";
    }
  } else if (auto r = InputIsFloat(0); !r.empty()) {
    return r;
  }
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r =
          WhyNotWeight("the weight", params_.weight, node_.shape.cols, In(0).shape.cols, params_);
      !r.empty()) {
    return r;
  }
  if (auto r = InputIs(0, {node_.shape.rows, In(0).shape.cols}, "X"); !r.empty()) return r;
  return params_.bias.present() ? Vector("the bias", params_.bias, node_.shape.cols)
                                : std::string();
}

std::string NodeRules::HeadMulMat() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  const Weight& w = params_.weight;
  if (!w.present() || !IsFloat(w.type) || w.quant != QuantDesc{}) {
    return fmt::format("the weight is {}; it must be float32, float16 or bfloat16",
                       ToString(w.type));
  }
  const std::int64_t in = params_.head_dim, cols = In(0).shape.cols;
  if (in < 1 || cols % in != 0) {
    return fmt::format("head_dim {} does not divide the {} columns of X", in, cols);
  }
  const std::int64_t heads = cols / in;
  if (w.cols < 1 || w.cols > in || w.rows < heads || w.rows % heads != 0) {
    return fmt::format(
        "the weight is [{}, {}]; {} heads of {} elements need as many rows each, of at most {}",
        w.rows, w.cols, heads, in, in);
  }
  const Shape shape{In(0).shape.rows, w.rows + heads * (in - w.cols)};
  if (node_.shape != shape) {
    return fmt::format("the shape is [{}, {}]; that of the product is [{}, {}]", node_.shape.rows,
                       node_.shape.cols, shape.rows, shape.cols);
  }
  return WhyNotPlaced("the weight", w);
}

// All of the value's shape and type.
std::string NodeRules::Operands() const {
  for (std::size_t i = 0; i < node_.inputs.size(); ++i) {
    if (auto r = InputIs(i, node_.shape, "an operand"); !r.empty()) return r;
    if (In(i).type != node_.type) {
      return fmt::format("input {} is {}, the value {}; cast first", i, ToString(In(i).type),
                         ToString(node_.type));
    }
  }
  return {};
}

std::string NodeRules::Copy() const { return Operands(); }

std::string NodeRules::Elements() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  return Operands();
}

std::string NodeRules::Cast() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  return InputIs(0, node_.shape, "X");
}

std::string NodeRules::RmsNorm() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (auto r = InputIs(0, node_.shape, "X"); !r.empty()) return r;
  if (!params_.gamma.present()) return "gamma is missing";
  const std::int64_t group = NormGroupOf(params_);
  if (params_.gamma.cols < 1 || node_.shape.cols % group != 0) {
    return fmt::format(
        "gamma has {} elements{}, which do not divide the {} columns", params_.gamma.cols,
        group > params_.gamma.cols ? fmt::format(", a group {}", group) : "", node_.shape.cols);
  }
  if (auto r = Vector("gamma", params_.gamma, params_.gamma.cols); !r.empty()) return r;
  if (!(params_.scalar > 0)) {
    return fmt::format("scalar, the epsilon, is {}; it must be above 0", params_.scalar);
  }
  return {};
}

std::string NodeRules::LayerNorm() const {
  if (auto r = RmsNorm(); !r.empty()) return r;
  if (params_.gamma.cols == node_.shape.cols) return {};
  return fmt::format("gamma has {} elements; the norm of a row of {} takes as many",
                     params_.gamma.cols, node_.shape.cols);
}

std::string NodeRules::Scale() const {
  if (auto r = Elements(); !r.empty()) return r;
  if (std::isfinite(params_.scalar)) return {};
  return fmt::format("scalar is {}; it must be finite", params_.scalar);
}

std::string NodeRules::SoftCap() const {
  if (auto r = Elements(); !r.empty()) return r;
  if (std::isfinite(params_.scalar) && params_.scalar > 0) return {};
  return fmt::format("scalar is {}; it must be finite and above 0", params_.scalar);
}

std::string NodeRules::ClampedSwiGlu() const {
  if (auto r = Elements(); !r.empty()) return r;
  const auto fits = [](float value) { return value > 0 && std::isfinite(value); };
  if (fits(params_.scalar) && fits(params_.slope)) return {};
  return fmt::format("scalar, the limit, is {}, slope {}; both must be finite and above 0",
                     params_.scalar, params_.slope);
}

std::string NodeRules::PositionScale() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIs(0, node_.shape, "X"); !r.empty()) return r;
  if (In(0).type != node_.type) return "input and value have different types; cast first";
  if (auto r = Indices(1, {node_.shape.rows, 1}, "positions"); !r.empty()) return r;
  if (std::isfinite(params_.scalar) && params_.rope.original_context > 0) return {};
  return fmt::format("scalar is {}, rope.original_context {}; finite, and above 0", params_.scalar,
                     params_.rope.original_context);
}

std::string NodeRules::Rope() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIs(0, node_.shape, "X"); !r.empty()) return r;
  if (In(0).type != node_.type) return "input and value have different types; cast first";
  if (auto r = Indices(1, {node_.shape.rows, 1}, "positions"); !r.empty()) return r;
  const RopeParams& rope = params_.rope;
  if (params_.head_dim < 1 || node_.shape.cols % params_.head_dim != 0) {
    return fmt::format("head_dim {} does not divide the {} columns", params_.head_dim,
                       node_.shape.cols);
  }
  if (rope.dims < 2 || rope.dims % 2 != 0 || rope.dims > params_.head_dim) {
    return fmt::format("rope.dims is {}; it must be even, from 2 to head_dim {}", rope.dims,
                       params_.head_dim);
  }
  if (rope.first < 0 || rope.first > params_.head_dim - rope.dims) {
    return fmt::format("rope.first is {}; of {} elements {} turn, which leaves 0 to {}", rope.first,
                       params_.head_dim, rope.dims, params_.head_dim - rope.dims);
  }
  if (!(rope.theta > 1) || !(rope.factor > 0) || !(rope.attention_factor > 0)) {
    return fmt::format(
        "rope has theta {}, factor {}, attention_factor {}; theta must be above 1, "
        "the others above 0",
        rope.theta, rope.factor, rope.attention_factor);
  }
  if (rope.scaling == RopeScaling::kLongRope) {
    const auto half = static_cast<std::size_t>(rope.dims / 2);
    if (rope.short_divisors.size() != half || rope.long_divisors.size() != half) {
      return fmt::format("rope has {} short and {} long divisors; both must be dims / 2 = {}",
                         rope.short_divisors.size(), rope.long_divisors.size(), half);
    }
  }
  const bool needs_context =
      rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn;
  if (needs_context && !(rope.original_context > 0)) {
    return fmt::format("rope scaling {} needs an original_context above 0", ToString(rope.scaling));
  }
  if (rope.scaling == RopeScaling::kLlama3 && !(rope.high_freq_factor >= rope.low_freq_factor)) {
    return fmt::format("rope.high_freq_factor {} must be at least low_freq_factor {}",
                       rope.high_freq_factor, rope.low_freq_factor);
  }
  return {};
}

std::string NodeRules::Attention() const {
  const AttentionParams& a = params_.attention;
  if (a.heads < 1 || a.kv_heads < 1 || a.head_dim < 1 || a.heads % a.kv_heads != 0) {
    return fmt::format(
        "{} heads over {} key-value heads of {} elements; kv_heads must divide heads", a.heads,
        a.kv_heads, a.head_dim);
  }
  if (!(a.scale > 0)) return fmt::format("scale is {}; it must be above 0", a.scale);
  if (!(a.softcap >= 0) || !std::isfinite(a.softcap)) {
    return fmt::format("softcap is {}; it must be finite and above 0, or 0 for none", a.softcap);
  }
  if (a.window < 0) return fmt::format("window is {}; 0 means no limit", a.window);
  if (a.window > 0 && !a.causal) return "a window needs a causal attention";
  if (a.value_dim < 0 || a.value_dim > a.head_dim) {
    return fmt::format("value_dim is {}; it must be from 1 to head_dim {}, or 0 for V of its own",
                       a.value_dim, a.head_dim);
  }
  if (a.chunk < 0) return fmt::format("chunk is {}; 0 means no limit", a.chunk);
  if (a.chunk > 0 && !a.causal) return "a chunk needs a causal attention";
  if (params_.sinks.present()) {
    if (auto r = Vector("sinks", params_.sinks, a.heads); !r.empty()) return r;
  }
  const std::size_t count = node_.inputs.size();
  if (count != 3 && count != 4 && count != 7 && count != 9) {
    return fmt::format(
        "it has {} inputs; attention takes Q, K, V, or these and q_starts, or these and "
        "positions, lengths, block_table, or these and the scales of K and V",
        count);
  }
  if (auto r = IsFloatValue(); !r.empty()) return r;
  const std::int64_t q_cols = std::int64_t{a.heads} * a.head_dim;
  const std::int64_t kv_cols = std::int64_t{a.kv_heads} * a.head_dim;
  const std::int64_t tokens = node_.shape.rows;
  const std::int64_t out_cols = std::int64_t{a.heads} * a.out_dim();
  if (node_.shape.cols != out_cols) {
    return fmt::format("the value has {} columns; {} heads of {} need {}", node_.shape.cols,
                       a.heads, a.out_dim(), out_cols);
  }
  if (a.value_dim > 0 && node_.inputs[1] != node_.inputs[2]) {
    return "K and V are two nodes; with a value_dim values are parts of K";
  }
  if (a.value_dim > 0 && count == 9) {
    return "K is float8_e4m3; with a value_dim it must be floating point";
  }
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  const bool codes = In(1).type == DataType::kFloat8_e4m3 && In(2).type == In(1).type;
  for (std::size_t i = 1; i < 3 && !codes; ++i) {
    if (auto r = InputIsFloat(i); !r.empty()) return r;
  }
  if (codes != (count == 9)) {
    return fmt::format(
        "K and V are {} and it has {} inputs; caches of float8_e4m3 go with nine, "
        "the last two their scales",
        ToString(In(1).type), count);
  }
  if (auto r = InputIs(0, {tokens, q_cols}, "Q"); !r.empty()) return r;
  const bool paged = count >= 7;
  const std::int64_t key_rows = paged ? In(1).shape.rows : tokens;
  if (auto r = InputIs(1, {key_rows, kv_cols}, "K"); !r.empty()) return r;
  if (auto r = InputIs(2, {key_rows, kv_cols}, "V"); !r.empty()) return r;
  if (In(1).type != In(2).type) return "K and V have different types";
  if (count == 3) return {};
  if (In(3).shape.rows < 2) return "q_starts needs a row for each sequence and one more";
  if (auto r = Indices(3, {In(3).shape.rows, 1}, "q_starts"); !r.empty()) return r;
  if (!paged) return {};
  const std::int64_t sequences = In(3).shape.rows - 1;
  if (auto r = Indices(4, {tokens, 1}, "positions"); !r.empty()) return r;
  if (auto r = Indices(5, {sequences, 1}, "lengths"); !r.empty()) return r;
  if (auto r = Indices(6, {sequences, In(6).shape.cols}, "block_table"); !r.empty()) return r;
  if (a.block_size < 1 || key_rows % a.block_size != 0) {
    return fmt::format("block_size {} does not divide the cache's {} rows", a.block_size, key_rows);
  }
  for (std::size_t i = 7; i < count; ++i) {
    if (auto r = CacheScales(i, a.kv_heads); !r.empty()) return r;
  }
  return {};
}

// Input `i`: the scales of the heads of a cache.
std::string NodeRules::CacheScales(std::size_t i, std::int64_t heads) const {
  if (In(i).type != DataType::kFloat32) {
    return fmt::format("input {} (scales of a cache) is {}; it must be float32", i,
                       ToString(In(i).type));
  }
  return InputIs(i, {1, heads}, "scales of a cache");
}

std::string NodeRules::Embedding() const {
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = Indices(0, {node_.shape.rows, 1}, "ids"); !r.empty()) return r;
  const Weight& w = params_.weight;
  if (const RankParts& parts = params_.parts; parts.present()) {
    if (auto r = Parts(); !r.empty()) return r;
    if (parts.size_of(parts.rank) != w.rows) {
      return fmt::format("the rank's part has {} rows, the weight {}", parts.size_of(parts.rank),
                         w.rows);
    }
  }
  if (IsCode(w.type) && w.order_ptr == 0) {
    return WhyNotWeight("the weight", w, w.rows, node_.shape.cols, OpParams{});
  }
  if (!w.present() || !IsFloat(w.type) || w.quant != QuantDesc{}) {
    return fmt::format("the weight is {}; it must be float32, float16, bfloat16, or codes in order",
                       ToString(w.type));
  }
  if (w.cols != node_.shape.cols || w.rows < 1) {
    return fmt::format("the weight is [{}, {}]; it must have {} columns", w.rows, w.cols,
                       node_.shape.cols);
  }
  return WhyNotPlaced("the weight", w);
}

std::string NodeRules::KvWrite() const {
  const bool codes = node_.type == DataType::kFloat8_e4m3;
  if (auto r = CountIs(codes ? 4 : 3); !r.empty()) return r;
  if (codes) {
    const std::int64_t heads = In(3).shape.cols;
    if (heads < 1 || node_.shape.cols % heads != 0) {
      return fmt::format("{} scales do not divide the {} columns", heads, node_.shape.cols);
    }
    if (auto r = CacheScales(3, heads); !r.empty()) return r;
  } else if (auto r = IsFloatValue(); !r.empty()) {
    return r;
  }
  if (auto r = InputIs(0, node_.shape, "the cache"); !r.empty()) return r;
  if (In(0).type != node_.type) return "cache and value have different types";
  if (In(0).op != TensorOp::kNone && In(0).op != TensorOp::kKvWrite) {
    return "the cache must be a leaf, or what another kv_write left";
  }
  if (node_.data_ptr != 0) return "it changes its cache in place; leave data_ptr 0";
  if (auto r = InputIsFloat(1); !r.empty()) return r;
  const std::int64_t rows = In(1).shape.rows;
  if (auto r = InputIs(1, {rows, node_.shape.cols}, "the rows"); !r.empty()) return r;
  return Indices(2, {rows, 1}, "slots");
}

std::string NodeRules::GatherRows() const {
  if (In(0).type != node_.type) return "input and value have different types";
  if (auto r = IsFloatValue(); !r.empty()) return r;
  if (auto r = InputIs(0, {In(0).shape.rows, node_.shape.cols}, "X"); !r.empty()) return r;
  return Indices(1, {node_.shape.rows, 1}, "indices");
}

std::string NodeRules::ArgMax() const {
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (node_.type != DataType::kInt32) return "the value must be int32";
  if (node_.shape.cols != 1) return "the value must have one column";
  return InputIs(0, {node_.shape.rows, In(0).shape.cols}, "X");
}

std::string NodeRules::Advance() const {
  const bool two = node_.inputs.size() == 10;  // tables
  if (auto r = CountIs(two ? 10 : 8); !r.empty()) return r;
  if (node_.type != DataType::kInt32) return "the value must be int32";
  if (node_.data_ptr != 0) return "it changes its log in place; leave data_ptr 0";
  if (auto r = Indices(0, node_.shape, "log"); !r.empty()) return r;
  const std::int64_t sequences = node_.shape.cols;
  if (auto r = Indices(1, {sequences, 1}, "tokens"); !r.empty()) return r;
  if (auto r = InputIsFloat(2); !r.empty()) return r;
  if (auto r = InputIs(2, {sequences, In(2).shape.cols}, "logits"); !r.empty()) return r;
  if (params_.parts.present()) {
    if (auto r = Parts(); !r.empty()) return r;
    if (In(1).op != TensorOp::kAllArgMax) return "with parts, tokens must be an all_argmax's";
  }
  const char* const names[] = {"ids", "positions", "slots", "lengths"};
  for (std::size_t i = 3; i < 7; ++i) {
    if (auto r = Indices(i, {sequences, 1}, names[i - 3]); !r.empty()) return r;
  }
  for (const std::size_t i : {0, 3, 4, 5, 6}) {
    if (In(i).op == TensorOp::kNone) continue;
    return fmt::format("input {} must be a leaf: it is changed in place", i);
  }
  if (auto r = Indices(7, {sequences, In(7).shape.cols}, "block_table"); !r.empty()) return r;
  if (two) {
    if (auto r = Indices(8, {sequences, 1}, "slots"); !r.empty()) return r;
    if (In(8).op != TensorOp::kNone) return "input 8 must be a leaf: it is changed in place";
    if (auto r = Indices(9, {sequences, In(9).shape.cols}, "block_table"); !r.empty()) return r;
  }
  if (params_.attention.block_size >= 1) return {};
  return fmt::format("attention.block_size is {}; it must be 1 or more",
                     params_.attention.block_size);
}

std::string NodeRules::Sample() const {
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (node_.type != DataType::kInt32) return "the value must be int32";
  if (node_.shape.cols != 1) return "the value must have one column";
  const std::int64_t rows = node_.shape.rows;
  if (auto r = InputIs(0, {rows, In(0).shape.cols}, "X"); !r.empty()) return r;
  constexpr std::int64_t kWords = std::tuple_size_v<SamplingRow>;
  if (auto r = Indices(1, {rows, kWords}, "options"); !r.empty()) return r;
  return Indices(2, {rows, 1}, "draws");
}

std::string NodeRules::Quantize() const {
  if (auto r = InputIsFloat(0); !r.empty()) return r;
  if (node_.type != DataType::kFloat8_e4m3) return "the value must be float8_e4m3";
  if (auto r = InputIs(0, node_.shape, "X"); !r.empty()) return r;
  if (id_ + 1 == graph_.size() || graph_.node(id_ + 1).op != TensorOp::kScales) {
    return "its scales must come right behind it; use add_quantize";
  }
  return CheckGroups();
}

std::string NodeRules::Scales() const {
  if (node_.inputs[0] != id_ - 1 || In(0).op != TensorOp::kQuantize) {
    return "its input must be the quantize right before it; use add_quantize";
  }
  if (node_.type != DataType::kFloat32) return "the value must be float32";
  if (params_.quant_a != In(0).params.quant_a) return "quant_a differs from its quantize's";
  if (auto r = CheckGroups(); !r.empty()) return r;
  const Shape shape{In(0).shape.rows, InputScalesOf(params_.quant_a, In(0).shape.cols)};
  if (node_.shape == shape) return {};
  return fmt::format("the shape is [{}, {}]; the scales of these codes are [{}, {}]",
                     node_.shape.rows, node_.shape.cols, shape.rows, shape.cols);
}

Status ComputeGraph::Verify() const {
  for (int id = 0; id < size(); ++id) {
    if (const std::string reason = NodeRules(*this, id).Check(); !reason.empty()) {
      return Refused(*this, id, reason);
    }
  }
  const Schedule schedule(*this);
  const Liveness liveness(*this, schedule);
  for (int id = 0; id < size(); ++id) {
    if (const std::string reason = liveness.OverwriteBy(id); !reason.empty()) {
      return Refused(*this, id, reason);
    }
  }
  return {};
}

}  // namespace culet
