// Products of E2M1 weights with groups of a multiple of 16.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> E2m1ProductsBy16() {
  static const std::vector<CodeProductKernel> kernels = CodeProductsOf<E2m1Codes, false>(
      "e2m1_g16", {94, 86, 128, 128, 136, 136, 240}, {96, 115, 128, 128, 136, 136, 240});
  return kernels;
}

}  // namespace culet::cuda_ops
