#include "graph/cuda/group_product.h"

#include <utility>
#include <vector>

#include "cuda/error.h"
#include "graph/cuda/fused.h"

namespace culet::cuda_ops {

Result<std::unique_ptr<GroupProduct>> GroupProduct::Create(
    Gemm& gemm, DeviceMemory& memory, const CudaDispatchOptions& options, FusedProducts& fused,
    const ComputeGraph& graph, const Fusion& fusion, std::span<const int> products, Epilogue may) {
  std::unique_ptr<GroupProduct> made(new GroupProduct);
  ProductSpec spec = JoinedProduct(graph, products);
  made->norm_ = NormWithin(graph, fusion, products.front());
  if (made->norm_.norm < 0) {
    if (IsGated(may) && fused.Pairs(spec, may)) made->epilogue_ = spec.epilogue = may;
    auto product = PreparedProduct::Create(gemm, memory, options, spec);
    if (!product) return product.status();
    made->product_ = *std::move(product);
    const std::vector<int>& inputs = graph.node(products.front()).inputs;
    made->input_ = inputs[0];
    if (inputs.size() > 1) made->scales_ = inputs[1];
    return made;
  }
  for (const bool gated : {true, false}) {
    if (gated && may != Epilogue::kGatedSilu) continue;
    const ProductFusion with = FusionWith(graph, made->norm_, gated);
    const FusedChoice* const choice = fused.Choose(spec, with);
    if (choice == nullptr) continue;
    auto prepared = fused.Prepare(*choice, spec, with);
    if (!prepared) return prepared.status();
    made->fused_ = *std::move(prepared);
    if (gated) made->epilogue_ = Epilogue::kGatedSilu;
    made->kernel_ = choice->spec.kernel->id();
    return made;
  }
  return Status(StatusCode::kUnsupported,
                DescribeFusion(graph, fusion) + ": no kernel computes the norm with the product");
}

std::string GroupProduct::kernel() const {
  if (product_ != nullptr) return product_->kernel();
  const char* const norm = norm_.sum >= 0 ? "add_rms_norm + " : "rms_norm + ";
  return norm + kernel_ + (IsGated(epilogue_) ? " + swiglu" : "");
}

Status GroupProduct::Launch(const NodeLaunch& launch, DevicePtr output, DevicePtr output_scales,
                            DevicePtr workspace, LaunchStream stream) const {
  if (product_ != nullptr) {
    const DevicePtr scales = scales_ < 0 ? 0 : launch.value(scales_);
    return product_->Launch(launch.value(input_), scales, output, output_scales, workspace, stream);
  }
  const ComputeGraph& graph = *launch.graph;
  const auto values = [&](int id) { return FromDevicePtr<float>(launch.value(id)); };
  FusedProductPointers pointers;
  pointers.D = FromDevicePtr<void>(output);
  const std::vector<int>& operands = graph.node(norm_.sum >= 0 ? norm_.sum : norm_.norm).inputs;
  pointers.x = values(operands[0]);
  if (norm_.sum >= 0) {
    pointers.y = values(operands[1]);
    pointers.sum = values(norm_.sum);
  }
  return CudaStatus(fused_->Launch(pointers, stream.stream), "launching " + kernel());
}

}  // namespace culet::cuda_ops
