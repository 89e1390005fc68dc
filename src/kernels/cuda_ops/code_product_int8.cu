// Products of int8 weights.
#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/code_product.cuh"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> Int8Products() {
  static const std::vector<CodeProductKernel> kernels = CodeProductsOf<Int8Codes, false>(
      "int8", {77, 85, 120, 146, 152, 168, 240}, {77, 85, 120, 146, 152, 168, 240});
  return kernels;
}

}  // namespace culet::cuda_ops
