// Products of int8 weights.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> Int8Products() {
  static const std::vector<CodeProductKernel> kernels = CodeProductsOf<Int8Codes, false>(
      "int8", {95, 96, 128, 126, 141, 162, 234}, {95, 96, 128, 126, 141, 162, 234});
  return kernels;
}

}  // namespace culet::cuda_ops
