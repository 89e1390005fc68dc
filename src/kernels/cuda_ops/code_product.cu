// The host's side of code_product.h.
#include "kernels/cuda_ops/code_product.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda_ops/code_instances.h"
#include "kernels/cuda_ops/launch.cuh"

namespace culet::cuda_ops {
namespace {

std::vector<const CodeProductKernel*> All() {
  std::vector<const CodeProductKernel*> all;
  for (const auto kernels :
       {Uint4Products(), Uint4Streams(), E2m1Products(), E2m1Streams(), E2m1ProductsBy16(),
        Int8Products(), Uint4Directs(), E2m1Directs(), E4m3Products(), E4m3Directs(), Uint4Tiles(),
        E2m1Tiles(), E4m3Tiles()}) {
    for (const CodeProductKernel& kernel : kernels) all.push_back(&kernel);
  }
  return all;
}

}  // namespace

int CodeProductKernel::SmemBytes(int m) const noexcept {
  const int stage = stage_bytes + std::min(m, tokens) * token_bytes;
  return scale_bytes + std::max(rings * stages * stage, sum_bytes);
}

int CodeProductKernel::MostSmemBytes() const noexcept {
  int bytes = 0;
  for (int m = 1; m <= tokens; ++m) bytes = std::max(bytes, SmemBytes(m));
  return bytes;
}

std::span<const CodeProductKernel* const> CodeProductKernels() {
  static const std::vector<const CodeProductKernel*> kernels = All();
  return kernels;
}

CodeProductMemory CodeProductWorkspace(const CodeProductKernel& kernel, int m, int n, int splits) {
  CodeProductMemory memory;
  if (splits <= 1) return memory;
  const auto tiles = static_cast<std::size_t>(CeilDiv(m, kernel.tokens) * CeilDiv(n, kernel.rows));
  memory.counters = tiles * sizeof(int);
  memory.partials = tiles * static_cast<std::size_t>(splits) *
                    static_cast<std::size_t>(kernel.tokens * kernel.rows) * sizeof(float);
  return memory;
}

int MaxCodeSplits(const CodeProductKernel& kernel, int k) {
  const auto pieces = static_cast<int>(CeilDiv(k, kernel.block_k));
  // Each warp of each part has something to do.
  return std::clamp(pieces / kCodeProductWarps, 1, kMostCodeSplits);
}

cudaError_t LoadCodeProduct(const CodeProductKernel& kernel) {
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kernel.MostSmemBytes());
}

cudaError_t CodeProduct(const CodeProductKernel& kernel, const CodeProductParams& params,
                        LaunchStream stream) {
  dim3 grid = Blocks(CeilDiv(params.n, kernel.rows), params.splits);
  grid.z = static_cast<unsigned>(CeilDiv(params.m, kernel.tokens));
  return LaunchShared(kernel.function, grid, 32 * kCodeProductWarps, kernel.SmemBytes(params.m),
                      stream, params);
}

}  // namespace culet::cuda_ops
