#include "graph/cuda/operations.h"

#include <string>
#include <utility>

#include "base/scales.h"
#include "cuda/error.h"
#include "graph/cuda/attention.h"
#include "graph/cuda/codes_weight.h"
#include "graph/cuda/experts.h"
#include "graph/cuda/linear.h"
#include "graph/cuda/prepared_nodes.h"
#include "graph/cuda/product.h"
#include "graph/cuda/read_next.h"
#include "graph/operation_table.h"
#include "graph/table_rows.h"

namespace culet::cuda_ops {
namespace {

using Made = Result<std::unique_ptr<PreparedNode>>;

const void* In(const NodeLaunch& launch, int i) {
  return FromDevicePtr<const void>(launch.input(i));
}
const std::int32_t* Indices(const NodeLaunch& launch, int i) {
  return FromDevicePtr<const std::int32_t>(launch.input(i));
}
void* Out(const NodeLaunch& launch) { return FromDevicePtr<void>(launch.output); }
void* Scratch(const NodeLaunch& launch) { return FromDevicePtr<void>(launch.workspace); }

template <class T>
const T& Prepared(const NodeLaunch& launch) {
  return *static_cast<const T*>(launch.prepared);
}

Status Launched(cudaError_t error, const NodeLaunch& launch) {
  return CudaStatus(error, std::string("launching ") + ToString(launch.node().op));
}

bool IsValue(DataType type) { return type == DataType::kFloat32 || type == DataType::kBfloat16; }
bool IsStored(DataType type) { return type == DataType::kFloat16 || IsValue(type); }
bool IsCached(DataType type) { return type == DataType::kFloat8_e4m3 || IsStored(type); }

DataType TypeOf(const ComputeGraph& graph, const TensorNode& node, std::size_t input) {
  return graph.node(node.inputs[input]).type;
}

Feasibility If(bool all) {
  if (all) return Feasibility::Ok();
  return Feasibility::Refuse(
      "the CUDA dispatch computes on float32 and bfloat16 values; float16 is for weights, caches "
      "and casts");
}

Feasibility TakesAll(const ComputeGraph&, const TensorNode&) { return Feasibility::Ok(); }

// The value has its own type whatever input `kInput` is.
template <std::size_t kInput>
Feasibility TakesInput(const ComputeGraph& graph, const TensorNode& node) {
  return If(IsValue(TypeOf(graph, node, kInput)));
}

// -- Element by element ---------------------------------------------------------------------------

template <ElementOp kOp>
Status Elements(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const void* const y = In(launch, node.inputs.size() > 1 ? 1 : 0);
  return Launched(
      ElementWise(kOp, node.type, In(launch, 0), y, Out(launch), node.shape.rows * node.shape.cols,
                  node.params.scalar, node.params.slope, stream),
      launch);
}

MoveRowsArgs RowsOf(const NodeLaunch& launch, int input, std::int64_t target_rows) {
  MoveRowsArgs args;
  args.source = In(launch, input);
  args.source_type = launch.input_node(input).type;
  args.source_rows = launch.input_node(input).shape.rows;
  args.target = Out(launch);
  args.target_type = launch.node().type;
  args.target_rows = target_rows;
  args.cols = launch.node().shape.cols;
  return args;
}

Feasibility TakesCast(const ComputeGraph& graph, const TensorNode& node) {
  return If(IsStored(TypeOf(graph, node, 0)) && IsStored(node.type));
}

Status Cast(const NodeLaunch& launch, LaunchStream stream) {
  MoveRowsArgs args = RowsOf(launch, 0, 1);
  args.source_rows = args.rows = 1;
  args.cols = launch.node().shape.rows * launch.node().shape.cols;
  return Launched(MoveRows(args, stream), launch);
}

// -- Row by row -----------------------------------------------------------------------------------

// Of groups of gamma's length.
RmsNormArgs NormArgs(const NodeLaunch& launch, std::int64_t groups) {
  const TensorNode& node = launch.node();
  RmsNormArgs args;
  args.x = In(launch, 0);
  args.x_type = launch.input_node(0).type;
  args.gamma = FromDevicePtr<const void>(node.params.gamma.data_ptr);
  args.gamma_type = node.params.gamma.type;
  args.epsilon = node.params.scalar;
  args.out = Out(launch);
  args.out_type = node.type;
  args.groups = groups;
  args.stride = node.params.head_dim;
  args.width = static_cast<int>(node.params.gamma.cols);
  return args;
}

Status RmsNormOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const std::int64_t groups = node.shape.rows * node.shape.cols / NormGroupOf(node.params);
  return Launched(RmsNorm(NormArgs(launch, groups), stream), launch);
}

Status LayerNormOf(const NodeLaunch& launch, LaunchStream stream) {
  return Launched(LayerNorm(NormArgs(launch, launch.node().shape.rows), stream), launch);
}

Status PositionScaleOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  PositionScaleArgs args;
  args.x = In(launch, 0);
  args.type = node.type;
  args.positions = Indices(launch, 1);
  args.ahead = node.params.int_param;
  args.by = node.params.scalar;
  args.original = node.params.rope.original_context;
  args.out = Out(launch);
  args.rows = node.shape.rows;
  args.cols = node.shape.cols;
  return Launched(PositionScale(args, stream), launch);
}

