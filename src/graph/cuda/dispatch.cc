// The CUDA dispatch: products through the engine, the rest through kernels/cuda_ops.
#include "graph/cuda/dispatch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/accelerator.h"
#include "base/device_scope.h"
#include "cuda/error.h"
#include "graph/cuda/attention.h"
#include "graph/cuda/codes_weight.h"
#include "graph/cuda/experts.h"
#include "graph/cuda/fusions.h"
#include "graph/cuda/linear.h"
#include "graph/cuda/prepared_nodes.h"
#include "graph/cuda/product.h"
#include "graph/cuda/read_next.h"
#include "graph/table_rows.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {
namespace {

const void* In(DevicePtr pointer) { return FromDevicePtr<const void>(pointer); }
void* Out(DevicePtr pointer) { return FromDevicePtr<void>(pointer); }
const std::int32_t* Indices(DevicePtr pointer) {
  return FromDevicePtr<const std::int32_t>(pointer);
}

bool IsValue(DataType type) { return type == DataType::kFloat32 || type == DataType::kBfloat16; }
bool IsStored(DataType type) { return type == DataType::kFloat16 || IsValue(type); }
bool IsCached(DataType type) { return type == DataType::kFloat8_e4m3 || IsStored(type); }

class CudaDispatch final : public KernelDispatch {
 public:
  CudaDispatch(Gemm& gemm, DeviceMemory& memory, const CudaDispatchOptions& options,
               Recorder recorder)
      : gemm_(gemm), memory_(memory), options_(options), recorder_(std::move(recorder)) {
    const DeviceScope scope(gemm.device().ordinal);
    options_.overlap = options.overlap && CanOverlap();
  }

  DeviceMemory& memory() override { return memory_; }

  // Products with weights of bfloat16 or of codes round their inputs to bfloat16 anyway. E4M3 codes
  // are better made of unrounded values: one rounded value in thirty falls to the other side of a
  // tie.
  DataType preferred_values(DataType weights) const override {
    const bool rounds = weights == DataType::kBfloat16 || IsCode(weights);
    return options_.round_product_inputs && rounds ? DataType::kBfloat16 : DataType::kFloat32;
  }

  // If the caller captures a graph, the kernels go into it. The default streams cannot be captured.
  bool records(cudaStream_t stream) const override {
    return recorder_ != nullptr && (stream == nullptr || !IsCapturing(stream));
  }
  // A graph takes milliseconds to prepare and to record, a row of padding next to nothing.
  bool prefers_buckets() const override { return true; }
  // 512 rows do not fill the chip with a small model's products.
  int preferred_step_tokens() const override { return 2048; }
  Result<std::unique_ptr<RecordedLaunches>> record(const LaunchFunction& launches) override {
    return recorder_(launches);
  }

  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    const auto type_of = [&](std::size_t input) { return graph.node(node.inputs[input]).type; };
    const Feasibility refusal = Feasibility::Refuse(
        "the CUDA dispatch computes on float32 and bfloat16 values; float16 is for weights, caches "
        "and casts");
    const auto ok = [&](bool all) { return all ? Feasibility::Ok() : refusal; };
    switch (node.op) {
      case TensorOp::kCopy:
        return Feasibility::Ok();
      case TensorOp::kCast:
        return ok(IsStored(type_of(0)) && IsStored(node.type));
      case TensorOp::kKvWrite:
        return ok(IsCached(node.type) && IsValue(type_of(1)));
      case TensorOp::kArgMax:
      case TensorOp::kSample:
        return ok(IsValue(type_of(0)));
      case TensorOp::kAdvance:
        return ok(IsValue(type_of(2)));
      case TensorOp::kEmbedding:
        return ok(IsValue(node.type));
      case TensorOp::kAttention:
        if (node.params.attention.value_dim > 0) {
          return IsValue(node.type) && IsValue(type_of(0)) ? Latent(node) : refusal;
        }
        if (node.params.attention.head_dim > kMostHeadDim) {
          return Feasibility::Refuse("the CUDA dispatch takes heads of at most 256 elements");
        }
        return ok(IsValue(node.type) && IsValue(type_of(0)) && IsCached(type_of(1)));
      case TensorOp::kRoute:
      case TensorOp::kExpertMulMat:
      case TensorOp::kCombine:
        return SupportsExperts(graph, node);
      case TensorOp::kCausalConv:
      case TensorOp::kGatedDelta:
        return SupportsLinear(graph, node);
      case TensorOp::kMulMat:
        // Codes and scales come as a quantize of this dispatch makes them.
        return Product(node, node.inputs.size() > 1 ? node.type : type_of(0), refusal);
      case TensorOp::kQuantize:
        return Product(node, type_of(0), refusal);
      case TensorOp::kAdd:
      case TensorOp::kMul:
      case TensorOp::kSilu:
      case TensorOp::kSwiGlu:
      case TensorOp::kGeGlu:
      case TensorOp::kClampedSwiGlu:
      case TensorOp::kScale:
      case TensorOp::kSoftCap:
      case TensorOp::kRmsNorm:
      case TensorOp::kLayerNorm:
      case TensorOp::kPositionScale:
      case TensorOp::kRope:
      case TensorOp::kGatherRows:
      case TensorOp::kHeadMulMat:
      case TensorOp::kHeadSlice:
      case TensorOp::kSigmoidGate:
        return ok(IsValue(node.type) && IsValue(type_of(0)));
      case TensorOp::kAllReduce:
      case TensorOp::kAllGather:
        return Feasibility::Refuse(kNeedsRanks);
      case TensorOp::kScales:
      case TensorOp::kRoutes:
        return Feasibility::Ok();  // made by the node before
      case TensorOp::kNone:
        break;
    }
    return Feasibility::Refuse("the CUDA dispatch does not have this operation");
  }

