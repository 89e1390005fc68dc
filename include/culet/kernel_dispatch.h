// KernelDispatch: what supplies the kernels of a graph. Users can implement their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "culet/device_memory.h"
#include "culet/fusion.h"
#include "culet/graph.h"
#include "culet/kernel.h"
#include "culet/status.h"
#include "culet/tensor.h"

namespace culet {

/// What a dispatch prepared for one node or fusion: plans, packed weights, tables. It lives as long
/// as its executor and may own device memory (DeviceBuffer).
class PreparedNode {
 public:
  virtual ~PreparedNode() = default;
  /// Bytes that the node's launches keep, also between launches: zero before the first, then as
  /// they leave them. For barriers that count themselves back to zero.
  virtual std::size_t state_bytes() const { return 0; }
  /// What will run, for profiles: "cpu_simd/skinny/m6n4".
  virtual std::string kernel() const = 0;
};

/// One launch of a node or of a fusion: everything that it may need.
struct NodeLaunch {
  const ComputeGraph* graph = nullptr;
  int id = -1;                         ///< the node; of a fusion the last one
  const Fusion* fusion = nullptr;      ///< null for a node by itself
  std::span<const DevicePtr> inputs;   ///< addresses of the node's inputs; of a fusion what it
                                       ///< reads from outside, once each
  std::span<const int> input_ids;      ///< their nodes
  std::span<const DevicePtr> outputs;  ///< addresses of the values that get memory
  std::span<const int> output_ids;     ///< their nodes, ascending
  DevicePtr output =
      0;  ///< where the value of `id` goes; for Rope and KvWrite, where it is changed
  PreparedNode* prepared = nullptr;  ///< what `prepare` or `prepare_fusion` returned
  DevicePtr workspace = 0;           ///< of workspace() bytes, aligned to 256, contents undefined
  std::size_t workspace_bytes = 0;
  DevicePtr state = 0;  ///< of prepared->state_bytes(), aligned to 256, of this launch alone
  cudaStream_t stream = nullptr;
  /// What the executor launches before and after it on the same stream; null at the ends. For
  /// kernels that begin before the one before has ended: the same in every launch of the graph,
  /// unless a hook is called, which may put work of its own between.
  const NodeLaunch* previous = nullptr;
  const NodeLaunch* next = nullptr;

  const TensorNode& node() const noexcept { return graph->node(id); }
  /// The node that makes input `index`.
  const TensorNode& input_node(int index) const noexcept {
    return graph->node(input_ids.empty() ? node().inputs[static_cast<std::size_t>(index)]
                                         : input_ids[static_cast<std::size_t>(index)]);
  }
  DevicePtr input(int index) const noexcept { return inputs[static_cast<std::size_t>(index)]; }
  /// Where the value of a node lies that this launch reads or makes; 0 when it has no memory.
  DevicePtr value(int node_id) const noexcept;
  /// "node 7 (layers.0.q) mul_mat ...", as DescribeNode or DescribeFusion.
  std::string Describe() const;
};

/// Launches that a dispatch recorded, to be repeated as one: a CUDA graph.
class RecordedLaunches {
 public:
  /// Replays under way go on to their end.
  virtual ~RecordedLaunches() = default;
  /// Launches everything once more on `stream`, in order, with the addresses that it was recorded
  /// with; allocates and waits for nothing.
  virtual Status Replay(cudaStream_t stream) = 0;
};

/// Makes launches on the stream that it is given.
using LaunchFunction = std::function<Status(cudaStream_t stream)>;

/// The kernels of a graph. An implementation has the eight methods of the seed; others are for
/// operations beyond them and refuse by default. All launches are on current().stream, may return
/// before they are complete, and may not allocate, synchronise or read device memory on the host.
/// What cannot be done is a Status, never a launch that does nothing.
///
/// A graph meets, in this order: `fusions` once, `supports`, `prepare` and `workspace` once for
/// each node, or `prepare_fusion` and `workspace_fusion` for each fusion that is used, then
/// `launch` any number of times. One graph at a time launches on a dispatch.
/// What these and the dispatch methods throw is an INTERNAL error that names the node; `memory` and
/// a DeviceMemory must not throw.
class KernelDispatch {
 public:
  virtual ~KernelDispatch() = default;

  // -- The seed's methods ------------------------------------------------------------------------