Made PrepareRope(const CudaPlanner& planner, const ComputeGraph& graph, int id) {
  const auto turns = planner.rope.Of(graph.node(id).params.rope);
  if (!turns) return turns.status();
  auto made = std::make_unique<PreparedRope>();
  made->turns = *turns;
  return std::unique_ptr<PreparedNode>(std::move(made));
}

Status RopeOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  RopeArgs args;
  args.x = Out(launch);
  args.type = node.type;
  args.positions = Indices(launch, 1);
  args.turns = Prepared<PreparedRope>(launch).turns;
  args.layout = node.params.rope.layout;
  args.attention_factor = static_cast<float>(node.params.rope.attention_factor);
  args.half = node.params.rope.dims / 2;
  args.first = node.params.rope.first;
  args.heads = static_cast<int>(node.shape.cols / node.params.head_dim);
  args.head_dim = node.params.head_dim;
  args.rows = node.shape.rows;
  return Launched(Rope(args, stream), launch);
}

Feasibility TakesEmbedding(const ComputeGraph&, const TensorNode& node) {
  return If(IsValue(node.type));
}

Status Embedding(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const Weight& table = node.params.weight;
  if (IsCode(table.type)) {
    RowsOfCodesArgs codes;
    codes.weight = CodesOf(table);
    codes.from = Indices(launch, 0);
    codes.target = Out(launch);
    codes.target_type = node.type;
    codes.rows = node.shape.rows;
    return Launched(RowsOfCodes(codes, stream), launch);
  }
  MoveRowsArgs args = RowsOf(launch, 0, node.shape.rows);
  args.source = FromDevicePtr<const void>(table.data_ptr);
  args.source_type = table.type;
  args.source_rows = table.rows;
  const TableRows of = culet::RowsOf(table, node.params.parts);
  args.first_row = of.first;
  args.all_rows = of.all;
  args.from = Indices(launch, 0);
  args.rows = node.shape.rows;
  return Launched(MoveRows(args, stream), launch);
}

Status GatherRows(const NodeLaunch& launch, LaunchStream stream) {
  MoveRowsArgs args = RowsOf(launch, 0, launch.node().shape.rows);
  args.from = Indices(launch, 1);
  args.rows = launch.node().shape.rows;
  return Launched(MoveRows(args, stream), launch);
}

Feasibility TakesKvWrite(const ComputeGraph& graph, const TensorNode& node) {
  return If(IsCached(node.type) && IsValue(TypeOf(graph, node, 1)));
}

Status KvWrite(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  if (node.type == DataType::kFloat8_e4m3) {
    CacheRowsArgs args;
    args.source = In(launch, 1);
    args.source_type = launch.input_node(1).type;
    args.slots = Indices(launch, 2);
    args.cache = FromDevicePtr<std::uint8_t>(launch.output);
    args.scales = FromDevicePtr<const float>(launch.input(3));
    args.cache_rows = node.shape.rows;
    args.rows = launch.input_node(1).shape.rows;
    args.cols = node.shape.cols;
    args.head_dim = static_cast<int>(args.cols / launch.input_node(3).shape.cols);
    return Launched(WriteCacheRows(args, stream), launch);
  }
  MoveRowsArgs args = RowsOf(launch, 1, node.shape.rows);
  args.to = Indices(launch, 2);
  args.rows = args.source_rows;
  return Launched(MoveRows(args, stream), launch);
}

