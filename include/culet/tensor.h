// The nodes of a compute graph: operations, shapes, typed weights, attributes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "culet/types.h"

namespace culet {

/// An address on the device that a KernelDispatch runs on. Not a pointer, so that nobody reads it
/// on the host by accident.
using DevicePtr = std::uint64_t;

inline DevicePtr ToDevicePtr(const void* pointer) noexcept {
  return static_cast<DevicePtr>(reinterpret_cast<std::uintptr_t>(pointer));
}
/// For code that runs on the device, or hands the address to what does.
template <class T>
T* FromDevicePtr(DevicePtr pointer) noexcept {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(pointer));
}

/// What a node computes. X, Y: the first and second input; shapes are (rows, cols).
enum class TensorOp : std::uint8_t {
  kNone = 0,              ///< a leaf: memory of the caller, an input or a KV cache
  kMulMat,                ///< Y = X W^T + bias
  kAdd,                   ///< X + Y, element by element
  kRmsNorm,               ///< X / sqrt(mean(X^2) + epsilon) * gamma, over groups of gamma's length
  kRope,                  ///< rotary embedding of every head of a row, in place
  kAttention,             ///< softmax(scale Q K^T) V
  kMul,                   ///< X * Y, element by element
  kSilu,                  ///< X / (1 + exp(-X))
  kCopy,                  ///< X
  kCast,                  ///< X, rounded to this node's type
  kEmbedding,             ///< row ids[i] of the weight
  kSwiGlu,                ///< silu(X) * Y
  kKvWrite,               ///< a KV cache with new rows in it, in place
  kExpertMulMat,          ///< rows of X times the weights of the experts that they go to
  kGatherRows,            ///< row indices[i] of X
  kArgMax,                ///< index of the largest element of each row, the first of equals
  kQuantize,              ///< E4M3 codes of X, quantised as quant_a says
  kScales,                ///< the scales beside the codes X: what X's kQuantize makes second
  kAdvance,               ///< the inputs of a decode step become those of the next, in place
  kSample,                ///< a token of each row of logits, drawn by its probability
  kScale,                 ///< scalar * X
  kLayerNorm,             ///< (X - mean(X)) / sqrt(variance(X) + epsilon) * gamma, over rows
  kGeGlu,                 ///< gelu(X) * Y, the gelu that is made of tanh
  kSoftCap,               ///< scalar * tanh(X / scalar)
  kPositionScale,         ///< X, grown by the logarithm of the position; see graph.h
  kClampedSwiGlu,         ///< with limits: X / (1 + exp(-slope * X)) * (Y + 1)
  kRoute,                 ///< the shares of the experts that logits X choose
  kRoutes,                ///< the routes behind the shares X: what X's kRoute makes second
  kCombine,               ///< the sum of each token's rows of X, times their shares
  kHeadMulMat,            ///< of each head X W^T with its own W; see graph.h
  kHeadSlice,             ///< of each head of X some elements, one behind the other
  kSigmoidGate,           ///< X / (1 + exp(-Y)), element by element
  kCausalConv,            ///< silu of a causal convolution of each column; see graph.h
  kGatedDelta,            ///< linear attention by the gated delta rule; see graph.h
  kAllReduce,             ///< the sum of all ranks' X
  kAllGather,             ///< the columns of all ranks' X, side by side
  kAllArgMax,             ///< ArgMax of the columns of all ranks' X; see graph.h
  kSoftMax = kAttention,  ///< the name that the seed gives to attention
};
/// "mul_mat", "rms_norm", ...
const char* ToString(TensorOp op) noexcept;

/// What makes the second value of such a node, right behind it; kNone: there is one value.
constexpr TensorOp SecondOf(TensorOp op) noexcept {
  return op == TensorOp::kQuantize ? TensorOp::kScales
         : op == TensorOp::kRoute  ? TensorOp::kRoutes
                                   : TensorOp::kNone;
}
/// Whether the node has the second value of the one before it.
constexpr bool IsSecond(TensorOp op) noexcept {
  return op == TensorOp::kScales || op == TensorOp::kRoutes;
}

/// Rows and columns of a tensor; rows are contiguous.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
};

/// A constant matrix (rows, cols) with its type and, where it is quantised, its scales: never a
/// bare pointer. Row-major, tightly packed. A vector has one row.
struct Weight {
  std::string name;  ///< as in the checkpoint, for messages
  DevicePtr data_ptr = 0;
  DataType type = DataType::kNull;  ///< kNull: there is no such weight
  std::int64_t rows = 0;            ///< output features; vocabulary
  std::int64_t cols = 0;            ///< input features; hidden size
  /// What shares a scale. E4M3: kB or kRow; kUint4, kFloat4_e2m1 and kInt8: kK or
  /// kRow, a row being an output feature.
  QuantDesc quant;
  DevicePtr scales_ptr = 0;  ///< one a group of ScaleGroupOf(quant, rows, cols), row-major, packed
  DataType scales_type = DataType::kNull;
  DevicePtr zeros_ptr = 0;  ///< kUint4, perhaps kInt8: zero points, which lie as the scales do
  DataType zeros_type = DataType::kNull;
  DevicePtr order_ptr = 0;  ///< of the same: column i meets element order[i] of an input; 0: i
  QuantDesc input_quant;    ///< E4M3: how an input is quantised: kK, kRow, or kNone: not at all
  float input_scale = 0;    ///< E4M3 with kRow: the scale of every row; 0: by the row's amax

