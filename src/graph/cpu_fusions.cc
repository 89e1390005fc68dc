#include "graph/cpu_fusions.h"

#include <algorithm>
#include <utility>

#include "base/float_types.h"
#include "graph/fusion_search.h"
#include "kernels/ops/ops.h"

namespace culet {
namespace {

constexpr const char* kAddRmsNorm = "add_rms_norm";
constexpr const char* kAddRmsNormQuantize = "add_rms_norm_quantize";
constexpr const char* kRmsNormQuantize = "rms_norm_quantize";
constexpr const char* kSwiGluQuantize = "swiglu_quantize";

bool IsFloat32(const ComputeGraph& graph, int id, TensorOp op) {
  return graph.node(id).op == op && graph.node(id).type == DataType::kFloat32;
}

// The node's input if the node is such an operation, else -1.
int Before(const ComputeGraph& graph, int id, TensorOp op) {
  const int input = graph.node(id).inputs[0];
  return IsFloat32(graph, input, op) ? input : -1;
}

// What a quantize can be fused with.
void FindQuantized(const ComputeGraph& graph, const Readers& readers, int id,
                   std::vector<Fusion>& found) {
  const TensorNode& node = graph.node(id);
  const QuantDesc& quant = node.params.quant_a;
  if (quant.type != QuantType::kK || quant.group_size > ops::kMostFusedGroup ||
      !readers.IsOne(node.inputs[0])) {
    return;
  }
  if (const int inner = Before(graph, id, TensorOp::kSwiGlu); inner >= 0) {
    found.push_back({kSwiGluQuantize, {inner, id}, {}});
  }
  const int norm = Before(graph, id, TensorOp::kRmsNorm);
  if (norm < 0 || graph.node(norm).params.gamma.cols != node.shape.cols) return;
  if (const int sum = Before(graph, norm, TensorOp::kAdd); sum >= 0) {
    found.push_back(WithSum(graph, kAddRmsNormQuantize, {sum, norm, id}));
  }
  if (graph.node(graph.node(norm).inputs[0]).type == DataType::kFloat32) {
    found.push_back({kRmsNormQuantize, {norm, id}, {}});
  }
}

const float* In(DevicePtr pointer) { return FromDevicePtr<const float>(pointer); }

// A norm, of a sum or not, quantised or not.
class FusedNorm final : public PreparedFusion {
 public:
  FusedNorm(const ComputeGraph& graph, const Fusion& fusion)
      : kernel_("cpu/" + fusion.name),
        sum_(graph.node(fusion.nodes[0]).op == TensorOp::kAdd ? fusion.nodes[0] : -1),
        norm_(fusion.nodes[sum_ < 0 ? 0 : 1]),
        gamma_(Gamma(graph.node(norm_).params.gamma)) {}

  std::string kernel() const override { return kernel_; }

  void Launch(const NodeLaunch& launch) const override {
    const ComputeGraph& graph = *launch.graph;
    const TensorNode &norm = graph.node(norm_), &last = launch.node();
    const std::vector<int>& operands = graph.node(sum_ < 0 ? norm_ : sum_).inputs;
    const float* const x = In(launch.value(operands[0]));
    const float* const y = sum_ < 0 ? nullptr : In(launch.value(operands[1]));
    auto* sum = FromDevicePtr<float>(sum_ < 0 ? 0 : launch.value(sum_));
    const auto groups =
        norm.shape.rows * norm.shape.cols / static_cast<std::int64_t>(gamma_.size());
    if (last.op == TensorOp::kQuantize) {
      const ops::QuantizedTo to{last.params.quant_a.group_size,
                                FromDevicePtr<std::uint8_t>(launch.output),
                                FromDevicePtr<float>(launch.value(launch.id + 1))};
      ops::RmsNormQuantize(x, y, gamma_, norm.params.scalar, sum, groups, to);
      return;
    }
    auto* const out = FromDevicePtr<float>(launch.output);
    // A sum that only the norm reads needs no place of its own.
    ops::AddRmsNorm(x, y, gamma_, norm.params.scalar, sum != nullptr ? sum : out, out, groups);
  }

 private:
  std::string kernel_;
  int sum_, norm_;
  std::vector<float> gamma_;
};

class FusedSwiGlu final : public PreparedFusion {
 public:
  explicit FusedSwiGlu(int inner) : inner_(inner) {}
  std::string kernel() const override { return std::string("cpu/") + kSwiGluQuantize; }

  void Launch(const NodeLaunch& launch) const override {
    const TensorNode &inner = launch.graph->node(inner_), &last = launch.node();
    const ops::QuantizedTo to{last.params.quant_a.group_size,
                              FromDevicePtr<std::uint8_t>(launch.output),
                              FromDevicePtr<float>(launch.value(launch.id + 1))};
    ops::SwiGluQuantize(In(launch.value(inner.inputs[0])), In(launch.value(inner.inputs[1])),
                        inner.shape.rows, inner.shape.cols, to);
  }

 private:
  int inner_;
};

}  // namespace

std::vector<float> Gamma(const Weight& weight) {
  std::vector<float> gamma;
  for (std::int64_t i = 0; i < weight.cols; ++i) {
    gamma.push_back(static_cast<float>(
        LoadAsDouble(FromDevicePtr<const void>(weight.data_ptr), weight.type, i)));
  }
  return gamma;
}

std::vector<std::string> CpuFusionNames() {
  return {kAddRmsNormQuantize, kRmsNormQuantize, kSwiGluQuantize, kAddRmsNorm};
}

std::vector<Fusion> CpuFusions(const ComputeGraph& graph) {
  const Readers readers(graph);
  std::vector<Fusion> found;
  for (int id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op == TensorOp::kQuantize) FindQuantized(graph, readers, id, found);
  }
  for (int id = 0; id < graph.size(); ++id) {
    if (!IsFloat32(graph, id, TensorOp::kRmsNorm)) continue;
    if (const int sum = Before(graph, id, TensorOp::kAdd); sum >= 0) {
      found.push_back(WithSum(graph, kAddRmsNorm, {sum, id}));
    }
  }
  // A sum that nobody else reads has no memory, and the codes are too small to hold it.
  std::erase_if(found, [&](const Fusion& fusion) {
    const bool lost = fusion.name == kAddRmsNormQuantize && readers.IsOne(fusion.nodes.front());
    return lost || !CanFuse(graph, fusion).ok();
  });
  return found;
}

std::unique_ptr<PreparedFusion> PreparedFusion::Create(const ComputeGraph& graph,
                                                       const Fusion& fusion) {
  if (fusion.name == kSwiGluQuantize) return std::make_unique<FusedSwiGlu>(fusion.nodes.front());
  return std::make_unique<FusedNorm>(graph, fusion);
}

}  // namespace culet
