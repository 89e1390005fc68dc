// Fusions as they are launched.
#include "graph/cuda/fusions.h"

#include <algorithm>
#include <numbers>
#include <utility>

#include "cuda/error.h"
#include "graph/cpu_product.h"
#include "graph/cuda/attention.h"
#include "graph/cuda/experts.h"
#include "graph/cuda/fused.h"
#include "graph/cuda/fused_norm.h"
#include "graph/cuda/group_product.h"
#include "graph/cuda/router.h"
#include "graph/fusion_search.h"
#include "kernels/cuda_ops/fused.h"

namespace culet::cuda_ops {
namespace {

const void* In(DevicePtr pointer) { return FromDevicePtr<const void>(pointer); }
void* Out(DevicePtr pointer) { return FromDevicePtr<void>(pointer); }
const std::int32_t* Indices(DevicePtr pointer) {
  return FromDevicePtr<const std::int32_t>(pointer);
}

// The codes and scales that the launch makes, if its last node is a quantize.
CodesTo Codes(const NodeLaunch& launch) {
  if (launch.node().op != TensorOp::kQuantize) return {};
  return {FromDevicePtr<std::uint8_t>(launch.output),
          FromDevicePtr<float>(launch.value(launch.id + 1))};
}

// Whether it is the fusion of this name, with a norm before it or without.
bool IsNamed(const Fusion& fusion, const char* name) {
  return fusion.name == name || fusion.name == InputNorm::NameBefore(name);
}

Status Launched(cudaError_t error, const std::string& kernel) {
  return CudaStatus(error, "launching " + kernel);
}

class PreparedNorm final : public PreparedFusion {
 public:
  PreparedNorm(const ComputeGraph& graph, const Fusion& fusion)
      : kernel_("cuda/" + fusion.name), norm_(graph, fusion) {}

  std::string kernel() const override { return kernel_; }
  Status Launch(const NodeLaunch& launch, LaunchStream stream) const override {
    return Launched(FusedNorm(norm_.Args(launch), stream), kernel_);
  }

 private:
  std::string kernel_;
  NormOfFusion norm_;
};

// With products on joined weights before it, or without.
class PreparedSwiGlu final : public PreparedFusion {
 public:
  PreparedSwiGlu(const ComputeGraph& graph, const Fusion& fusion,
                 std::unique_ptr<GroupProduct> product)
      : name_(fusion.name),
        inner_(FirstOf(graph, fusion, TensorOp::kSwiGlu)),
        product_(std::move(product)) {
    const TensorNode& node = graph.node(inner_);
    if (product_ == nullptr || IsGated(product_->epilogue())) return;
    values_bytes_ = PaddedTo256(2 * static_cast<std::size_t>(BytesOf(node)));
  }

  std::string kernel() const override {
    if (product_ == nullptr) return "cuda/" + name_;
    return product_->kernel() + (IsGated(product_->epilogue()) ? "" : " + cuda/swiglu");
  }
  std::size_t workspace_bytes() const override {
    return product_ == nullptr ? 0 : values_bytes_ + product_->workspace_bytes();
  }

  Status Launch(const NodeLaunch& launch, LaunchStream stream) const override {
    const ComputeGraph& graph = *launch.graph;
    const TensorNode& inner = graph.node(inner_);
    if (product_ != nullptr && product_->epilogue() == Epilogue::kGatedSilu) {
      return product_->Launch(launch, launch.value(inner_), 0, launch.workspace, stream);
    }
    if (product_ != nullptr && product_->epilogue() == Epilogue::kGatedSiluQuant) {
      return product_->Launch(launch, launch.output, launch.value(launch.id + 1), launch.workspace,
                              stream);
    }
    FusedSwiGluArgs args;
    args.type = inner.type;
    args.rows = inner.shape.rows;
    args.cols = inner.shape.cols;
    DevicePtr gate = 0, up = 0;
    if (product_ != nullptr) {
      CULET_RETURN_IF_ERROR(
          product_->Launch(launch, launch.workspace, 0, launch.workspace + values_bytes_, stream));
      args.stride = 2 * args.cols;
      gate = launch.workspace;
      up = gate + static_cast<DevicePtr>(args.cols) * SizeOf(args.type);
    } else {
      args.stride = args.cols;
      gate = launch.value(inner.inputs[0]);
      up = launch.value(inner.inputs[1]);
    }
    args.gate = In(gate);
    args.up = In(up);
    args.out = Out(launch.value(inner_));
    args.to = Codes(launch);
    return Launched(FusedSwiGlu(args, stream), "swiglu");
  }