Status ArgMaxOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& logits = launch.input_node(0);
  return Launched(ArgMax(In(launch, 0), logits.type, FromDevicePtr<std::int32_t>(launch.output),
                         logits.shape.rows, logits.shape.cols, Scratch(launch), stream),
                  launch);
}

template <std::size_t (*kBytes)(std::int64_t rows, std::int64_t cols)>
std::size_t OfLogits(const ComputeGraph& graph, const TensorNode& node, const PreparedNode*) {
  return kBytes(node.shape.rows, graph.node(node.inputs[0]).shape.cols);
}

Status SampleOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& logits = launch.input_node(0);
  SampleArgs args;
  args.logits = In(launch, 0);
  args.type = logits.type;
  args.options = Indices(launch, 1);
  args.draws = Indices(launch, 2);
  args.first_draw = launch.node().params.int_param;
  args.out = FromDevicePtr<std::int32_t>(launch.output);
  args.rows = logits.shape.rows;
  args.cols = logits.shape.cols;
  args.workspace = Scratch(launch);
  return Launched(Sample(args, stream), launch);
}

Status AdvanceOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const auto changed = [&](int i) { return FromDevicePtr<std::int32_t>(launch.input(i)); };
  AdvanceArgs args;
  args.log = FromDevicePtr<std::int32_t>(launch.output);
  args.tokens = Indices(launch, 1);
  args.logits = In(launch, 2);
  args.logits_type = launch.input_node(2).type;
  args.ids = changed(3);
  args.positions = changed(4);
  args.slots = changed(5);
  args.lengths = changed(6);
  args.table = Indices(launch, 7);
  args.log_rows = node.shape.rows;
  args.sequences = node.shape.cols;
  args.vocab = launch.input_node(2).shape.cols;
  if (const RankParts& parts = node.params.parts; parts.present()) {
    args.logits = nullptr;  // one rank's alone
    args.vocab = parts.all();
  }
  args.blocks = launch.input_node(7).shape.cols;
  args.block_size = node.params.attention.block_size;
  if (launch.inputs.size() > 8) {
    args.other_slots = changed(8);
    args.other_table = Indices(launch, 9);
    args.other_blocks = launch.input_node(9).shape.cols;
  }
  return Launched(Advance(args, stream), launch);
}

// -- Products -------------------------------------------------------------------------------------

// How a product, or a Quantize before it, quantises its input.
Feasibility TakesQuant(const TensorNode& node, bool in_product) {
  constexpr int kGroup = 128;
  const QuantDesc& quant = node.params.quant_a;
  if (quant.type == QuantType::kNone) return Feasibility::Ok();
  if (quant.type == QuantType::kRow) {
    if (!in_product) return Feasibility::Ok();
    return Feasibility::Refuse(
        "the CUDA dispatch quantises rows in a quantize node, not within a "
        "product");
  }
  if (quant.group_size != kGroup) {
    return Feasibility::Refuse("the CUDA dispatch quantises inputs in groups of 128, or rows");
  }
  return Feasibility::Ok();
}

Feasibility TakesMulMat(const ComputeGraph& graph, const TensorNode& node) {
  // Codes and scales come as a quantize of this dispatch makes them.
  const bool quantised = node.inputs.size() > 1;
  if (!IsValue(node.type) || (!quantised && !IsValue(TypeOf(graph, node, 0)))) return If(false);
  return TakesQuant(node, !quantised);
}

Feasibility TakesQuantize(const ComputeGraph& graph, const TensorNode& node) {
  return IsValue(TypeOf(graph, node, 0)) ? TakesQuant(node, false) : If(false);
}

Made PrepareMulMat(const CudaPlanner& planner, const ComputeGraph& graph, int id) {
  auto made = PreparedProduct::Create(planner.gemm, planner.memory, planner.options,
                                      ProductSpec::Of(graph, id));
  if (!made) return made.status();
  return std::unique_ptr<PreparedNode>(*std::move(made));
}

Status MulMat(const NodeLaunch& launch, LaunchStream stream) {
  const DevicePtr scales = launch.inputs.size() > 1 ? launch.input(1) : 0;
  return Prepared<PreparedProduct>(launch).Launch(launch.input(0), scales, launch.output, 0,
                                                  launch.workspace, stream);
}

