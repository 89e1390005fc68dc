#include "graph/cpu_operations.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/scales.h"
#include "base/thread_pool.h"
#include "graph/cpu_fusions.h"
#include "graph/cpu_linear.h"
#include "graph/cpu_product.h"
#include "graph/float_view.h"
#include "graph/host_advance.h"
#include "graph/operation_table.h"
#include "graph/operations.h"
#include "graph/routes.h"
#include "graph/table_rows.h"
#include "kernels/ops/linear_attention.h"
#include "kernels/ops/ops.h"

namespace culet {
namespace {

using Made = Result<std::unique_ptr<PreparedNode>>;

template <class T>
T* At(DevicePtr pointer) {
  return FromDevicePtr<T>(pointer);
}
const float* In(const NodeLaunch& launch, int i) { return At<const float>(launch.input(i)); }
const std::int32_t* Indices(const NodeLaunch& launch, int i) {
  return At<const std::int32_t>(launch.input(i));
}
float* Out(const NodeLaunch& launch) { return At<float>(launch.output); }

std::size_t Elements(const TensorNode& node) {
  return static_cast<std::size_t>(node.shape.rows * node.shape.cols);
}

template <class T>
const T& Prepared(const NodeLaunch& launch) {
  return *static_cast<const T*>(launch.prepared);
}

// -- Element by element ---------------------------------------------------------------------------

// kOp(x, y, out, count).
template <auto kOp>
Status Two(const NodeLaunch& launch) {
  kOp(In(launch, 0), In(launch, 1), Out(launch), Elements(launch.node()));
  return {};
}

Status Silu(const NodeLaunch& launch) {
  ops::Silu(In(launch, 0), Out(launch), Elements(launch.node()));
  return {};
}

// kOp(x, scalar, out, count).
template <auto kOp>
Status WithScalar(const NodeLaunch& launch) {
  kOp(In(launch, 0), launch.node().params.scalar, Out(launch), Elements(launch.node()));
  return {};
}

Status ClampedSwiGlu(const NodeLaunch& launch) {
  const OpParams& params = launch.node().params;
  ops::ClampedSwiGlu(In(launch, 0), In(launch, 1), params.scalar, params.slope, Out(launch),
                     Elements(launch.node()));
  return {};
}

Status Cast(const NodeLaunch& launch) {
  ops::Cast(At<const void>(launch.input(0)), launch.input_node(0).type, At<void>(launch.output),
            launch.node().type, Elements(launch.node()));
  return {};
}

// -- Row by row -----------------------------------------------------------------------------------

struct PreparedNorm final : PreparedNode {
  explicit PreparedNorm(const TensorNode& node) : gamma(Gamma(node.params.gamma)), op(node.op) {}
  std::vector<float> gamma;
  TensorOp op;
  std::string kernel() const override { return std::string("cpu/") + ToString(op); }
};

template <class T>
Made Prepare(const CpuPlanner&, const ComputeGraph&, const TensorNode& node) {
  return std::unique_ptr<PreparedNode>(std::make_unique<T>(node));
}

Status RmsNorm(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const auto groups = static_cast<std::int64_t>(Elements(node)) / NormGroupOf(node.params);
  ops::RmsNorm(In(launch, 0), Prepared<PreparedNorm>(launch).gamma, node.params.scalar, Out(launch),
               groups, node.params.head_dim);
  return {};
}

Status LayerNorm(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  ops::LayerNorm(In(launch, 0), Prepared<PreparedNorm>(launch).gamma, node.params.scalar,
                 Out(launch), node.shape.rows);
  return {};
}

Status PositionScale(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  ops::PositionScale(In(launch, 0), Indices(launch, 1), node.params.int_param, node.params.scalar,
                     node.params.rope.original_context, Out(launch), node.shape.rows,
                     node.shape.cols);
  return {};
}

struct PreparedRope final : PreparedNode {
  explicit PreparedRope(const TensorNode& node) : frequencies(RopeFrequencies(node.params.rope)) {}
  std::vector<double> frequencies;
  std::string kernel() const override { return "cpu/rope"; }
};

Status Rope(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const int head_dim = node.params.head_dim;
  ops::Rope(node.params.rope, Prepared<PreparedRope>(launch).frequencies, Indices(launch, 1),
            Out(launch), node.shape.rows, static_cast<int>(node.shape.cols / head_dim), head_dim,
            At<float>(launch.workspace));
  return {};
}

std::size_t RopeWorkspace(const ComputeGraph&, const TensorNode& node, const PreparedNode*) {
  return ops::RopeWorkspace(node.params.rope, node.shape.rows) * sizeof(float);
}

Status Quantize(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  QuantizeInput({node.params.quant_a, node.params.scalar}, In(launch, 0), node.shape.rows,
                node.shape.cols, At<std::uint8_t>(launch.output),
                At<float>(launch.value(launch.id + 1)));
  return {};
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

Status Embedding(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const Weight& table = node.params.weight;
  const TableRows of = RowsOf(table, node.params.parts);
  if (IsCode(table.type)) {
    PickCodes(table, of, Indices(launch, 0), Out(launch), node.shape.rows);
    return {};
  }
  ops::PickRows(At<const void>(table.data_ptr), table.type, table.rows, table.cols,
                Indices(launch, 0), Out(launch), node.shape.rows, of.first, of.all);
  return {};
}

Status GatherRows(const NodeLaunch& launch) {
  const Shape from = launch.input_node(0).shape;
  ops::PickRows(In(launch, 0), DataType::kFloat32, from.rows, from.cols, Indices(launch, 1),
                Out(launch), launch.node().shape.rows, 0, from.rows);
  return {};
}

Status KvWrite(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t rows = launch.input_node(1).shape.rows;
  if (node.type == DataType::kFloat8_e4m3) {
    const auto heads = static_cast<std::size_t>(launch.input_node(3).shape.cols);
    ops::KvWriteE4m3(In(launch, 1), Indices(launch, 2), At<std::uint8_t>(launch.output),
                     {In(launch, 3), heads}, node.shape.rows, node.shape.cols, rows);
    return {};
  }
  ops::KvWrite(In(launch, 1), Indices(launch, 2), At<void>(launch.output), node.type,
               node.shape.rows, node.shape.cols, rows);
  return {};
}

Status ArgMax(const NodeLaunch& launch) {
  const Shape from = launch.input_node(0).shape;
  ops::ArgMax(In(launch, 0), At<std::int32_t>(launch.output), from.rows, from.cols);
  return {};
}

Status Sample(const NodeLaunch& launch) {
  const Shape logits = launch.input_node(0).shape;
  ops::SampleArgs args;
  args.logits = In(launch, 0);
  args.options = Indices(launch, 1);
  args.draws = Indices(launch, 2);
  args.first_draw = launch.node().params.int_param;
  args.out = At<std::int32_t>(launch.output);
  args.rows = logits.rows;
  args.cols = logits.cols;
  args.workspace = At<std::uint64_t>(launch.workspace);
  args.workspace_bytes = launch.workspace_bytes;
  ops::Sample(args);
  return {};
}

std::size_t SampleWorkspace(const ComputeGraph& graph, const TensorNode& node,
                            const PreparedNode*) {
  const Shape logits = graph.node(node.inputs[0]).shape;
  return ops::SampleWorkspace(logits.rows, logits.cols);
}

Status Advance(const NodeLaunch& launch) {
  AdvanceOnHost(launch);
  return {};
}

// -- Products -------------------------------------------------------------------------------------

Made PrepareMulMat(const CpuPlanner& planner, const ComputeGraph& graph, const TensorNode& node) {
  GemmArgs args = ProductArgs(node.shape.rows, node.params.weight, node.params.bias,
                              node.params.quant_a, planner.operation);
  // Values of the caller may be aligned less than the arena's.
  const bool quantised = node.inputs.size() > 1;
  const QuantDesc quant_a = quantised ? QuantDesc{} : node.params.quant_a;
  const auto* const order = At<const std::int32_t>(node.params.weight.order_ptr);
  if (quant_a.type == QuantType::kNone && order == nullptr) {
    args.A = At<const void>(graph.node(node.inputs[0]).data_ptr);
  }
  if (quantised) args.U = At<const void>(graph.node(node.inputs[1]).data_ptr);
  args.D = At<void>(node.data_ptr);
  auto plan = planner.gemm.Plan(args);
  if (!plan) return plan.status();
  return std::unique_ptr<PreparedNode>(std::make_unique<PreparedProduct>(
      *std::move(plan), InputQuantiser{quant_a, node.params.scalar}, order));
}

Status MulMat(const NodeLaunch& launch) {
  const float* const scales = launch.inputs.size() > 1 ? In(launch, 1) : nullptr;
  return Prepared<PreparedProduct>(launch).Launch(At<const void>(launch.input(0)), scales,
                                                  Out(launch), At<std::byte>(launch.workspace),
                                                  launch.stream);
}

Made PrepareExperts(const CpuPlanner& planner, const ComputeGraph& graph, const TensorNode& node) {
  return PreparedExperts::Create(graph, node, planner.operation, planner.choices);
}

Status ExpertMulMat(const NodeLaunch& launch) {
  return Prepared<PreparedExperts>(launch).Launch(launch);
}

template <class T>
std::size_t OfPrepared(const ComputeGraph&, const TensorNode&, const PreparedNode* prepared) {
  return static_cast<const T*>(prepared)->workspace_bytes();
}

Status HeadMulMat(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const Weight& weight = node.params.weight;
  ops::HeadMulMatArgs args;
  args.x = In(launch, 0);
  args.weight = At<const void>(weight.data_ptr);
  args.type = weight.type;
  args.out = Out(launch);
  args.rows = node.shape.rows;
  args.in = node.params.head_dim;
  args.heads = launch.input_node(0).shape.cols / args.in;
  args.sums = weight.rows / args.heads;
  args.k = weight.cols;
  args.workspace = At<float>(launch.workspace);
  args.workspace_floats = launch.workspace_bytes / sizeof(float);
  ops::HeadMulMat(args);
  return {};
}

std::size_t HeadWorkspace(const ComputeGraph&, const TensorNode& node, const PreparedNode*) {
  return ops::HeadMulMatWorkspace(node.params.weight.cols) * sizeof(float);
}

// -- Experts --------------------------------------------------------------------------------------

struct PreparedRoute final : PreparedNode {
  explicit PreparedRoute(const TensorNode& node) : bias(Gamma(node.params.bias)) {}
  std::vector<float> bias;
  std::string kernel() const override { return "cpu/route"; }
};

Status Route(const NodeLaunch& launch) {
  const std::vector<float>& bias = Prepared<PreparedRoute>(launch).bias;
  const Shape logits = launch.input_node(0).shape;
  const auto parts = PartsOfRoutes(At<std::int32_t>(launch.value(launch.id + 1)), logits.cols,
                                   static_cast<std::int64_t>(Elements(launch.node())));
  ops::RouteArgs args;
  args.logits = In(launch, 0);
  args.bias = bias.empty() ? nullptr : bias.data();
  args.routing = launch.node().params.routing;
  args.shares = Out(launch);
  args.starts = parts.starts;
  args.routes = parts.routes;
  args.places = parts.places;
  args.rows = logits.rows;
  args.experts = static_cast<int>(logits.cols);
  args.workspace = At<float>(launch.workspace);
  ops::Route(args);
  return {};
}

std::size_t RouteWorkspace(const ComputeGraph& graph, const TensorNode& node, const PreparedNode*) {
  const Shape logits = graph.node(node.inputs[0]).shape;
  return ops::RouteWorkspace(logits.rows, static_cast<int>(logits.cols), node.params.routing);
}

Status Combine(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const RoutedInputs in = RoutedInputsOf(launch);
  ops::CombineArgs args;
  args.x = In(launch, 0);
  args.shares = in.shares;
  args.places = in.parts.places;
  args.first = in.parts.starts[in.first];
  args.end = in.parts.starts[in.first + in.count];
  args.out = Out(launch);
  args.rows = node.shape.rows;
  args.active = launch.input_node(0).shape.rows / node.shape.rows;
  args.cols = node.shape.cols;
  ops::Combine(args);
  return {};
}

// -- Attention ------------------------------------------------------------------------------------

struct PreparedAttention final : PreparedNode {
  explicit PreparedAttention(const TensorNode& node) {
    if (node.params.sinks.present()) sinks = Gamma(node.params.sinks);
  }
  std::vector<float> sinks;  // empty where there are none
  std::string kernel() const override { return "cpu/attention"; }
};

Status Attention(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  ops::AttentionArgs args;
  args.params = node.params.attention;
  args.q = In(launch, 0);
  args.k = At<const void>(launch.input(1));
  args.v = At<const void>(launch.input(2));
  args.kv_type = launch.input_node(1).type;
  if (args.kv_type == DataType::kFloat8_e4m3) {
    args.k_scales = In(launch, 7);
    args.v_scales = In(launch, 8);
  }
  const std::vector<float>& sinks = Prepared<PreparedAttention>(launch).sinks;
  if (!sinks.empty()) args.sinks = sinks.data();
  args.out = Out(launch);
  args.rows = node.shape.rows;
  args.workspace = At<float>(launch.workspace);
  args.workspace_floats = launch.workspace_bytes / sizeof(float);
  ops::Attention(args, AttentionRows(launch));
  return {};
}

// Of the keys that a row can see: those of its block table, or of its batch.
std::size_t AttentionWorkspace(const ComputeGraph& graph, const TensorNode& node,
                               const PreparedNode*) {
  constexpr std::size_t kTable = 6;
  const AttentionParams& params = node.params.attention;
  const std::int64_t keys = node.inputs.size() <= kTable
                                ? node.shape.rows
                                : graph.node(node.inputs[kTable]).shape.cols * params.block_size;
  return ops::AttentionWorkspace(params, node.shape.rows, keys) * sizeof(float);
}

Status Linear(const NodeLaunch& launch) {
  Prepared<PreparedLinear>(launch).Launch(launch);
  return {};
}

std::size_t LinearWorkspace(const ComputeGraph& graph, const TensorNode& node,
                            const PreparedNode*) {
  return PreparedLinear::Workspace(graph, node);
}

Status HeadSlice(const NodeLaunch& launch) {
  const TensorNode& node = launch.node();
  const std::int64_t size = node.params.head_dim;
  const std::int64_t heads = launch.input_node(0).shape.cols / size;
  ops::HeadSlice(In(launch, 0), Out(launch), node.shape.rows * heads, size, node.params.int_param,
                 node.shape.cols / heads);
  return {};
}

using enum TensorOp;

// Copies go through dispatch_copy.
constexpr OperationTable<CpuOperation>::Entry kEntries[] = {
    {kCopy, {.last = 0, .float_value = false}},
    {kMulMat,
     {.launch = MulMat,
      .last = 1,
      .codes = true,
      .prepare = PrepareMulMat,
      .workspace = OfPrepared<PreparedProduct>}},
    {kAdd, {.launch = Two<ops::Add>}},
    {kMul, {.launch = Two<ops::Mul>}},
    {kSilu, {.launch = Silu}},
    {kSwiGlu, {.launch = Two<ops::SwiGlu>}},
    {kGeGlu, {.launch = Two<ops::GeGlu>}},
    {kClampedSwiGlu, {.launch = ClampedSwiGlu}},
    {kSigmoidGate, {.launch = Two<ops::SigmoidGate>}},
    {kScale, {.launch = WithScalar<ops::Scale>}},
    {kSoftCap, {.launch = WithScalar<ops::SoftCap>}},
    {kCast, {.launch = Cast, .last = 0, .float_value = false}},
    {kRmsNorm, {.launch = RmsNorm, .prepare = Prepare<PreparedNorm>}},
    {kLayerNorm, {.launch = LayerNorm, .prepare = Prepare<PreparedNorm>}},
    {kPositionScale, {.launch = PositionScale, .last = 1}},
    {kRope,
     {.launch = Rope, .last = 1, .prepare = Prepare<PreparedRope>, .workspace = RopeWorkspace}},
    {kQuantize, {.launch = Quantize, .last = 1, .float_value = false}},
    {kScales, {.last = 0}},  // made by the node before
    {kEmbedding, {.launch = Embedding, .last = 0}},
    {kGatherRows, {.launch = GatherRows, .last = 1}},
    {kKvWrite, {.launch = KvWrite, .first = 1, .last = 2, .float_value = false}},
    {kArgMax, {.launch = ArgMax, .last = 1, .float_value = false}},
    {kSample, {.launch = Sample, .last = 1, .float_value = false, .workspace = SampleWorkspace}},
    {kAdvance, {.launch = Advance, .last = 0, .float_value = false}},
    {kHeadMulMat, {.launch = HeadMulMat, .workspace = HeadWorkspace}},
    {kRoute, {.launch = Route, .prepare = Prepare<PreparedRoute>, .workspace = RouteWorkspace}},
    {kRoutes, {.last = 0, .float_value = false}},
    {kExpertMulMat,
     {.launch = ExpertMulMat,
      .last = 1,
      .codes = true,
      .prepare = PrepareExperts,
      .workspace = OfPrepared<PreparedExperts>}},
    {kCombine, {.launch = Combine, .last = 1}},
    {kAttention,
     {.launch = Attention,
      .last = 1,
      .prepare = Prepare<PreparedAttention>,
      .workspace = AttentionWorkspace}},
    {kHeadSlice, {.launch = HeadSlice}},
    {kCausalConv, {.launch = Linear, .last = 1, .prepare = Prepare<PreparedLinear>}},
    {kGatedDelta,
     {.launch = Linear,
      .last = 2,
      .prepare = Prepare<PreparedLinear>,
      .workspace = LinearWorkspace}},
};
constexpr OperationTable<CpuOperation> kOperations(kEntries);

}  // namespace

const CpuOperation* CpuOperationOf(TensorOp op) noexcept { return kOperations.Find(op); }

}  // namespace culet
