// Products of E2M1 weights with groups of a multiple of 32.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> E2m1Products() {
  static const std::vector<CodeProductKernel> kernels = CodeProductsOf<E2m1Codes, true>(
      "e2m1", {92, 79, 128, 126, 160, 160, 237}, {94, 80, 128, 126, 161, 161, 239});
  return kernels;
}

}  // namespace culet::cuda_ops