  /// output (m, n) = input (m, k) W^T + bias, both in node.params.
  virtual Status dispatch_mul_mat(const TensorNode& node, DevicePtr input_ptr, DevicePtr output_ptr,
                                  std::uint32_t m, std::uint32_t n, std::uint32_t k) = 0;
  /// Each of `m` groups of `hidden_dim` elements: x / sqrt(mean(x^2) + epsilon) * gamma. A norm of
  /// heads has the head size as hidden_dim and tokens times heads as m. With a node.params.head_dim
  /// above hidden_dim groups have that many elements, and the last ones stay as they are.
  virtual Status dispatch_rms_norm(const TensorNode& node, DevicePtr input_ptr,
                                   DevicePtr output_ptr, std::uint32_t hidden_dim, std::uint32_t m,
                                   float epsilon) = 0;
  /// output may be a or b.
  virtual Status dispatch_add(DevicePtr a_ptr, DevicePtr b_ptr, DevicePtr output_ptr,
                              std::size_t n_elements) = 0;
  /// In place on n_positions rows of num_heads heads. `positions`: kInt32, on the device.
  virtual Status dispatch_rope(const TensorNode& node, DevicePtr qk_ptr, DevicePtr positions,
                               std::size_t n_positions, std::uint32_t head_dim,
                               std::uint32_t num_heads) = 0;
  /// m rows of queries; k and v are caches or this batch's rows, as the node's inputs say.
  virtual Status dispatch_attention(const TensorNode& node, DevicePtr q_ptr, DevicePtr k_ptr,
                                    DevicePtr v_ptr, DevicePtr output_ptr, std::uint32_t m,
                                    std::size_t layer_idx) = 0;
  virtual Status dispatch_copy(DevicePtr src_ptr, DevicePtr dst_ptr, std::size_t size_bytes) = 0;
  /// The plain product of elements; SwiGLU is dispatch_swiglu. output may be a or b.
  virtual Status dispatch_mul(DevicePtr a_ptr, DevicePtr b_ptr, DevicePtr output_ptr,
                              std::size_t n_elements) = 0;
  /// output may be the input.
  virtual Status dispatch_silu(DevicePtr input_ptr, DevicePtr output_ptr,
                               std::size_t n_elements) = 0;

  // -- Beyond the seed; UNSUPPORTED unless overridden --------------------------------------------

  /// silu(gate) * up; output may be either.
  virtual Status dispatch_swiglu(DevicePtr gate_ptr, DevicePtr up_ptr, DevicePtr output_ptr,
                                 std::size_t n_elements);
  /// output (m, hidden): rows ids[i] of node.params.weight.
  virtual Status dispatch_embedding(const TensorNode& node, DevicePtr ids_ptr, DevicePtr output_ptr,
                                    std::uint32_t m);
  /// Row i of m goes to row slots[i] of the cache.
  virtual Status dispatch_kv_write(const TensorNode& node, DevicePtr rows_ptr, DevicePtr slots_ptr,
                                   DevicePtr cache_ptr, std::uint32_t m);
  /// Row i of m is row indices[i] of the input.
  virtual Status dispatch_gather_rows(const TensorNode& node, DevicePtr input_ptr,
                                      DevicePtr indices_ptr, DevicePtr output_ptr, std::uint32_t m);
  /// From the input's type to node.type.
  virtual Status dispatch_cast(const TensorNode& node, DevicePtr input_ptr, DevicePtr output_ptr,
                               std::size_t n_elements);
  /// output (m) kInt32: the index of the largest of n; a row with a NaN gives the first NaN's.
  virtual Status dispatch_argmax(const TensorNode& node, DevicePtr input_ptr, DevicePtr output_ptr,
                                 std::uint32_t m, std::uint32_t n);

  /// output (m) kInt32: a token of each of m rows of n logits, as SampleToken draws it. options: m
  /// SamplingRows (culet/sampling.h); the row's draw is number draws[row] + node.params.int_param.
  virtual Status dispatch_sample(const TensorNode& node, DevicePtr logits_ptr,
                                 DevicePtr options_ptr, DevicePtr draws_ptr, DevicePtr output_ptr,
                                 std::uint32_t m, std::uint32_t n);

  /// codes (m, k) E4M3 and scales (m, ceil(k / node.params.quant_a.group_size)) float32 of the
  /// input (m, k), as QuantizeGroups makes them. The products behind it have both as inputs:
  /// input_ptr of dispatch_mul_mat is the codes, current().input(1) the scales.
  virtual Status dispatch_quantize(const TensorNode& node, DevicePtr input_ptr, DevicePtr codes_ptr,
                                   DevicePtr scales_ptr, std::uint32_t m, std::uint32_t k);