  bool present() const noexcept { return type != DataType::kNull; }
};

/// Bytes of elements and scales; 0 for an absent weight.
double BytesOf(const Weight& weight) noexcept;

/// Which elements of a head rope rotates together.
enum class RopeLayout : std::uint8_t {
  kNeox = 0,  ///< i and i + dims / 2
  kNorm = 1,  ///< 2 i and 2 i + 1
};

/// How a model stretches its rotary frequencies beyond the context that it was trained on.
enum class RopeScaling : std::uint8_t { kNone = 0, kLinear, kLlama3, kYarn, kLongRope };
/// "default", "linear", "llama3", "yarn", "longrope".
const char* ToString(RopeScaling) noexcept;

/// Rotary embedding. Frequency i of dims / 2 is theta^(-2 i / dims), changed by the scaling.
struct RopeParams {
  RopeLayout layout = RopeLayout::kNeox;
  RopeScaling scaling = RopeScaling::kNone;
  int dims = 0;   ///< elements of a head that turn; even, at most the head size
  int first = 0;  ///< elements of a head before them
  double theta = 10000;
  double factor = 1;            ///< linear, llama3, yarn
  double low_freq_factor = 1;   ///< llama3
  double high_freq_factor = 4;  ///< llama3
  double original_context = 0;  ///< llama3, yarn, longrope: positions of the original training
  double beta_fast = 32;        ///< yarn
  double beta_slow = 1;         ///< yarn
  bool truncate = true;         ///< yarn: whole numbers as ends of the ramp
  double attention_factor = 1;  ///< what sine and cosine are multiplied with
  /// longrope: what each of the dims / 2 frequencies is divided by, in sequences of up to
  /// original_context positions and in longer ones.
  std::vector<double> short_divisors, long_divisors;
  bool is_long = false;  ///< longrope: whether the long ones count
  friend bool operator==(const RopeParams&, const RopeParams&) = default;
};

/// The dims / 2 frequencies, in radians a position.
std::vector<double> RopeFrequencies(const RopeParams& params);

/// Grouped-query attention: query head h reads key and value head h / (heads / kv_heads).
struct AttentionParams {
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  /// Above 0: a head's value is the first `value_dim` elements of its key, and V is the node K.
  /// Multi-head latent attention (MLA): one head of keys, which are a latent and a part that turns.
  int value_dim = 0;
  float scale = 0;     ///< of the products of queries and keys; usually head_dim^-0.5
  float softcap = 0;   ///< scaled products s become softcap * tanh(s / softcap); 0: they stay
  bool causal = true;  ///< a query sees keys up to its own position
  int window = 0;      ///< and no more than this many, its own included; 0: no limit
  int chunk = 0;  ///< and none before the last multiple of this up to its position; 0: no limit
  int block_size =
      0;  ///< positions in a block of the paged cache; 0: K and V are this batch's rows
  /// A promise that lets a dispatch store a row's key and value and attend to them in one launch,
  /// and read older ones early: no sequence has more than one row, each row's slot is its
  /// position's place in the block table, and no row sees what another row of the batch stores. Of
  /// a row with a negative slot, padding, the result may differ.
  bool single_rows = false;

  /// Elements of a head of the result.
  constexpr int out_dim() const noexcept { return value_dim > 0 ? value_dim : head_dim; }
};

/// Linear attention by the gated delta rule: value head h has the query and the key of key head
/// h / (value_heads / key_heads), and a state (key_dim, value_dim).
struct GatedDeltaParams {
  int key_heads = 0;
  int value_heads = 0;
  int key_dim = 0;    ///< elements of a head of queries, and of keys
  int value_dim = 0;  ///< elements of a head of values
  friend constexpr bool operator==(const GatedDeltaParams&, const GatedDeltaParams&) = default;

  /// Elements of a row of queries, keys and values of all heads.
  constexpr std::int64_t qkv_cols() const noexcept {
    return 2 * std::int64_t{key_heads} * key_dim + out_cols();
  }
  /// Of a row of values, and of the result.
  constexpr std::int64_t out_cols() const noexcept { return std::int64_t{value_heads} * value_dim; }
  /// Of a sequence's state.
  constexpr std::int64_t state_cols() const noexcept { return out_cols() * key_dim; }
};

/// How a router's logits become the scores of experts.
enum class RouterScoring : std::uint8_t {
  kSoftmax = 0,      ///< over all experts
  kSigmoid,          ///< of each by itself
  kSoftmaxOfChosen,  ///< over those that the largest logits choose
};

