// ComputeGraph: a decoder as a list of nodes that does not know its kernels; the plan of its memory
// and its execution through a KernelDispatch. docs/graph.md explains and shows how to write one's
// own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "culet/fusion.h"
#include "culet/status.h"
#include "culet/tensor.h"
#include "culet/types.h"

namespace culet {

class KernelDispatch;
class RecordedLaunches;
struct NodeLaunch;

/// What a Quantize makes.
struct QuantizedNodes {
  int codes = -1;
  int scales = -1;
};

/// What a Route makes.
struct RouteNodes {
  int shares = -1;
  int routes = -1;
};

/// Nodes in the order in which they run. Every value is written once; a node reads nodes that were
/// added before it. Shapes are fixed: a graph serves one number of tokens and sequences, while
/// positions, lengths, slots and block tables are leaves that lie on the device and may change
/// between two launches.
///
/// Inputs and attributes of each operation (T tokens, S sequences):
///
///   op         | inputs                                     | reads of params
///   MulMat     | X (T, k), or the codes and scales that a   | weight (n, k), bias (1, n), quant_a,
///              |   Quantize made of it                      |   scalar
///   Add, Mul   | X, Y of this shape                         |
///   Silu       | X of this shape                            |
///   SwiGlu     | gate, up of this shape                     |
///   GeGlu      | gate, up of this shape                     |
///   ClampedSwiGlu | gate, up of this shape                  | scalar: the limit; slope
///   Scale      | X of this shape                            | scalar
///   SoftCap    | X of this shape                            | scalar, above 0
///   RmsNorm    | X                                          | gamma (1, w), w divides cols;
///              |                                            |   scalar, head_dim
///   LayerNorm  | X                                          | gamma (1, cols); scalar
///   PositionScale | X, positions (T, 1)                     | scalar, int_param,
///              |                                           |   rope.original_context
///   HeadMulMat | X (T, heads * head_dim)                    | weight (heads * n, k), head_dim
///   HeadSlice  | X (T, heads * head_dim)                    | head_dim, int_param
///   SigmoidGate | X, Y of this shape                        |
///   CausalConv | X (T, key_heads * group), states (R,       | weight (qkv_cols, taps), delta
///              |   (taps - 1) * qkv_cols), state_rows (S, 1),|
///              |   q_starts (S + 1, 1), positions (T, 1)    |
///   GatedDelta | X (T, qkv_cols), gates (T, 2 * value_heads), | gamma, bias (1, value_heads),
///              |   states (R, state_cols), state_rows,      |   delta, scalar
///              |   q_starts, positions                      |
///   Rope       | X (T, heads * head_dim), positions (T, 1)  | rope, head_dim
///   KvWrite    | cache (slots, w), rows (T, w), slots (T, 1), | int_param
///              |   of a cache of E4M3 scales (1, heads)     |
///   Attention  | Q (T, heads * head_dim), K, V, then either | attention, sinks, int_param
///              | nothing: K, V (T, kv_heads * head_dim), one sequence
///              | q_starts (S + 1, 1): the rows of sequence s are q_starts[s] to q_starts[s + 1]
///              | q_starts, positions (T, 1), lengths (S, 1), block_table (S, blocks): K and V are
///              |   caches; key j of sequence s lies in row
///              |   block_table[s, j / block_size] * block_size + j % block_size; j < lengths[s]
///              | the same and, of caches of E4M3, the scales of K and of V (1, kv_heads)
///   Route      | logits (T, E); this node is (T, active)    | routing, bias (1, E)
///   Routes     | shares (T, active): the Route right before | routing
///              |   it; this node is kInt32                  |
///   ExpertMulMat | X (T, k) or (T * active, k), or the codes | experts, quant_a,
///              |   and scales that a Quantize made of it;   | routing.active, parts
///              |   routes; maybe shares                     |
///   Combine    | X (T * active, n), routes; maybe shares    | parts
///   AllReduce  | X of this shape                            | int_param: the number of ranks
///   AllGather  | X (T, the rank's columns)                  | parts
///   AllArgMax  | X (T, the rank's columns), its ArgMax;     | parts
///              |   this node is (T, 1) kInt32               |
///   Embedding  | ids (T, 1)                                 | weight (vocabulary, hidden); parts
///   GatherRows | X, indices (rows of this node, 1)          |
///   ArgMax     | X; this node is (rows, 1) kInt32           |
///   Sample     | X, options (rows, 8), draws (rows, 1); this | int_param
///              |   node is (rows, 1) kInt32                 |
///   Copy, Cast | X of this shape; of this type, of any type |
///   Quantize   | X of this shape; this node is kFloat8_e4m3 | quant_a, scalar
///   Scales     | codes (T, k): the Quantize right before it | quant_a
///   Advance    | log (R, S), tokens (S, 1), logits (S, vocabulary), ids, positions, slots, lengths
///              | (S, 1), block_table (S, blocks)       | attention.block_size, parts
///              | the same and other slots, and their block_table
///
/// Advance ends a step that gave each of S sequences one token, and makes the next step's inputs on
/// the device: the token becomes the id, positions and lengths grow by one, slots follow the block
/// table and are negative if it has no block, and other slots theirs. These and the log are leaves,
/// changed in place. The value is the log; its row `position mod R` gets the token after that
/// position, -1 if its logit is NaN. Sequences with a negative slot (padding) stay unchanged. With
/// parts the logits are those of one rank, which are not looked at: tokens are an AllArgMax's.
///
/// AllArgMax is, on all ranks, the index in all columns of the largest element, the first of
/// equals, or -1 where an element is NaN.
///
/// With parts an ExpertMulMat has the weights of the rank's experts, and makes their rows alone;
/// others are of no value, and Combine leaves them out.
///
/// HeadMulMat multiplies the first k elements of each head of X with rows [head * n, head * n + n)
/// of the weight, which is float32, float16 or bfloat16. Its value is (T, heads * (n + head_dim -
/// k)): of each head the n sums, then what lies behind its first k elements, as it is.
///
/// HeadSlice takes of each head the elements from int_param on, as many as its columns leave a
/// head.
///
/// CausalConv and GatedDelta keep a state of each sequence, float32 rows of a leaf that they change
/// in place: sequence s has row state_rows[s]; without one, which a number outside [0, R) says, it
/// begins at zero, and nothing is stored. So does a sequence whose first row has position 0. Rows
/// follow each other in their sequence, which q_starts gives as for Attention.
///
/// A row of CausalConv's X has for each key head its query, its key, and of its value_heads /
/// key_heads value heads the values, then as many elements that are not read. A row of its value
/// has the queries of all heads, then all keys, then all values. Column c is the sum of
/// weight[c, i] times the input taps - 1 - i rows before, made its silu. The state has the last
/// taps - 1 inputs, the oldest first.
///
/// GatedDelta: a row of gates has for each key head the b of its value heads, then the a. With k
/// and q divided by sqrt(sum of squares + scalar), and q by sqrt(key_dim), too, a head's state S
/// becomes exp(-exp(gamma) * softplus(a + bias)) * S, then S + k^T (v - k S) / (1 + exp(-b)), and
/// the result is q S.
///
/// Attention with a value_dim has one input for K and V, and its value is (T, heads * value_dim).
/// RmsNorm with a head_dim above w, which divides the columns, norms the first w elements of each
/// head_dim, and leaves the others as they are.
///
/// A cache of kFloat8_e4m3 holds codes, each times the float32 scale of its head, a positive
/// number. KvWrite stores the code nearest to the float32 quotient of value and scale, an even one
/// of two; a quotient beyond 448 is stored as 448, with its sign, and a NaN or an infinity as NaN.
///
/// Sample draws a token of each row by its options (PackSampling, culet/sampling.h), its draw being
/// number draws[row] + int_param. A row of temperature 0, and one whose largest logit is NaN or
/// infinite, gives what ArgMax gives.
///
/// A Scales node (T, ceil(k / group)) float32 is the second value of its Quantize, made by the same
/// launch: it has none of its own. add_quantize adds both.
///
/// A Route of T tokens over E experts makes their shares and, as a second value that Routes stands
/// for, their routes (1, E + 1 + 2 * T * active): E + 1 numbers of which the e-th says where expert
/// e's routes begin in what follows; the routes in the order of their expert, and within one
/// ascending; for each route its place in that order. Route `token * active + i` is the token's
/// i-th choice, whose share is in column i. A NaN among a token's scores makes its shares NaN; it
/// then goes to the first experts. add_route adds both.
///
/// ExpertMulMat multiplies rows in the order of the routes: (T * active, n). With routing.active
/// above 0 X has a row a token, and is gathered; with 0 its rows are in that order already. Shares
/// multiply the rows, as if they had multiplied X. E4M3 weights take codes and scales. Combine adds
/// a token's rows, each times its share, in the order of its choices.
///
/// AllReduce and AllGather are float32. They meet those of the other ranks: all ranks launch the
/// same ones in the same order. A sum is added in the order of the ranks, so all have the same
/// bits. One rank's is X. An Embedding with parts has the weight's rows of its rank; ids of another
/// rank's rows give zeros.
///
/// ClampedSwiGlu: with g = min(X, limit) and u = Y between -limit and limit,
/// g / (1 + exp(-slope g)) * (u + 1).
///
/// PositionScale: X * (1 + scalar * ln(1 + floor((position + int_param) / original_context))).
///
/// Ids, positions, slots, starts, lengths, tables and indices are kInt32. What lies outside its
/// range on the device never leads to a wild access: such an id, index or block makes its row NaN,
/// such a slot (a negative one on purpose, for padding) is not written.
class ComputeGraph {
 public:
  /// Adds an input that lies in memory of the caller, at `data_ptr`, for as long as the graph runs.
  int add_leaf(DevicePtr data_ptr, Shape shape, DataType type = DataType::kFloat32,
               std::string name = {});

