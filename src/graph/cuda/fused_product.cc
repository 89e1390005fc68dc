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

// The predicted time of an engine's choice.
double PredictedUs(const Gemm& gemm, const GemmDesc& desc, const LaunchSpec& spec) {
  return spec.kernel->PredictUs(AsLaunched(desc, spec), gemm.device(), gemm.rates(desc.b.type),
                                spec.swizzle, spec.splits);
}

// SwiGlu as a separate kernel, of values that a product left in memory.
double SwiGluUs(const ProductSpec& product, const Gemm& gemm, DataType out) {
  const double columns = static_cast<double>(product.weight.rows) / 2;
  const double bytes = static_cast<double>(product.rows) * columns *
                       static_cast<double>(2 * SizeOf(product.output_type) + SizeOf(out));
  return kSwiGluUs + bytes / (gemm.rates(product.weight.type).read_gbps * 1e3);
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
  const auto takes = [&](const LaunchSpec& spec) -> const FusesProducts* {
    const auto* const kernel = dynamic_cast<const FusesProducts*>(spec.kernel);
    const bool can = kernel != nullptr && kernel->WhyFused(desc, fusion, spec.splits).ok();
    return can ? kernel : nullptr;
  };
  const HardwareRates& rates = gemm_.rates(desc.b.type);
  const GemmDesc launched = AsLaunched(desc, *alone);
  double best = PredictedUs(gemm_, desc, *alone) + kNormUs + (fusion.gated ? kSwiGluUs : 0.0);
  FusedChoice choice;
  // If the engine's choice can fuse, no other kernel is considered, so that the product keeps its
  // bits.
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

bool FusedProducts::Pairs(ProductSpec product, Epilogue epilogue) const {
  const auto predicted = [&]() -> std::optional<double> {
    const auto desc =
        Describe(ArgsOf(product, options_, gemm_.device().units), gemm_.device().arch);
    if (!desc) return std::nullopt;
    const auto chosen = gemm_.Choose(*desc, options_.policy);
    if (!chosen) return std::nullopt;
    return PredictedUs(gemm_, *desc, *chosen);
  };
  const std::optional<double> apart = predicted();
  product.epilogue = epilogue;
  const std::optional<double> paired = predicted();
  if (!apart || !paired) return false;  // the product alone will say why
  const DataType out =
      epilogue == Epilogue::kGatedSiluQuant ? DataType::kFloat8_e4m3 : product.output_type;
  return *paired < *apart + SwiGluUs(product, gemm_, out);
}

Result<std::unique_ptr<PreparedFusedProduct>> FusedProducts::Prepare(
    const FusedChoice& choice, const ProductSpec& product, const ProductFusion& fusion) const {
  GemmArgs args = ArgsOf(product, options_, gemm_.device().units);
  args.operation = AsLaunched(args.operation, choice.spec);
  return choice.kernel->PrepareFused(args, fusion, choice.spec.splits);
}

}  // namespace culet::cuda_ops