 private:
  std::string name_;
  int inner_;
  std::unique_ptr<GroupProduct> product_;
  std::size_t values_bytes_ = 0;
};

// With the attention behind it, or without.
class PreparedHeads final : public PreparedFusion {
 public:
  PreparedHeads(const ComputeGraph& graph, const Heads& heads, const double* turns,
                const AttentionPlan& plan, std::unique_ptr<GroupProduct> product)
      : heads_(heads), turns_(turns), plan_(plan), product_(std::move(product)) {
    for (const int id : heads.Products()) {
      values_bytes_ += static_cast<std::size_t>(BytesOf(graph.node(id)));
    }
    values_bytes_ = PaddedTo256(values_bytes_);
    if (heads.attention < 0) return;
    const int slots = graph.node(heads.key_write).inputs[2];
    early_ =
        MayReadEarly(graph, graph.node(heads.attention)) && graph.node(slots).op == TensorOp::kNone;
  }

  std::string kernel() const override {
    if (heads_.attention < 0) return product_->kernel() + " + cuda/heads";
    return product_->kernel() + " + cuda/attention/" + NameOfDecode(plan_);
  }
  std::size_t state_bytes() const override { return plan_.state_bytes; }
  std::size_t workspace_bytes() const override {
    return values_bytes_ + std::max(product_->workspace_bytes(), plan_.workspace_bytes);
  }

  Status Launch(const NodeLaunch& launch, LaunchStream stream) const override {
    const ComputeGraph& graph = *launch.graph;
    const TensorNode &q = graph.node(heads_.q_rope), &k = graph.node(heads_.k_rope);
    const TensorNode &keys = graph.node(heads_.key_write), &values = graph.node(heads_.value_write);
    CULET_RETURN_IF_ERROR(
        product_->Launch(launch, launch.workspace, 0, launch.workspace + values_bytes_, stream));
    FusedHeadsArgs args;
    args.qkv = In(launch.workspace);
    args.type = q.type;
    if (heads_.q_norm >= 0) {
      const OpParams &of_q = graph.node(heads_.q_norm).params,
                     &of_k = graph.node(heads_.k_norm).params;
      args.q_gamma = In(of_q.gamma.data_ptr);
      args.k_gamma = In(of_k.gamma.data_ptr);
      args.q_gamma_type = of_q.gamma.type;
      args.k_gamma_type = of_k.gamma.type;
      args.q_epsilon = of_q.scalar;
      args.k_epsilon = of_k.scalar;
    }
    args.rope.positions = Indices(launch.value(q.inputs[1]));
    args.rope.turns = turns_;
    args.rope.layout = q.params.rope.layout;
    args.rope.attention_factor = static_cast<float>(q.params.rope.attention_factor);
    args.rope.half = q.params.rope.dims / 2;
    args.out = Out(launch.value(heads_.q_rope));
    args.keys = Out(launch.value(heads_.key_write));
    args.values = Out(launch.value(heads_.value_write));
    args.cache_type = keys.type;
    if (keys.type == DataType::kFloat8_e4m3) {
      args.key_scales = FromDevicePtr<const float>(launch.value(keys.inputs[3]));
      args.value_scales = FromDevicePtr<const float>(launch.value(values.inputs[3]));
    }
    args.key_slots = Indices(launch.value(keys.inputs[2]));
    args.value_slots = Indices(launch.value(values.inputs[2]));
    args.cache_rows = keys.shape.rows;
    args.head_dim = q.params.head_dim;
    args.heads = static_cast<int>(q.shape.cols) / args.head_dim;
    args.kv_heads = static_cast<int>(k.shape.cols) / args.head_dim;
    args.rows = q.shape.rows;
    if (heads_.attention < 0) return Launched(FusedHeads(args, stream), "heads");
    AttentionArgs attention = ArgsOfAttention(launch, graph.node(heads_.attention));
    attention.early = early_;
    attention.plan = plan_;
    attention.workspace = Out(launch.workspace + values_bytes_);
    attention.counters = FromDevicePtr<unsigned>(launch.state);
    return Launched(HeadsAttention(args, attention, stream), "heads and attention");
  }