  Result<std::unique_ptr<PreparedNode>> prepare(const ComputeGraph& graph, int id) override {
    const DeviceScope scope(gemm_.device().ordinal);
    const TensorNode& node = graph.node(id);
    switch (node.op) {
      case TensorOp::kMulMat:
        return PrepareProduct(graph, id);
      case TensorOp::kExpertMulMat:
        return PreparedExperts::Create(memory_, gemm_.device(), graph, id);
      case TensorOp::kRope:
        return PrepareRope(node.params.rope);
      case TensorOp::kAttention:
        return PrepareAttentionOf(graph, node);
      case TensorOp::kQuantize:
        // Only useful if it overlaps the preceding kernel.
        return std::unique_ptr<PreparedNode>(std::make_unique<PreparedQuantize>(
            options_.overlap ? NextWeights(graph, id) : ReadNext{}));
      case TensorOp::kGatedDelta:
        return std::unique_ptr<PreparedNode>(std::make_unique<PreparedDelta>(graph, node));
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
      case TensorOp::kRoute:
        return RouteWorkspace(node);
      case TensorOp::kExpertMulMat:
        return static_cast<const PreparedExperts*>(prepared)->workspace_bytes();
      case TensorOp::kAttention:
        return static_cast<const PreparedAttention*>(prepared)->plan.workspace_bytes;
      case TensorOp::kGatedDelta:
        return static_cast<const PreparedDelta*>(prepared)->workspace_bytes();
      case TensorOp::kArgMax:
        return ArgMaxWorkspace(node.shape.rows, graph.node(node.inputs[0]).shape.cols);
      case TensorOp::kSample:
        return SampleWorkspace(node.shape.rows, graph.node(node.inputs[0]).shape.cols);
      default:
        return 0;
    }
  }

  std::vector<std::string> fusion_names() const override { return FusionNames(); }

  std::vector<Fusion> fusions(const ComputeGraph& graph) const override {
    const DeviceScope scope(gemm_.device().ordinal);
    std::vector<Fusion> found = FindFusions(graph, *fused_, gemm_.device());
    // A fusion of unsupported nodes is unsupported, and so is one on tensor cores when exact
    // results are asked for.
    std::erase_if(found, [&](const Fusion& fusion) {
      const bool attends = std::ranges::find(fusion.nodes, TensorOp::kAttention, [&](int id) {
                             return graph.node(id).op;
                           }) != fusion.nodes.end();
      if (attends && !options_.round_product_inputs) return true;
      return !std::ranges::all_of(fusion.nodes, [&](int id) { return supports(graph, id).ok(); });
    });
    return found;
  }

