#include "graph/cuda/fused_product.h"

#include <algorithm>
#include <limits>

namespace culet::cuda_ops {
namespace {

// Microseconds that a small kernel adds to a step on an H200. A norm takes 1.8 to 2.9 from the end
// of the kernel before it to its own (docs/performance.md), but the product behind it begins then.
constexpr double kNormUs = 1.6, kSwiGluUs = 1.7;

bool Within(const Fusion& fusion, int id) {
  return std::ranges::find(fusion.nodes, id) != fusion.nodes.end();
}

}  // namespace

InputNorm NormWithin(const ComputeGraph& graph, const Fusion& fusion, int product) {
  InputNorm found;
  int id = graph.node(product).inputs[0];
  if (Within(fusion, id) && graph.node(id).op == TensorOp::kQuantize) {
    found.codes = id;
    id = graph.node(id).inputs[0];
  }
  if (!Within(fusion, id) || graph.node(id).op != TensorOp::kRmsNorm) return {};
  found.norm = id;
  const int x = graph.node(id).inputs[0];
  if (Within(fusion, x) && graph.node(x).op == TensorOp::kAdd) found.sum = x;
  return found;
}

ProductFusion FusionWith(const ComputeGraph& graph, const InputNorm& norm, bool gated) {
  const OpParams& params = graph.node(norm.norm).params;
  ProductFusion fusion;
  fusion.gamma = FromDevicePtr<const void>(params.gamma.data_ptr);
  fusion.gamma_type = params.gamma.type;
  fusion.epsilon = params.scalar;
  fusion.adds = norm.sum >= 0;
  fusion.gated = gated;
  return fusion;
}

const FusedChoice* FusedProducts::Choose(const ProductSpec& product, const ProductFusion& fusion) {
  const auto desc = Describe(ArgsOf(product, options_, gemm_.device().units), gemm_.device().arch);
  if (!desc) return nullptr;  // the product alone will say why
  const Key key{*desc, fusion.gamma_type, fusion.adds, fusion.gated};
  auto found = decided_.find(key);
  if (found == decided_.end()) found = decided_.emplace(key, Decide(*desc, fusion)).first;
  return found->second.kernel != nullptr ? &found->second : nullptr;
}

FusedChoice FusedProducts::Decide(const GemmDesc& desc, const ProductFusion& fusion) {
  const auto alone = gemm_.Choose(desc, options_.policy);
  if (!alone) return {};
  const HardwareRates& rates = gemm_.rates(desc.b.type);
  const auto takes = [&](const LaunchSpec& spec) -> const FusesProducts* {
    const auto* const kernel = dynamic_cast<const FusesProducts*>(spec.kernel);
    const bool can = kernel != nullptr && kernel->WhyFused(desc, fusion, spec.splits).ok();
    return can ? kernel : nullptr;
  };
  const GemmDesc launched = AsLaunched(desc, *alone);
  double best =
      alone->kernel->PredictUs(launched, gemm_.device(), rates, alone->swizzle, alone->splits) +
      kNormUs + (fusion.gated ? kSwiGluUs : 0.0);
  FusedChoice choice;
  // Where the engine's choice fuses, no other one is looked at: the product keeps its bits.
  if (const FusesProducts* const kernel = takes(*alone); kernel != nullptr) {
    const double us =
        kernel->PredictFusedUs(launched, fusion, gemm_.device(), rates, alone->splits);
    if (us < best) choice = {*alone, kernel};
    return choice;
  }
  for (const LaunchSpec& spec : gemm_.Candidates(desc)) {
    const FusesProducts* const kernel = takes(spec);
    if (kernel == nullptr) continue;
    const double us =
        kernel->PredictFusedUs(AsLaunched(desc, spec), fusion, gemm_.device(), rates, spec.splits);
    if (us < best) best = us, choice = {spec, kernel};
  }
  return choice;
}

Result<std::unique_ptr<PreparedFusedProduct>> FusedProducts::Prepare(
    const FusedChoice& choice, const ProductSpec& product, const ProductFusion& fusion) const {
  GemmArgs args = ArgsOf(product, options_, gemm_.device().units);
  args.operation = AsLaunched(args.operation, choice.spec);
  return choice.kernel->PrepareFused(args, fusion, choice.spec.splits);
}

}  // namespace culet::cuda_ops