template <class T>
std::size_t OfPrepared(const ComputeGraph&, const TensorNode&, const PreparedNode* prepared) {
  return static_cast<const T*>(prepared)->workspace_bytes();
}

Status HeadMulMatOf(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const Weight& weight = node.params.weight;
  const TensorNode& x = launch.input_node(0);
  HeadMulMatArgs args;
  args.x = In(launch, 0);
  args.x_type = x.type;
  args.weight = FromDevicePtr<const void>(weight.data_ptr);
  args.weight_type = weight.type;
  args.out = Out(launch);
  args.out_type = node.type;
  args.rows = node.shape.rows;
  args.in = node.params.head_dim;
  args.heads = x.shape.cols / args.in;
  args.sums = weight.rows / args.heads;
  args.k = weight.cols;
  return Launched(HeadMulMat(args, stream), launch);
}

Made PrepareQuantize(const CudaPlanner& planner, const ComputeGraph& graph, int id) {
  // Only useful if it overlaps the preceding kernel.
  return std::unique_ptr<PreparedNode>(std::make_unique<PreparedQuantize>(
      planner.options.overlap ? NextWeights(graph, id) : ReadNext{}));
}

Status Quantize(const NodeLaunch& launch, LaunchStream stream) {
  const TensorNode& node = launch.node();
  const DataType type = launch.input_node(0).type;
  auto* const codes = FromDevicePtr<std::uint8_t>(launch.output);
  auto* const scales = FromDevicePtr<float>(launch.value(launch.id + 1));
  if (node.params.quant_a.type == QuantType::kRow) {
    return Launched(QuantizeWholeRows(In(launch, 0), type, node.shape.rows, node.shape.cols,
                                      node.params.scalar, codes, scales, stream),
                    launch);
  }
  return Launched(QuantizeRows(In(launch, 0), type, node.shape.rows, node.shape.cols, codes, scales,
                               stream, Prepared<PreparedQuantize>(launch).next),
                  launch);
}

// -- Experts, attention ---------------------------------------------------------------------------

Made PrepareExperts(const CudaPlanner& planner, const ComputeGraph& graph, int id) {
  return PreparedExperts::Create(planner.gemm, planner.memory, planner.options, graph, id);
}

Status ExpertMulMat(const NodeLaunch& launch, LaunchStream stream) {
  return Prepared<PreparedExperts>(launch).Launch(launch, stream);
}

std::size_t OfRoute(const ComputeGraph&, const TensorNode& node, const PreparedNode*) {
  return RouteWorkspace(node);
}

Feasibility TakesAttention(const ComputeGraph& graph, const TensorNode& node) {
  const AttentionParams& p = node.params.attention;
  const bool values = IsValue(node.type) && IsValue(TypeOf(graph, node, 0));
  if (p.value_dim > 0) {
    if (!values) return If(false);
    if (p.head_dim <= kMostLatentKey && p.value_dim <= kMostLatentValue) return Feasibility::Ok();
    return Feasibility::Refuse(
        "the CUDA dispatch takes keys of at most 576 elements whose first 512 at most are values");
  }
  if (p.head_dim > kMostHeadDim) {
    return Feasibility::Refuse("the CUDA dispatch takes heads of at most 256 elements");
  }
  return If(values && IsCached(TypeOf(graph, node, 1)));
}

Made PrepareAttentionOf(const CudaPlanner& planner, const ComputeGraph& graph, int id) {
  const TensorNode& node = graph.node(id);
  const AttentionShape shape = ShapeOfAttention(graph, node);
  auto made = std::make_unique<PreparedAttention>();
  made->plan = PlanAttention(shape, !planner.options.round_product_inputs,
                             planner.gemm.device().units, CanOverlap(), CanMultiplyWarpgroups());
  made->early = MayReadEarly(graph, node);
  CULET_RETURN_IF_ERROR(
      CudaStatus(PrepareAttention(shape, made->plan), "preparing attention's shared memory"));
  return std::unique_ptr<PreparedNode>(std::move(made));
}

Status AttentionOf(const NodeLaunch& launch, LaunchStream stream) {
  AttentionArgs args = ArgsOfAttention(launch, launch.node());
  args.early = Prepared<PreparedAttention>(launch).early;
  args.plan = Prepared<PreparedAttention>(launch).plan;
  args.workspace = Scratch(launch);
  args.counters = FromDevicePtr<unsigned>(launch.state);
  return Launched(Attention(args, stream), launch);
}