  Result<std::unique_ptr<PreparedNode>> prepare_fusion(const ComputeGraph& graph,
                                                       const Fusion& fusion) override {
    const DeviceScope scope(gemm_.device().ordinal);
    auto made = PreparedFusion::Create(gemm_, memory_, options_, rope_, *fused_, graph, fusion);
    if (!made) return made.status();
    return std::unique_ptr<PreparedNode>(*std::move(made));
  }

  std::size_t workspace_fusion(const ComputeGraph&, const Fusion&,
                               const PreparedNode* prepared) const override {
    return static_cast<const PreparedFusion*>(prepared)->workspace_bytes();
  }

  Status dispatch_fusion(const NodeLaunch& launch) override {
    return Prepared<PreparedFusion>().Launch(launch, stream());
  }

  Status launch(const NodeLaunch& launch) override {
    if (launch.prepared == nullptr) {
      return Status(StatusCode::kInvalidArgument,
                    "launch.prepared is null; give what prepare returned for the node");
    }
    const int ordinal = gemm_.device().ordinal;
    if (!IsStreamOf(launch.stream, ordinal)) return StreamOfAnother(ordinal);
    const DeviceScope scope(ordinal);
    return KernelDispatch::launch(launch);
  }

  Status dispatch_mul_mat(const TensorNode&, DevicePtr input, DevicePtr output, std::uint32_t,
                          std::uint32_t, std::uint32_t) override {
    const DevicePtr scales = current().inputs.size() > 1 ? current().input(1) : 0;
    return Prepared<PreparedProduct>().Launch(input, scales, output, 0, current().workspace,
                                              stream());
  }

  Status dispatch_other(const TensorNode& node, DevicePtr output) override {
    const DevicePtr x = current().input(0);
    const auto n = static_cast<std::size_t>(node.shape.rows * node.shape.cols);
    switch (node.op) {
      case TensorOp::kScale:
        return Elements(ElementOp::kScale, x, x, output, n, node.params.scalar);
      case TensorOp::kSoftCap:
        return Elements(ElementOp::kSoftCap, x, x, output, n, node.params.scalar);
      case TensorOp::kGeGlu:
        return Elements(ElementOp::kGeGlu, x, current().input(1), output, n);
      case TensorOp::kClampedSwiGlu:
        return Elements(ElementOp::kClampedSwiGlu, x, current().input(1), output, n,
                        node.params.scalar, node.params.slope);
      case TensorOp::kRoute:
        return LaunchRoute(current(), stream());
      case TensorOp::kExpertMulMat:
        return Prepared<PreparedExperts>().Launch(current(), stream());
      case TensorOp::kCombine:
        return LaunchCombine(current(), stream());
      case TensorOp::kLayerNorm:
        return Launched(LayerNorm(NormArgs(node, x, output, node.shape.rows), stream()));
      case TensorOp::kPositionScale: {
        PositionScaleArgs args;
        args.x = In(x);
        args.type = node.type;
        args.positions = Indices(current().input(1));
        args.ahead = node.params.int_param;
        args.by = node.params.scalar;
        args.original = node.params.rope.original_context;
        args.out = Out(output);
        args.rows = node.shape.rows;
        args.cols = node.shape.cols;
        return Launched(PositionScale(args, stream()));
      }
      case TensorOp::kHeadMulMat:
        return HeadProduct(node, output);
      case TensorOp::kSigmoidGate:
        return Elements(ElementOp::kSigmoidGate, x, current().input(1), output, n);
      case TensorOp::kHeadSlice:
      case TensorOp::kCausalConv:
      case TensorOp::kGatedDelta:
        return LaunchLinear(current(), stream());
      default:
        return KernelDispatch::dispatch_other(node, output);
    }
  }

  Status dispatch_rms_norm(const TensorNode& node, DevicePtr input, DevicePtr output, std::uint32_t,
                           std::uint32_t m, float) override {
    return Launched(RmsNorm(NormArgs(node, input, output, m), stream()));
  }

  Status dispatch_add(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    return Elements(ElementOp::kAdd, a, b, output, n);
  }
  Status dispatch_mul(DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n) override {
    return Elements(ElementOp::kMul, a, b, output, n);
  }
  Status dispatch_silu(DevicePtr input, DevicePtr output, std::size_t n) override {
    return Elements(ElementOp::kSilu, input, input, output, n);
  }
  Status dispatch_swiglu(DevicePtr gate, DevicePtr up, DevicePtr output, std::size_t n) override {
    return Elements(ElementOp::kSwiGlu, gate, up, output, n);
  }

