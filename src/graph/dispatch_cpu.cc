// MakeCpuDispatch: products through the engine, the rest through kernels/ops.
#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/float_types.h"
#include "base/scales.h"
#include "base/thread_pool.h"
#include "culet/dispatch.h"
#include "graph/cpu_experts.h"
#include "graph/cpu_fusions.h"
#include "graph/cpu_linear.h"
#include "graph/cpu_product.h"
#include "graph/float_view.h"
#include "graph/host_advance.h"
#include "graph/routes.h"
#include "graph/table_rows.h"
#include "kernels/ops/linear_attention.h"
#include "kernels/ops/ops.h"

namespace culet {
namespace {

const float* In(DevicePtr pointer) { return FromDevicePtr<const float>(pointer); }
float* Out(DevicePtr pointer) { return FromDevicePtr<float>(pointer); }
const std::int32_t* Indices(DevicePtr pointer) {
  return FromDevicePtr<const std::int32_t>(pointer);
}

// Rows of a table of codes, as ops::PickRows.
void PickCodes(const Weight& table, const TableRows& of, const std::int32_t* ids, float* out,
               std::int64_t rows) {
  HostPool().Run(static_cast<int>(rows), [&](int row, int) {
    float* const to = out + row * table.cols;
    const bool known = ids[row] >= 0 && ids[row] < of.all;
    std::vector<double> values(static_cast<std::size_t>(table.cols),
                               known ? 0 : std::numeric_limits<double>::quiet_NaN());
    const std::int64_t own = ids[row] - of.first;
    if (known && own >= 0 && own < table.rows) LoadWeightRow(table, own, values.data());
    std::transform(values.begin(), values.end(), to,
                   [](double value) { return static_cast<float>(value); });
  });
}

struct PreparedNorm final : PreparedNode {
  PreparedNorm(const Weight& weight, TensorOp o) : gamma(Gamma(weight)), op(o) {}
  std::vector<float> gamma;
  TensorOp op;
  std::string kernel() const override { return std::string("cpu/") + ToString(op); }
};

struct PreparedAttention final : PreparedNode {
  explicit PreparedAttention(std::vector<float> s) : sinks(std::move(s)) {}
  std::vector<float> sinks;  // empty where there are none
  std::string kernel() const override { return "cpu/attention"; }
};

struct PreparedRoute final : PreparedNode {
  explicit PreparedRoute(const Weight& weight) : bias(Gamma(weight)) {}
  std::vector<float> bias;
  std::string kernel() const override { return "cpu/route"; }
};

struct PreparedRope final : PreparedNode {
  std::vector<double> frequencies;
  std::string kernel() const override { return "cpu/rope"; }
};

// Operations that need nothing but a name.
struct PreparedPlain final : PreparedNode {
  explicit PreparedPlain(TensorOp o) : op(o) {}
  TensorOp op;
  std::string kernel() const override { return std::string("cpu/") + ToString(op); }
};

class CpuDispatch final : public KernelDispatch {
 public:
  CpuDispatch(Gemm& gemm, const CpuDispatchOptions& options)
      : gemm_(gemm), options_(options), expert_choices_(gemm) {}

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    switch (node.op) {
      case TensorOp::kCopy:
      case TensorOp::kCast:
        return Feasibility::Ok();
      case TensorOp::kAllReduce:
      case TensorOp::kAllGather:
        return Feasibility::Refuse(kNeedsRanks);
      case TensorOp::kKvWrite:
        return TakesFloat32(graph, node, 1, 2);
      case TensorOp::kAttention:
        if (node.type != DataType::kFloat32) return OnlyFloat32();
        return TakesFloat32(graph, node, 0, 1);
      case TensorOp::kAdvance:
        return Feasibility::Ok();
      case TensorOp::kArgMax:
      case TensorOp::kSample:
        return TakesFloat32(graph, node, 0, 1);
      case TensorOp::kEmbedding:
        return node.type == DataType::kFloat32 ? Feasibility::Ok() : OnlyFloat32();
      case TensorOp::kQuantize:
        return TakesFloat32(graph, node, 0, 1);
      case TensorOp::kMulMat:
      case TensorOp::kExpertMulMat:
        if (node.type != DataType::kFloat32) return OnlyFloat32();
        return graph.node(node.inputs[0]).type == DataType::kFloat8_e4m3
                   ? Feasibility::Ok()
                   : TakesFloat32(graph, node, 0, 1);
      case TensorOp::kRope:
      case TensorOp::kPositionScale:
      case TensorOp::kGatherRows:
      case TensorOp::kCombine:
      case TensorOp::kCausalConv:
        if (node.type != DataType::kFloat32) return OnlyFloat32();
        return TakesFloat32(graph, node, 0, 1);
      case TensorOp::kGatedDelta:
        if (node.type != DataType::kFloat32) return OnlyFloat32();
        return TakesFloat32(graph, node, 0, 2);
      default:
        if (node.type != DataType::kFloat32) return OnlyFloat32();
        return TakesFloat32(graph, node, 0, node.inputs.size());
    }
  }

  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    const TensorNode& node = graph.node(id);
    switch (node.op) {
      case TensorOp::kMulMat:
        return PrepareProduct(graph, node);
      case TensorOp::kExpertMulMat:
        return PreparedExperts::Create(graph, node, OperationFor(), expert_choices_);
      case TensorOp::kCausalConv:
      case TensorOp::kGatedDelta:
        return std::unique_ptr<PreparedNode>(std::make_unique<PreparedLinear>(node));
      case TensorOp::kRoute:
        return std::unique_ptr<PreparedNode>(std::make_unique<PreparedRoute>(node.params.bias));
      case TensorOp::kRmsNorm:
      case TensorOp::kLayerNorm:
        return std::unique_ptr<PreparedNode>(
            std::make_unique<PreparedNorm>(node.params.gamma, node.op));
      case TensorOp::kAttention:
        return std::unique_ptr<PreparedNode>(std::make_unique<PreparedAttention>(
            node.params.sinks.present() ? Gamma(node.params.sinks) : std::vector<float>()));
      case TensorOp::kRope: {
        auto made = std::make_unique<PreparedRope>();
        made->frequencies = RopeFrequencies(node.params.rope);
        return std::unique_ptr<PreparedNode>(std::move(made));
      }
      default:
        return std::unique_ptr<PreparedNode>(std::make_unique<PreparedPlain>(node.op));
    }
  }