  /// Adds a value. `data_ptr` 0 leaves its place to the memory plan. Returns its number; whether
  /// the node makes sense is Verify's matter.
  int add_op(TensorOp op, DevicePtr data_ptr, Shape shape, std::vector<int> inputs,
             OpParams params = {}, std::string name = {}, DataType type = DataType::kFloat32);

  /// Adds the Quantize of a value and its Scales; `scale` as OpParams::scalar. Requires: a node
  /// that exists.
  QuantizedNodes add_quantize(int x, const QuantDesc& quant, const std::string& name = {},
                              float scale = 0);

  /// Adds the Route of logits and its Routes; `bias` as OpParams::bias. Requires: a node that
  /// exists.
  RouteNodes add_route(int logits, const RoutingParams& routing, const Weight& bias = {},
                       const std::string& name = {});

  /// Keeps the value readable after the launch: the memory plan gives its place to nobody else.
  /// Requires: a node that exists.
  void mark_output(int id);

  const std::vector<TensorNode>& nodes() const noexcept { return nodes_; }
  /// Requires: 0 <= id < size().
  const TensorNode& node(int id) const noexcept { return nodes_[static_cast<std::size_t>(id)]; }
  int size() const noexcept { return static_cast<int>(nodes_.size()); }
  bool is_output(int id) const noexcept { return outputs_[static_cast<std::size_t>(id)]; }
  int n_leafs() const noexcept { return n_leafs_; }
  int n_ops() const noexcept { return size() - n_leafs_; }