  Status dispatch_rope(const TensorNode& node, DevicePtr qk, DevicePtr positions,
                       std::size_t n_positions, std::uint32_t head_dim,
                       std::uint32_t num_heads) override {
    RopeArgs args;
    args.x = Out(qk);
    args.type = node.type;
    args.positions = Indices(positions);
    args.turns = Prepared<PreparedRope>().turns;
    args.layout = node.params.rope.layout;
    args.attention_factor = static_cast<float>(node.params.rope.attention_factor);
    args.half = node.params.rope.dims / 2;
    args.first = node.params.rope.first;
    args.heads = static_cast<int>(num_heads);
    args.head_dim = static_cast<int>(head_dim);
    args.rows = static_cast<std::int64_t>(n_positions);
    return Launched(Rope(args, stream()));
  }

  Status dispatch_attention(const TensorNode& node, DevicePtr, DevicePtr, DevicePtr, DevicePtr,
                            std::uint32_t, std::size_t) override {
    const NodeLaunch& launch = current();
    AttentionArgs args = ArgsOfAttention(launch, node);
    args.early = Prepared<PreparedAttention>().early;
    args.plan = Prepared<PreparedAttention>().plan;
    args.workspace = Out(launch.workspace);
    args.counters = FromDevicePtr<unsigned>(launch.state);
    return Launched(Attention(args, stream()));
  }

  Status dispatch_copy(DevicePtr src, DevicePtr dst, std::size_t bytes) override {
    return Launched(
        cudaMemcpyAsync(Out(dst), In(src), bytes, cudaMemcpyDeviceToDevice, stream().stream));
  }

  Status dispatch_cast(const TensorNode& node, DevicePtr input, DevicePtr output,
                       std::size_t n) override {
    MoveRowsArgs args = Rows(input, current().input_node(0).type, 1, output, node.type, 1);
    args.rows = 1;
    args.cols = static_cast<std::int64_t>(n);
    return Launched(MoveRows(args, stream()));
  }

  Status dispatch_embedding(const TensorNode& node, DevicePtr ids, DevicePtr output,
                            std::uint32_t m) override {
    const Weight& table = node.params.weight;
    if (IsCode(table.type)) {
      RowsOfCodesArgs codes;
      codes.weight = CodesOf(table);
      codes.from = Indices(ids);
      codes.target = Out(output);
      codes.target_type = node.type;
      codes.rows = m;
      return Launched(RowsOfCodes(codes, stream()));
    }
    MoveRowsArgs args = Rows(table.data_ptr, table.type, table.rows, output, node.type, m);
    const TableRows of = RowsOf(table, node.params.parts);
    args.first_row = of.first;
    args.all_rows = of.all;
    args.from = Indices(ids);
    args.rows = m;
    args.cols = table.cols;
    return Launched(MoveRows(args, stream()));
  }

  Status dispatch_gather_rows(const TensorNode& node, DevicePtr input, DevicePtr indices,
                              DevicePtr output, std::uint32_t m) override {
    const Shape from = current().input_node(0).shape;
    MoveRowsArgs args = Rows(input, node.type, from.rows, output, node.type, m);
    args.from = Indices(indices);
    args.rows = m;
    args.cols = from.cols;
    return Launched(MoveRows(args, stream()));
  }

  Status dispatch_kv_write(const TensorNode& node, DevicePtr rows, DevicePtr slots, DevicePtr cache,
                           std::uint32_t m) override {
    if (node.type == DataType::kFloat8_e4m3) {
      CacheRowsArgs args;
      args.source = In(rows);
      args.source_type = current().input_node(1).type;
      args.slots = Indices(slots);
      args.cache = FromDevicePtr<std::uint8_t>(cache);
      args.scales = FromDevicePtr<const float>(current().input(3));
      args.cache_rows = node.shape.rows;
      args.rows = m;
      args.cols = node.shape.cols;
      args.head_dim = static_cast<int>(args.cols / current().input_node(3).shape.cols);
      return Launched(WriteCacheRows(args, stream()));
    }
    MoveRowsArgs args =
        Rows(rows, current().input_node(1).type, m, cache, node.type, node.shape.rows);
    args.to = Indices(slots);
    args.rows = m;
    args.cols = node.shape.cols;
    return Launched(MoveRows(args, stream()));
  }

