// Products that one kernel computes together with what stands before or behind them: a norm
// (cuda/fused_product.h), or SwiGlu.
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

/// Which products are fused with their neighbours, decided once for each problem: where a kernel
/// can and is predicted to be faster than the engine's choice and the neighbours' own kernels.
class FusedProducts {
 public:
  FusedProducts(Gemm& gemm, const CudaDispatchOptions& options) : gemm_(gemm), options_(options) {}

  /// Null where they are better launched one by one, or the problem is none. Lives as long as this.
  const FusedChoice* Choose(const ProductSpec& product, const ProductFusion& fusion);

  /// Whether one kernel that pairs the columns of gate and up, whose product this is, is predicted
  /// to be faster than the product with SwiGlu's own kernel behind it. `epilogue`: with codes or
  /// without.
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