  std::size_t workspace(const ComputeGraph& graph, int id,
                        const PreparedNode* prepared) const override {
    const TensorNode& node = graph.node(id);
    switch (node.op) {
      case TensorOp::kMulMat:
        return static_cast<const PreparedProduct*>(prepared)->workspace_bytes();
      case TensorOp::kExpertMulMat:
        return static_cast<const PreparedExperts*>(prepared)->workspace_bytes();
      case TensorOp::kRoute: {
        const Shape logits = graph.node(node.inputs[0]).shape;
        return ops::RouteWorkspace(logits.rows, static_cast<int>(logits.cols), node.params.routing);
      }
      case TensorOp::kSample: {
        const Shape logits = graph.node(node.inputs[0]).shape;
        return ops::SampleWorkspace(logits.rows, logits.cols);
      }
      case TensorOp::kGatedDelta:
        return PreparedLinear::Workspace(graph, node);
      case TensorOp::kHeadMulMat:
        return ops::HeadMulMatWorkspace(node.params.weight.cols) * sizeof(float);
      case TensorOp::kRope:
        return ops::RopeWorkspace(node.params.rope, node.shape.rows) * sizeof(float);
      case TensorOp::kAttention:
        return ops::AttentionWorkspace(node.params.attention, node.shape.rows,
                                       MostKeys(graph, node)) *
               sizeof(float);
      default:
        return 0;
    }
  }

