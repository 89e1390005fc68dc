// Products of uint4 weights.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> Uint4Products() {
  static const std::vector<CodeProductKernel> kernels = CodeProductsOf<Uint4Codes, true>(
      "u4", {92, 110, 128, 144, 186, 186, 250}, {92, 110, 128, 144, 178, 178, 250});
  return kernels;
}

}  // namespace culet::cuda_ops