 private:
  Heads heads_;
  const double* turns_;
  AttentionPlan plan_;
  bool early_ = false;
  std::unique_ptr<GroupProduct> product_;
  std::size_t values_bytes_ = 0;
};

// The nodes of kQkv or kQkvAttention by what they are: three products, ascending as q, k, v.
Heads HeadsOf(const ComputeGraph& graph, const Fusion& fusion) {
  Heads heads;
  std::vector<int> products, ropes, norms, writes;
  // Nodes before the products are not part of the heads' work.
  const auto first =
      std::ranges::find(fusion.nodes, TensorOp::kMulMat, [&](int id) { return graph.node(id).op; });
  for (const int id : std::ranges::subrange(first, fusion.nodes.end())) {
    const TensorOp op = graph.node(id).op;
    if (op == TensorOp::kAttention) {
      heads.attention = id;
      continue;
    }
    (op == TensorOp::kMulMat    ? products
     : op == TensorOp::kRope    ? ropes
     : op == TensorOp::kRmsNorm ? norms
                                : writes)
        .push_back(id);
  }
  heads.q = products[0], heads.k = products[1], heads.v = products[2];
  const auto follows = [&](int id, int product) {
    const int input = graph.node(id).inputs[0];
    return input == product || (std::ranges::find(norms, input) != norms.end() &&
                                graph.node(input).inputs[0] == product);
  };
  for (const int id : norms) {
    (graph.node(id).inputs[0] == heads.q ? heads.q_norm : heads.k_norm) = id;
  }
  for (const int id : ropes) (follows(id, heads.q) ? heads.q_rope : heads.k_rope) = id;
  for (const int id : writes) {
    (graph.node(id).inputs[1] == heads.v ? heads.value_write : heads.key_write) = id;
  }
  return heads;
}

}  // namespace

Result<const double*> RopeTables::Of(const RopeParams& params) {
  for (const auto& [known, table] : tables_) {
    if (known == params) return FromDevicePtr<const double>(table.get());
  }
  std::vector<double> turns = RopeFrequencies(params);
  for (double& frequency : turns) frequency /= 2 * std::numbers::pi;
  const std::size_t bytes = turns.size() * sizeof(double);
  auto buffer = DeviceBuffer::Create(memory_, bytes);
  if (!buffer) return buffer.status();
  CULET_RETURN_IF_ERROR(memory_.Upload(buffer->get(), turns.data(), bytes, nullptr));
  CULET_RETURN_IF_ERROR(memory_.Synchronize(nullptr));  // launches may be on any stream
  tables_.emplace_back(params, *std::move(buffer));
  return FromDevicePtr<const double>(tables_.back().second.get());
}

Result<std::unique_ptr<PreparedFusion>> PreparedFusion::Create(
    Gemm& gemm, DeviceMemory& memory, const CudaDispatchOptions& options, RopeTables& tables,
    FusedProducts& fused, const ComputeGraph& graph, const Fusion& fusion) {
  const auto product = [&](std::span<const int> products, Epilogue may) {
    return GroupProduct::Create(gemm, memory, options, fused, graph, fusion, products, may);
  };
  if (IsNamed(fusion, kQkv) || IsNamed(fusion, kQkvAttention)) {
    const Heads heads = HeadsOf(graph, fusion);
    auto made = product(heads.Products(), Epilogue::kNone);
    if (!made) return made.status();
    const auto turns = tables.Of(graph.node(heads.q_rope).params.rope);
    if (!turns) return turns.status();
    AttentionPlan plan;
    if (heads.attention >= 0) {
      const AttentionShape shape = ShapeOfAttention(graph, graph.node(heads.attention));
      plan =
          PlanAttention(shape, false, gemm.device().units, CanOverlap(), CanMultiplyWarpgroups());
      CULET_RETURN_IF_ERROR(
          CudaStatus(PrepareHeadsAttention(shape, plan), "preparing attention's shared memory"));
    }
    return std::unique_ptr<PreparedFusion>(
        std::make_unique<PreparedHeads>(graph, heads, *turns, plan, *std::move(made)));
  }
  if (fusion.name == kExpertsGateUp) {
    return PreparedGatedExperts::Create(gemm, memory, options, graph, fusion);
  }
  if (FirstOf(graph, fusion, TensorOp::kRoute) >= 0) return MakePreparedRouter(graph, fusion);
  const int inner = FirstOf(graph, fusion, TensorOp::kSwiGlu);
  if (inner < 0) {
    return std::unique_ptr<PreparedFusion>(std::make_unique<PreparedNorm>(graph, fusion));
  }
  std::unique_ptr<GroupProduct> before;
  if (fusion.name != kSwiGluQuantize) {
    // Codes only, if nobody reads the values themselves.
    const Epilogue may = IsNamed(fusion, kGateUp)      ? Epilogue::kGatedSilu
                         : Readers(graph).IsOne(inner) ? Epilogue::kGatedSiluQuant
                                                       : Epilogue::kNone;
    auto made = product(graph.node(inner).inputs, may);
    if (!made) return made.status();
    before = *std::move(made);
  }
  return std::unique_ptr<PreparedFusion>(
      std::make_unique<PreparedSwiGlu>(graph, fusion, std::move(before)));
}

}  // namespace culet::cuda_ops