/// What a group of experts is worth.
enum class GroupScore : std::uint8_t {
  kMaximum = 0,  ///< its best score
  kBestTwo,      ///< the sum of its two best
};

/// Which experts a token uses, and with which shares. Chosen are those of the largest scores, to
/// which a Route's bias is added for the choice alone; the first of equals. Scores and sums that
/// are compared are rounded to float32.
struct RoutingParams {
  int active = 0;  ///< experts that a token uses
  RouterScoring scoring = RouterScoring::kSoftmax;
  /// Shares are divided by their sum, or by `least_sum` where that is more.
  bool renormalize = false;
  float least_sum = 1e-20f;
  float scale = 1;  ///< of the shares, in the end
  /// Above 1: experts are in so many groups of one size, and only those of the `kept_groups` best
  /// groups are chosen.
  int groups = 1;
  int kept_groups = 1;
  GroupScore group_score = GroupScore::kMaximum;
  friend bool operator==(const RoutingParams&, const RoutingParams&) = default;
};

/// The weights of a product by routed experts, one an expert: all of one shape, type and format.
struct ExpertWeights {
  std::vector<Weight> weights;  ///< (n, k)
  std::vector<Weight> biases;   ///< (1, n); empty for none
};

/// How ranks divide rows or columns among themselves: rank r has [bounds[r], bounds[r + 1]).
struct RankParts {
  int rank = 0;                      ///< whose graph this is
  std::vector<std::int64_t> bounds;  ///< one more than there are ranks, from 0; empty: undivided

  bool present() const noexcept { return !bounds.empty(); }
  int ranks() const noexcept { return static_cast<int>(bounds.size()) - 1; }
  std::int64_t first() const noexcept { return bounds[static_cast<std::size_t>(rank)]; }
  std::int64_t all() const noexcept { return bounds.back(); }
  std::int64_t size_of(int r) const noexcept {
    return bounds[static_cast<std::size_t>(r) + 1] - bounds[static_cast<std::size_t>(r)];
  }
  friend bool operator==(const RankParts&, const RankParts&) = default;
};

/// Attributes of a node; each operation reads those that its comment in graph.h names.
struct OpParams {
  Weight weight;
  Weight gamma;
  Weight bias;
  /// RmsNorm, LayerNorm: epsilon; Scale, SoftCap, PositionScale; ClampedSwiGlu: the limit; with
  /// quant_a: a scale that is given, or 0.
  float scalar = 0;
  float slope = 0;              ///< ClampedSwiGlu
  std::uint32_t int_param = 0;  ///< Attention, KvWrite: the layer's number; others: see graph.h
  /// MulMat, ExpertMulMat: how the input is quantised before it meets an E4M3 weight, kNone for
  /// not at all; Quantize: how it quantises. kK, 128, or kRow, with FP32 scales of amax / 448
  /// (culet/quantize.h). kRow with a `scalar` above 0 has that scale in all rows; quotients beyond
  /// 448 become 448.
  QuantDesc quant_a;
  RopeParams rope;
  int head_dim = 0;  ///< Rope, HeadMulMat, HeadSlice: elements of a head; RmsNorm: see graph.h
  AttentionParams attention;
  /// Attention: (1, heads), or absent. A head's softmax has this logit, which no scale or cap
  /// changes, beside those of the keys; it has no value. A row without keys stays NaN.
  Weight sinks;
  GatedDeltaParams delta;  ///< CausalConv, GatedDelta
  RoutingParams routing;   ///< Route; of an ExpertMulMat `active`: see graph.h
  std::shared_ptr<const ExpertWeights> experts;
  /// AllGather, AllArgMax: of their columns; Embedding, Advance: of the vocabulary, or absent;
  /// ExpertMulMat, Combine: of the experts, or absent.
  RankParts parts;
};

/// The weights that a node may have by itself, experts apart; those that it has are present().
constexpr std::array<Weight OpParams::*, 4> kWeightsOfOp = {&OpParams::weight, &OpParams::gamma,
                                                            &OpParams::bias, &OpParams::sinks};

/// Elements of a group of an RmsNorm: gamma's, and those behind them that stay as they are.
constexpr std::int64_t NormGroupOf(const OpParams& params) noexcept {
  return params.head_dim > params.gamma.cols ? params.head_dim : params.gamma.cols;
}

/// One value of the graph and what makes it.
struct TensorNode {
  TensorOp op = TensorOp::kNone;
  DevicePtr data_ptr = 0;  ///< where the value lies; 0: the memory plan decides
  Shape shape;             ///< of the value
  DataType type = DataType::kFloat32;
  std::vector<int> inputs;  ///< nodes that this one reads; each was added earlier
  OpParams params;
  std::string name;  ///< for people: "layers.0.q"
};

/// Bytes of the node's value.
constexpr std::int64_t BytesOf(const TensorNode& node) noexcept {
  return node.shape.rows * node.shape.cols * static_cast<std::int64_t>(SizeOf(node.type));
}

}  // namespace culet