  /// Makes the inputs of a decode step those of the next: `m` sequences; all inputs are in
  /// current(). The log, current().input(0), is changed in place.
  virtual Status dispatch_advance(const TensorNode& node, DevicePtr log_ptr, DevicePtr tokens_ptr,
                                  std::uint32_t m);

  /// An operation without a method of its own: Scale, LayerNorm, GeGlu, SoftCap, PositionScale,
  /// ClampedSwiGlu, Route, ExpertMulMat, Combine, HeadMulMat, HeadSlice, SigmoidGate, CausalConv,
  /// GatedDelta, AllReduce, AllGather. Inputs, outputs and attributes are in current(); a Route's
  /// second value is current().value(current().id + 1). output may be an input of an operation
  /// element by element, and of PositionScale.
  virtual Status dispatch_other(const TensorNode& node, DevicePtr output_ptr);

  // -- The phases of a graph ---------------------------------------------------------------------

  /// Yes, or a reason. The default takes the seed's operations on float32 values.
  virtual Feasibility supports(const ComputeGraph& graph, int id) const;

  /// Does once what each launch would do otherwise; may allocate, repack and tune. May return null
  /// (the default).
  virtual Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id);

  /// Bytes of scratch memory that a launch of the node needs; `prepared` is what prepare returned.
  virtual std::size_t workspace(const ComputeGraph& graph, int id,
                                const PreparedNode* prepared) const;

  /// Called once the graph is prepared, or was refused with `own`, and before it is launched. A
  /// dispatch of several ranks returns an error unless all of them have an equal `plan`, which says
  /// what the graph exchanges; by default `own`.
  virtual Status agree(const Status& own, const std::string& plan);

  /// Launches one node, or one fusion: makes it current() and calls the method of its operation, or
  /// dispatch_fusion.
  virtual Status launch(const NodeLaunch& launch);

  /// Whether launches that would go to `stream` may be recorded now, and replayed there. By default
  /// they are not, and graphs are launched node by node.
  virtual bool records(cudaStream_t stream) const;
  /// Records what `launches` launches on the stream that it is given, which runs nothing yet. The
  /// dispatch and what the launches read outlive the recording. Errors: those of `launches` and of
  /// the recording, UNSUPPORTED unless overridden.
  virtual Result<std::unique_ptr<RecordedLaunches>> record(const LaunchFunction& launches);

  /// Whether a session on it had better pad its steps to few sizes: where a new graph costs more
  /// than rows of padding do. By default not.
  virtual bool prefers_buckets() const;
  /// Tokens of a prompt that a session on it had better read in one step. By default 512.
  virtual int preferred_step_tokens() const;

  // -- Fusions: none unless overridden -----------------------------------------------------------

  /// Names of all fusions that it may offer, for switches.
  virtual std::vector<std::string> fusion_names() const;

  /// Groups of the graph's nodes that it can launch as one, the preferred ones first. A fusion
  /// gives the same result as its nodes one by one. Called before memory is planned; ChooseFusions
  /// picks those to use.
  virtual std::vector<Fusion> fusions(const ComputeGraph& graph) const;

  /// As prepare, for a fusion of its own that is used.
  virtual Result<std::unique_ptr<PreparedNode>> prepare_fusion(const ComputeGraph& graph,
                                                               const Fusion& fusion);
  /// As workspace.
  virtual std::size_t workspace_fusion(const ComputeGraph& graph, const Fusion& fusion,
                                       const PreparedNode* prepared) const;

  /// Launches current().fusion. UNSUPPORTED unless overridden.
  virtual Status dispatch_fusion(const NodeLaunch& launch);

  /// The type of a model's values that suits it best with product weights of type `weights`:
  /// float32 (the default) or bfloat16.
  virtual DataType preferred_values(DataType weights) const;

  /// Memory of the device; the host's by default.
  virtual DeviceMemory& memory();

 protected:
  /// The launch that is being dispatched: inputs beyond the parameters, workspace, stream.
  /// Requires: called from a dispatch method.
  const NodeLaunch& current() const noexcept { return *current_; }

 private:
  Status Route(const NodeLaunch& launch);
  const NodeLaunch* current_ = nullptr;
};

}  // namespace culet