std::size_t OfAttention(const ComputeGraph&, const TensorNode&, const PreparedNode* prepared) {
  return static_cast<const PreparedAttention*>(prepared)->plan.workspace_bytes;
}

Made PrepareDelta(const CudaPlanner&, const ComputeGraph& graph, int id) {
  return std::unique_ptr<PreparedNode>(std::make_unique<PreparedDelta>(graph, graph.node(id)));
}

using enum TensorOp;

// Copies go through dispatch_copy; the second values of kQuantize and kRoute come with the first.
constexpr OperationTable<CudaOperation>::Entry kEntries[] = {
    {kCopy, {.supports = TakesAll}},
    {kMulMat,
     {.launch = MulMat,
      .supports = TakesMulMat,
      .prepare = PrepareMulMat,
      .workspace = OfPrepared<PreparedProduct>}},
    {kAdd, {.launch = Elements<ElementOp::kAdd>}},
    {kMul, {.launch = Elements<ElementOp::kMul>}},
    {kSilu, {.launch = Elements<ElementOp::kSilu>}},
    {kSwiGlu, {.launch = Elements<ElementOp::kSwiGlu>}},
    {kGeGlu, {.launch = Elements<ElementOp::kGeGlu>}},
    {kClampedSwiGlu, {.launch = Elements<ElementOp::kClampedSwiGlu>}},
    {kSigmoidGate, {.launch = Elements<ElementOp::kSigmoidGate>}},
    {kScale, {.launch = Elements<ElementOp::kScale>}},
    {kSoftCap, {.launch = Elements<ElementOp::kSoftCap>}},
    {kCast, {.launch = Cast, .supports = TakesCast}},
    {kRmsNorm, {.launch = RmsNormOf}},
    {kLayerNorm, {.launch = LayerNormOf}},
    {kPositionScale, {.launch = PositionScaleOf}},
    {kRope, {.launch = RopeOf, .prepare = PrepareRope}},
    {kQuantize, {.launch = Quantize, .supports = TakesQuantize, .prepare = PrepareQuantize}},
    {kScales, {.supports = TakesAll}},
    {kEmbedding, {.launch = Embedding, .supports = TakesEmbedding}},
    {kGatherRows, {.launch = GatherRows}},
    {kKvWrite, {.launch = KvWrite, .supports = TakesKvWrite}},
    {kArgMax,
     {.launch = ArgMaxOf, .supports = TakesInput<0>, .workspace = OfLogits<ArgMaxWorkspace>}},
    {kSample,
     {.launch = SampleOf, .supports = TakesInput<0>, .workspace = OfLogits<SampleWorkspace>}},
    {kAdvance, {.launch = AdvanceOf, .supports = TakesInput<2>}},
    {kHeadMulMat, {.launch = HeadMulMatOf}},
    {kRoute, {.launch = LaunchRoute, .supports = SupportsExperts, .workspace = OfRoute}},
    {kRoutes, {.supports = TakesAll}},
    {kExpertMulMat,
     {.launch = ExpertMulMat,
      .supports = SupportsExperts,
      .prepare = PrepareExperts,
      .workspace = OfPrepared<PreparedExperts>}},
    {kCombine, {.launch = LaunchCombine, .supports = SupportsExperts}},
    {kAttention,
     {.launch = AttentionOf,
      .supports = TakesAttention,
      .prepare = PrepareAttentionOf,
      .workspace = OfAttention}},
    {kHeadSlice, {.launch = LaunchHeadSlice}},
    {kCausalConv, {.launch = LaunchCausalConv, .supports = SupportsLinear}},
    {kGatedDelta,
     {.launch = LaunchGatedDelta,
      .supports = SupportsLinear,
      .prepare = PrepareDelta,
      .workspace = OfPrepared<PreparedDelta>}},
};
constexpr OperationTable<CudaOperation> kOperations(kEntries);

}  // namespace

const CudaOperation* CudaOperationOf(TensorOp op) noexcept { return kOperations.Find(op); }

Feasibility Supports(const CudaOperation& operation, const ComputeGraph& graph,
                     const TensorNode& node) {
  if (operation.supports != nullptr) return operation.supports(graph, node);
  return If(IsValue(node.type) && IsValue(TypeOf(graph, node, 0)));
}

}  // namespace culet::cuda_ops
