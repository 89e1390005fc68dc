// The kernels of code_product.h that are compiled, by the type of the codes.
#pragma once

#include <span>

#include "kernels/cuda_ops/code_product.h"

namespace culet::cuda_ops {

std::span<const CodeProductKernel> Uint4Products();
std::span<const CodeProductKernel> Uint4Streams();
std::span<const CodeProductKernel> Uint4Directs();
std::span<const CodeProductKernel> Uint4Tiles();
std::span<const CodeProductKernel> E2m1Products();
std::span<const CodeProductKernel> E2m1Streams();
std::span<const CodeProductKernel> E2m1Directs();
std::span<const CodeProductKernel> E2m1Tiles();
std::span<const CodeProductKernel> E2m1ProductsBy16();
std::span<const CodeProductKernel> Int8Products();
std::span<const CodeProductKernel> E4m3Products();
std::span<const CodeProductKernel> E4m3Directs();
std::span<const CodeProductKernel> E4m3Tiles();

}  // namespace culet::cuda_ops