  Status dispatch_quantize(const TensorNode& node, DevicePtr input, DevicePtr codes,
                           DevicePtr scales, std::uint32_t m, std::uint32_t k) override {
    if (node.params.quant_a.type == QuantType::kRow) {
      return Launched(QuantizeWholeRows(In(input), current().input_node(0).type, m, k,
                                        node.params.scalar, FromDevicePtr<std::uint8_t>(codes),
                                        FromDevicePtr<float>(scales), stream()));
    }
    return Launched(QuantizeRows(In(input), current().input_node(0).type, m, k,
                                 FromDevicePtr<std::uint8_t>(codes), FromDevicePtr<float>(scales),
                                 stream(), Prepared<PreparedQuantize>().next));
  }

  Status dispatch_advance(const TensorNode& node, DevicePtr log, DevicePtr tokens,
                          std::uint32_t m) override {
    const NodeLaunch& launch = current();
    const auto changed = [&](int i) { return FromDevicePtr<std::int32_t>(launch.input(i)); };
    AdvanceArgs args;
    args.log = FromDevicePtr<std::int32_t>(log);
    args.tokens = Indices(tokens);
    args.logits = In(launch.input(2));
    args.logits_type = launch.input_node(2).type;
    args.ids = changed(3);
    args.positions = changed(4);
    args.slots = changed(5);
    args.lengths = changed(6);
    args.table = Indices(launch.input(7));
    args.log_rows = node.shape.rows;
    args.sequences = m;
    args.vocab = launch.input_node(2).shape.cols;
    args.blocks = launch.input_node(7).shape.cols;
    args.block_size = node.params.attention.block_size;
    if (launch.inputs.size() > 8) {
      args.other_slots = changed(8);
      args.other_table = Indices(launch.input(9));
      args.other_blocks = launch.input_node(9).shape.cols;
    }
    return Launched(Advance(args, stream()));
  }

  Status dispatch_argmax(const TensorNode&, DevicePtr input, DevicePtr output, std::uint32_t m,
                         std::uint32_t n) override {
    return Launched(ArgMax(In(input), current().input_node(0).type,
                           FromDevicePtr<std::int32_t>(output), m, n, Out(current().workspace),
                           stream()));
  }

  Status dispatch_sample(const TensorNode& node, DevicePtr logits, DevicePtr options,
                         DevicePtr draws, DevicePtr output, std::uint32_t m,
                         std::uint32_t n) override {
    SampleArgs args;
    args.logits = In(logits);
    args.type = current().input_node(0).type;
    args.options = Indices(options);
    args.draws = Indices(draws);
    args.first_draw = node.params.int_param;
    args.out = FromDevicePtr<std::int32_t>(output);
    args.rows = m;
    args.cols = n;
    args.workspace = Out(current().workspace);
    return Launched(Sample(args, stream()));
  }

 private:
  static Feasibility Latent(const TensorNode& node) {
    const AttentionParams& p = node.params.attention;
    if (p.head_dim <= kMostLatentKey && p.value_dim <= kMostLatentValue) return Feasibility::Ok();
    return Feasibility::Refuse(
        "the CUDA dispatch takes keys of at most 576 elements whose first 512 at most are values");
  }

  Status HeadProduct(const TensorNode& node, DevicePtr output) {
    const Weight& weight = node.params.weight;
    const TensorNode& x = current().input_node(0);
    HeadMulMatArgs args;
    args.x = In(current().input(0));
    args.x_type = x.type;
    args.weight = In(weight.data_ptr);
    args.weight_type = weight.type;
    args.out = Out(output);
    args.out_type = node.type;
    args.rows = node.shape.rows;
    args.in = node.params.head_dim;
    args.heads = x.shape.cols / args.in;
    args.sums = weight.rows / args.heads;
    args.k = weight.cols;
    return Launched(HeadMulMat(args, stream()));
  }

