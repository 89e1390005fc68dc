// Products of E4M3 weights by activations of 16 bits.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> E4m3Products() {
  static const std::vector<CodeProductKernel> kernels = CodeProductsOf<E4m3Codes, false>(
      "e4m3", {89, 103, 122, 134, 144, 162, 235}, {89, 103, 122, 134, 144, 162, 235});
  return kernels;
}

}  // namespace culet::cuda_ops