  /// Whether every node can be computed: inputs exist and come first, shapes and types fit, weights
  /// are there, nothing is overwritten that is still read.
  /// Errors: INVALID_ARGUMENT with node, operation, shapes and reason.
  Status Verify() const;

 private:
  std::vector<TensorNode> nodes_;
  std::vector<bool> outputs_;
  int n_leafs_ = 0;
};

/// "node 7 (layers.0.q) mul_mat [40, 256] of [40, 256], weight [256, 256] bfloat16".
std::string DescribeNode(const ComputeGraph& graph, int id);

/// What a node must move and compute at least.
struct NodeCost {
  double bytes =
      0;  ///< inputs, weights and outputs once; rows of caches that lengths hide count whole
  double operations = 0;  ///< multiplies and adds of products and attention; 0 for the rest
};
NodeCost CostOf(const ComputeGraph& graph, int id) noexcept;

/// Where the value of a node lies.
struct Placement {
  enum class Kind : std::uint8_t {
    kExternal,  ///< at the node's own data_ptr
    kArena,     ///< at `offset` of the arena
    kAlias,     ///< in the place of node `alias_of`
    kInside,    ///< nowhere: only the fusion that makes it reads it
  } kind = Kind::kExternal;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  int alias_of = -1;
  int first = 0;  ///< the node that writes it, or in whose place its fusion does
  int last = 0;   ///< the last node that reads it, through aliases too; size() for an output
};

/// The places of all values, known before anything runs.
struct MemoryPlan {
  std::vector<Placement> placements;  ///< one a node
  std::int64_t arena_bytes = 0;
  std::int64_t unshared_bytes = 0;  ///< what the values would take without reuse
  /// A line for each node: place, bytes, life.
  std::string ToString(const ComputeGraph& graph) const;
};

/// Places values so that two share memory only when one is dead before the other is written.
/// Requires: fusions as ChooseFusions returns them. Errors: as ComputeGraph::Verify.
Result<MemoryPlan> PlanMemory(const ComputeGraph& graph, std::span<const Fusion> fusions = {});

/// Called for each node or fusion instead of `dispatch.launch(launch)`, which it must call itself:
/// to time it, or to compare it with another dispatch. An exception is an INTERNAL error.
using NodeHook = std::function<Status(KernelDispatch& dispatch, const NodeLaunch& launch)>;

/// Called before work on a node begins; its error ends the current work. For interruptions and
/// deadlines. May be null. An exception is an INTERNAL error.
using NodeGate = std::function<Status()>;

/// A graph bound to a dispatch: verified, planned, every node supported and prepared, its memory
/// allocated. The dispatch and all weights must outlive it. One launch at a time.
class GraphExecutor {
 public:
  /// `gate` is called before each node is prepared (or tuned). `fusions` selects among those that
  /// the dispatch offers. Errors: as Verify and ChooseFusions; INVALID_ARGUMENT for a fusion that
  /// the dispatch does not know; UNSUPPORTED with node, operation, shapes and the dispatch's
  /// reason; what `prepare`, the dispatch's memory and `gate` return.
  static Result<GraphExecutor> Create(ComputeGraph graph, KernelDispatch& dispatch,
                                      const NodeGate& gate = nullptr,
                                      const FusionChoice& fusions = {});
  ~GraphExecutor();
  GraphExecutor(GraphExecutor&&) noexcept;
  GraphExecutor& operator=(GraphExecutor&&) noexcept;