  static Feasibility Product(const TensorNode& node, DataType input, const Feasibility& refusal) {
    constexpr int kGroup = 128;
    const bool codes = node.op == TensorOp::kQuantize;
    if ((!codes && !IsValue(node.type)) || !IsValue(input)) return refusal;
    const QuantDesc& quant = node.params.quant_a;
    if (quant.type == QuantType::kNone) return Feasibility::Ok();
    if (quant.type == QuantType::kRow) {
      if (codes || node.inputs.size() > 1) return Feasibility::Ok();
      return Feasibility::Refuse(
          "the CUDA dispatch quantises rows in a quantize node, not within a "
          "product");
    }
    if (quant.group_size != kGroup) {
      return Feasibility::Refuse("the CUDA dispatch quantises inputs in groups of 128, or rows");
    }
    return Feasibility::Ok();
  }

  Result<std::unique_ptr<PreparedNode>> PrepareProduct(const ComputeGraph& graph, int id) {
    auto made = PreparedProduct::Create(gemm_, memory_, options_, ProductSpec::Of(graph, id));
    if (!made) return made.status();
    return std::unique_ptr<PreparedNode>(*std::move(made));
  }

  Result<std::unique_ptr<PreparedNode>> PrepareAttentionOf(const ComputeGraph& graph,
                                                           const TensorNode& node) const {
    const AttentionShape shape = ShapeOfAttention(graph, node);
    auto made = std::make_unique<PreparedAttention>();
    made->plan = PlanAttention(shape, !options_.round_product_inputs, gemm_.device().units,
                               CanOverlap(), CanMultiplyWarpgroups());
    made->early = MayReadEarly(graph, node);
    CULET_RETURN_IF_ERROR(
        CudaStatus(PrepareAttention(shape, made->plan), "preparing attention's shared memory"));
    return std::unique_ptr<PreparedNode>(std::move(made));
  }

  Result<std::unique_ptr<PreparedNode>> PrepareRope(const RopeParams& params) {
    const auto turns = rope_.Of(params);
    if (!turns) return turns.status();
    auto made = std::make_unique<PreparedRope>();
    made->turns = *turns;
    return std::unique_ptr<PreparedNode>(std::move(made));
  }

  Status Launched(cudaError_t error) const {
    return CudaStatus(error, std::string("launching ") + ToString(current().node().op));
  }

  // Of groups of gamma's length.
  RmsNormArgs NormArgs(const TensorNode& node, DevicePtr input, DevicePtr output,
                       std::int64_t groups) {
    RmsNormArgs args;
    args.x = In(input);
    args.x_type = current().input_node(0).type;
    args.gamma = In(node.params.gamma.data_ptr);
    args.gamma_type = node.params.gamma.type;
    args.epsilon = node.params.scalar;
    args.out = Out(output);
    args.out_type = node.type;
    args.groups = groups;
    args.stride = node.params.head_dim;
    args.width = static_cast<int>(node.params.gamma.cols);
    return args;
  }

  Status Elements(ElementOp op, DevicePtr a, DevicePtr b, DevicePtr output, std::size_t n,
                  float scalar = 0, float slope = 0) {
    return Launched(ElementWise(op, current().node().type, In(a), In(b), Out(output),
                                static_cast<std::int64_t>(n), scalar, slope, stream()));
  }

  static MoveRowsArgs Rows(DevicePtr source, DataType source_type, std::int64_t source_rows,
                           DevicePtr target, DataType target_type, std::int64_t target_rows) {
    MoveRowsArgs args;
    args.source = In(source);
    args.source_type = source_type;
    args.source_rows = source_rows;
    args.target = Out(target);
    args.target_type = target_type;
    args.target_rows = target_rows;
    return args;
  }

  // A graph's first kernel begins only when the whole previous launch has ended (MayReadEarly).
  LaunchStream stream() const noexcept {
    return {current().stream, options_.overlap && current().previous != nullptr};
  }
  template <class T>
  const T& Prepared() const noexcept {
    return *static_cast<const T*>(current().prepared);
  }

  Gemm& gemm_;
  DeviceMemory& memory_;
  CudaDispatchOptions options_;
  Recorder recorder_;
  RopeTables rope_{memory_};
  // Remembers what was decided for each problem.
  const std::unique_ptr<FusedProducts> fused_ = std::make_unique<FusedProducts>(gemm_, options_);
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeDispatch(Gemm& gemm, DeviceMemory& memory,
                                             const CudaDispatchOptions& options,
                                             Recorder recorder) {
  return std::make_unique<CudaDispatch>(gemm, memory, options, std::move(recorder));
}

}  // namespace culet::cuda_ops
