// Products that one kernel computes together with the norm before them (cuda/fused_product.h) or
// the SwiGlu after them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>

#include "cuda/fused_product.h"
#include "culet/dispatch.h"
#include "culet/fusion.h"
#include "culet/gemm.h"
#include "culet/kernel_dispatch.h"
#include "graph/cuda/product.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// The nodes before a product that its kernel may compute; -1: there is none.
struct InputNorm {
  int sum = -1, norm = -1, codes = -1;
  /// The name of a fusion with these before `name`.
  static std::string NameBefore(const std::string& name) { return "rms_norm_" + name; }
};

/// How a product and its neighbours are launched as one.
struct FusedChoice {
  LaunchSpec spec;  ///< of the product alone
  const FusesProducts* kernel = nullptr;
};

/// Which products are fused with their neighbours, decided once for each problem: those for which a
/// kernel can do it and is predicted to be faster than the separate kernels.
class FusedProducts {
 public:
  FusedProducts(Gemm& gemm, const CudaDispatchOptions& options) : gemm_(gemm), options_(options) {}

  const CudaDispatchOptions& options() const noexcept { return options_; }

  /// Null if separate launches are better, or the problem is invalid. Lives as long as this.
  const FusedChoice* Choose(const ProductSpec& product, const ProductFusion& fusion);

  /// Whether a gated product of joined gate and up weights is predicted to be faster than the plain
  /// product followed by SwiGlu's own kernel. `epilogue`: with or without codes.
  bool Pairs(ProductSpec product, Epilogue epilogue) const;

  /// Errors: as FusesProducts::PrepareFused. Requires: what Choose returned for the two.
  Result<std::unique_ptr<PreparedFusedProduct>> Prepare(const FusedChoice& choice,
                                                        const ProductSpec& product,
                                                        const ProductFusion& fusion) const;

 private:
  using Key = std::tuple<GemmDesc, DataType, bool, bool>;
  FusedChoice Decide(const GemmDesc& desc, const ProductFusion& fusion);

  Gemm& gemm_;
  const CudaDispatchOptions& options_;
  std::map<Key, FusedChoice> decided_;  // without a kernel: one by one
};

/// The norm whose rows the product with id `product` reads, within the nodes of a fusion.
InputNorm NormWithin(const ComputeGraph& graph, const Fusion& fusion, int product);

/// What a norm and, `gated`, SwiGlu make of a product.
ProductFusion FusionWith(const ComputeGraph& graph, const InputNorm& norm, bool gated);

}  // namespace culet::cuda_ops