  /// Launches all nodes and fusions in order on `stream`; synchronises and copies nothing. The
  /// second launch records them if the dispatch can, and later ones replay the recording with the
  /// same bits; if recording fails, launches stay one by one. `gate` is called before each launch,
  /// of a recording or a node. Errors: what `gate` returns; the first that a node returns, with
  /// node, operation and shapes; what a replay returns.
  Status Launch(cudaStream_t stream = nullptr, const NodeGate& gate = nullptr);
  /// The same through `hook`, always node by node.
  Status Launch(const NodeHook& hook, cudaStream_t stream = nullptr);

  /// Records the first `launches` launches, `times` times one after the other, for measurements:
  /// what a recording takes longer than a shorter one is a launch's time among the others. What the
  /// launches change must bear repeating, which Advance does not. Errors: INVALID_ARGUMENT for
  /// numbers below 1 or more launches than there are; as KernelDispatch::record.
  Result<std::unique_ptr<RecordedLaunches>> RecordFirst(int launches, int times) const;
  /// The nodes that are launched, in order; of a fusion its last.
  std::vector<int> launched() const;
  KernelDispatch& dispatch() const noexcept;

  /// Whether launches may be recorded, which they are by default.
  void SetRecording(bool on) noexcept;
  /// Whether there is a recording, which Launch replays.
  bool replays() const noexcept;
  /// Why there is none: what recording failed of, or that nothing was recorded yet; empty when
  /// there is one.
  const std::string& why_not_recorded() const noexcept;

  /// Where a value lies; 0 inside a fusion. Requires: a node that exists.
  DevicePtr address(int id) const noexcept;
  const ComputeGraph& graph() const noexcept;
  const MemoryPlan& plan() const noexcept;
  /// Calls of dispatch methods that one Launch makes.
  int n_launches() const noexcept;
  /// Bytes of the scratch memory that the nodes share.
  std::size_t workspace_bytes() const noexcept;
  /// What runs a node: a kernel's id where the dispatch has one, else the operation's name or the
  /// fusion's.
  std::string kernel_of(int id) const;
  /// The fusions that are used.
  const std::vector<Fusion>& fusions() const noexcept;
  /// The one that computes the node; null for a node by itself.
  const Fusion* fusion_of(int id) const noexcept;
  /// What the launch that computes the node moves and computes.
  NodeCost cost_of(int id) const noexcept;

 private:
  struct Impl;
  explicit GraphExecutor(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What execute_graph did.
struct GraphExecResult {
  int n_launches = 0;     ///< calls of dispatch methods
  NodeCost cost;          ///< of all nodes
  double elapsed_us = 0;  ///< from the first launch until everything was complete
};

/// Creates an executor, launches it once and waits for the end; for values that are needed
/// afterwards give their nodes a data_ptr. Callers who repeat keep a GraphExecutor.
/// Errors: as GraphExecutor::Create and Launch.
Result<GraphExecResult> execute_graph(const ComputeGraph& graph, KernelDispatch& dispatch,
                                      cudaStream_t stream = nullptr);

}  // namespace culet