  Status launch(const NodeLaunch& launch) override {
    if (launch.prepared == nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    "launch.prepared is null; give what prepare returned for the node");
    }
    return KernelDispatch::launch(launch);
  }

  std::vector<std::string> fusion_names() const override { return CpuFusionNames(); }
  std::vector<Fusion> fusions(const ComputeGraph& graph) const override {
    return CpuFusions(graph);
  }
  Result<std::unique_ptr<PreparedNode>> prepare_fusion(const ComputeGraph& graph,
                                                       const Fusion& fusion) override {
    return std::unique_ptr<PreparedNode>(PreparedFusion::Create(graph, fusion));
  }
  Status dispatch_fusion(const NodeLaunch&) override {
    Prepared<PreparedFusion>().Launch(current());
    return {};
  }

  Status dispatch_mul_mat(const TensorNode&, DevicePtr input, DevicePtr output, std::uint32_t,
                          std::uint32_t, std::uint32_t) override {
    const float* const scales = current().inputs.size() > 1 ? In(current().input(1)) : nullptr;
    return Prepared<PreparedProduct>().Launch(FromDevicePtr<const void>(input), scales, Out(output),
                                              Scratch<std::byte>(), current().stream);
  }

  Status dispatch_rms_norm(const TensorNode& node, DevicePtr input, DevicePtr output, std::uint32_t,
                           std::uint32_t m, float epsilon) override {
    ops::RmsNorm(In(input), Prepared<PreparedNorm>().gamma, epsilon, Out(output), m,
                 node.params.head_dim);
    return {};
  }

  Status dispatch_add(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    ops::Add(In(a), In(b), Out(output), n);
    return {};
  }
  Status dispatch_mul(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    ops::Mul(In(a), In(b), Out(output), n);
    return {};
  }
  Status dispatch_silu(DevicePtr input, DevicePtr output, std::size_t n) override {
    ops::Silu(In(input), Out(output), n);
    return {};
  }
  Status dispatch_swiglu(DevicePtr gate, DevicePtr up, DevicePtr output, std::size_t n) override {
    ops::SwiGlu(In(gate), In(up), Out(output), n);
    return {};
  }

  Status dispatch_rope(const TensorNode& node, DevicePtr qk, DevicePtr positions,
                       std::size_t n_positions, std::uint32_t head_dim,
                       std::uint32_t num_heads) override {
    ops::Rope(node.params.rope, Prepared<PreparedRope>().frequencies, Indices(positions), Out(qk),
              static_cast<std::int64_t>(n_positions), static_cast<int>(num_heads),
              static_cast<int>(head_dim), Scratch<float>());
    return {};
  }

  Status dispatch_attention(const TensorNode& node, DevicePtr q, DevicePtr k, DevicePtr v,
                            DevicePtr output, std::uint32_t m, std::size_t) override {
    ops::AttentionArgs args;
    args.params = node.params.attention;
    args.q = In(q);
    args.k = FromDevicePtr<const void>(k);
    args.v = FromDevicePtr<const void>(v);
    args.kv_type = current().input_node(1).type;
    if (args.kv_type == DataType::kFloat8_e4m3) {
      args.k_scales = In(current().input(7));
      args.v_scales = In(current().input(8));
    }
    const std::vector<float>& sinks = Prepared<PreparedAttention>().sinks;
    if (!sinks.empty()) args.sinks = sinks.data();
    args.out = Out(output);
    args.rows = m;
    args.workspace = Scratch<float>();
    args.workspace_floats = current().workspace_bytes / sizeof(float);
    ops::Attention(args, AttentionRows(current()));
    return {};
  }

  Status dispatch_copy(DevicePtr src, DevicePtr dst, std::size_t bytes) override {
    std::memmove(FromDevicePtr<void>(dst), FromDevicePtr<const void>(src), bytes);
    return {};
  }

  Status dispatch_cast(const TensorNode& node, DevicePtr input, DevicePtr output,
                       std::size_t n) override {
    ops::Cast(FromDevicePtr<const void>(input), current().input_node(0).type,
              FromDevicePtr<void>(output), node.type, n);
    return {};
  }

  Status dispatch_embedding(const TensorNode& node, DevicePtr ids, DevicePtr output,
                            std::uint32_t m) override {
    const Weight& table = node.params.weight;
    const TableRows of = RowsOf(table, node.params.parts);
    if (IsCode(table.type)) {
      PickCodes(table, of, Indices(ids), Out(output), m);
      return {};
    }
    ops::PickRows(FromDevicePtr<const void>(table.data_ptr), table.type, table.rows, table.cols,
                  Indices(ids), Out(output), m, of.first, of.all);
    return {};
  }

  Status dispatch_gather_rows(const TensorNode&, DevicePtr input, DevicePtr indices,
                              DevicePtr output, std::uint32_t m) override {
    const Shape from = current().input_node(0).shape;
    ops::PickRows(FromDevicePtr<const void>(input), DataType::kFloat32, from.rows, from.cols,
                  Indices(indices), Out(output), m, 0, from.rows);
    return {};
  }

  Status dispatch_kv_write(const TensorNode& node, DevicePtr rows, DevicePtr slots, DevicePtr cache,
                           std::uint32_t m) override {
    if (node.type == DataType::kFloat8_e4m3) {
      const auto heads = static_cast<std::size_t>(current().input_node(3).shape.cols);
      ops::KvWriteE4m3(In(rows), Indices(slots), FromDevicePtr<std::uint8_t>(cache),
                       {In(current().input(3)), heads}, node.shape.rows, node.shape.cols, m);
      return {};
    }
    ops::KvWrite(In(rows), Indices(slots), FromDevicePtr<void>(cache), node.type, node.shape.rows,
                 node.shape.cols, m);
    return {};
  }

  Status dispatch_quantize(const TensorNode& node, DevicePtr input, DevicePtr codes,
                           DevicePtr scales, std::uint32_t m, std::uint32_t k) override {
    QuantizeInput({node.params.quant_a, node.params.scalar}, In(input), m, k,
                  FromDevicePtr<std::uint8_t>(codes), Out(scales));
    return {};
  }

  Status dispatch_argmax(const TensorNode&, DevicePtr input, DevicePtr output, std::uint32_t m,
                         std::uint32_t n) override {
    ops::ArgMax(In(input), FromDevicePtr<std::int32_t>(output), m, n);
    return {};
  }

  Status dispatch_advance(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t) override {
    AdvanceOnHost(current());
    return {};
  }

  Status dispatch_other(const TensorNode& node, DevicePtr output) override {
    const float* const x = In(current().input(0));
    const auto n = static_cast<std::size_t>(node.shape.rows * node.shape.cols);
    const float scalar = node.params.scalar;
    switch (node.op) {
      case TensorOp::kScale:
        ops::Scale(x, scalar, Out(output), n);
        return {};
      case TensorOp::kSoftCap:
        ops::SoftCap(x, scalar, Out(output), n);
        return {};
      case TensorOp::kGeGlu:
        ops::GeGlu(x, In(current().input(1)), Out(output), n);
        return {};
      case TensorOp::kClampedSwiGlu:
        ops::ClampedSwiGlu(x, In(current().input(1)), scalar, node.params.slope, Out(output), n);
        return {};
      case TensorOp::kRoute:
        Route(node, output);
        return {};
      case TensorOp::kExpertMulMat:
        return Prepared<PreparedExperts>().Launch(current());
      case TensorOp::kCombine:
        Combine(node, output);
        return {};
      case TensorOp::kLayerNorm:
        ops::LayerNorm(x, Prepared<PreparedNorm>().gamma, scalar, Out(output), node.shape.rows);
        return {};
      case TensorOp::kPositionScale:
        ops::PositionScale(x, Indices(current().input(1)), node.params.int_param, scalar,
                           node.params.rope.original_context, Out(output), node.shape.rows,
                           node.shape.cols);
        return {};
      case TensorOp::kHeadMulMat:
        HeadMulMat(node, output);
        return {};
      case TensorOp::kSigmoidGate:
        ops::SigmoidGate(x, In(current().input(1)), Out(output), n);
        return {};
      case TensorOp::kHeadSlice: {
        const std::int64_t size = node.params.head_dim;
        const std::int64_t heads = current().input_node(0).shape.cols / size;
        ops::HeadSlice(x, Out(output), node.shape.rows * heads, size, node.params.int_param,
                       node.shape.cols / heads);
        return {};
      }
      case TensorOp::kCausalConv:
      case TensorOp::kGatedDelta:
        Prepared<PreparedLinear>().Launch(current());
        return {};
      default:
        return KernelDispatch::dispatch_other(node, output);
    }
  }

  Status dispatch_sample(const TensorNode& node, DevicePtr logits, DevicePtr options,
                         DevicePtr draws, DevicePtr output, std::uint32_t m,
                         std::uint32_t n) override {
    ops::SampleArgs args;
    args.logits = In(logits);
    args.options = Indices(options);
    args.draws = Indices(draws);
    args.first_draw = node.params.int_param;
    args.out = FromDevicePtr<std::int32_t>(output);
    args.rows = m;
    args.cols = n;
    args.workspace = Scratch<std::uint64_t>();
    args.workspace_bytes = current().workspace_bytes;
    ops::Sample(args);
    return {};
  }

 private:
  void HeadMulMat(const TensorNode& node, DevicePtr output) const {
    const Weight& weight = node.params.weight;
    ops::HeadMulMatArgs args;
    args.x = In(current().input(0));
    args.weight = FromDevicePtr<const void>(weight.data_ptr);
    args.type = weight.type;
    args.out = Out(output);
    args.rows = node.shape.rows;
    args.in = node.params.head_dim;
    args.heads = current().input_node(0).shape.cols / args.in;
    args.sums = weight.rows / args.heads;
    args.k = weight.cols;
    args.workspace = Scratch<float>();
    args.workspace_floats = current().workspace_bytes / sizeof(float);
    ops::HeadMulMat(args);
  }

  static Feasibility OnlyFloat32() noexcept {
    return Feasibility::Refuse("the CPU dispatch makes float32 values only, casts apart");
  }

  // Whether inputs [first, end) are float32.
  static Feasibility TakesFloat32(const ComputeGraph& graph, const TensorNode& node,
                                  std::size_t first, std::size_t end) noexcept {
    for (std::size_t i = first; i < end; ++i) {
      if (graph.node(node.inputs[i]).type != DataType::kFloat32) {
        return Feasibility::Refuse("the CPU dispatch reads float32 values only, caches apart");
      }
    }
    return Feasibility::Ok();
  }

  // Keys that a row of an attention node can see: those of its block table, or of its batch.
  static std::int64_t MostKeys(const ComputeGraph& graph, const TensorNode& node) noexcept {
    constexpr std::size_t kTable = 6;
    if (node.inputs.size() <= kTable) return node.shape.rows;
    return graph.node(node.inputs[kTable]).shape.cols * node.params.attention.block_size;
  }

  void Route(const TensorNode& node, DevicePtr output) {
    const std::vector<float>& bias = Prepared<PreparedRoute>().bias;
    const Shape logits = current().input_node(0).shape;
    const auto parts = PartsOfRoutes(FromDevicePtr<std::int32_t>(current().value(current().id + 1)),
                                     logits.cols, node.shape.rows * node.shape.cols);
    ops::RouteArgs args;
    args.logits = In(current().input(0));
    args.bias = bias.empty() ? nullptr : bias.data();
    args.routing = node.params.routing;
    args.shares = Out(output);
    args.starts = parts.starts;
    args.routes = parts.routes;
    args.places = parts.places;
    args.rows = logits.rows;
    args.experts = static_cast<int>(logits.cols);
    args.workspace = Scratch<float>();
    ops::Route(args);
  }

  void Combine(const TensorNode& node, DevicePtr output) {
    const RoutedInputs in = RoutedInputsOf(current());
    ops::CombineArgs args;
    args.x = In(current().input(0));
    args.shares = in.shares;
    args.places = in.parts.places;
    args.out = Out(output);
    args.rows = node.shape.rows;
    args.active = current().input_node(0).shape.rows / node.shape.rows;
    args.cols = node.shape.cols;
    ops::Combine(args);
  }

  Operation OperationFor() const noexcept {
    Operation operation;
    operation.dispatch = options_.policy;
    operation.determinism = options_.determinism;
    return operation;
  }

  Result<std::unique_ptr<PreparedNode>> PrepareProduct(const ComputeGraph& graph,
                                                       const TensorNode& node) {
    GemmArgs args = ProductArgs(node.shape.rows, node.params.weight, node.params.bias,
                                node.params.quant_a, OperationFor());
    // Values of the caller may be aligned less than the arena's.
    const bool quantised = node.inputs.size() > 1;
    const QuantDesc quant_a = quantised ? QuantDesc{} : node.params.quant_a;
    const auto* const order = FromDevicePtr<const std::int32_t>(node.params.weight.order_ptr);
    if (quant_a.type == QuantType::kNone && order == nullptr) {
      args.A = FromDevicePtr<const void>(graph.node(node.inputs[0]).data_ptr);
    }
    if (quantised) args.U = FromDevicePtr<const void>(graph.node(node.inputs[1]).data_ptr);
    args.D = FromDevicePtr<void>(node.data_ptr);
    auto plan = gemm_.Plan(args);
    if (!plan) return plan.status();
    return std::unique_ptr<PreparedNode>(std::make_unique<PreparedProduct>(
        *std::move(plan), InputQuantiser{quant_a, node.params.scalar}, order));
  }

  template <class T>
  const T& Prepared() const noexcept {
    return *static_cast<const T*>(current().prepared);
  }
  template <class T>
  T* Scratch() const noexcept {
    return FromDevicePtr<T>(current().workspace);
  }

  Gemm& gemm_;
  CpuDispatchOptions options_;
  ExpertChoices expert_choices_;
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeCpuDispatch(Gemm& gemm, const CpuDispatchOptions& options) {
  return std::make_unique<CpuDispatch>(gemm, options);
}

}  // namespace culet
