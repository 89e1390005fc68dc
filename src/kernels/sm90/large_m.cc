#include "kernels/sm90/large_m.h"

#include <algorithm>
#include <vector>

#include "sm90/tensor_map.h"

namespace culet::sm90 {

std::span<const LargeMKernel> LargeM192xN();
std::span<const LargeMKernel> LargeM256x128();
std::span<const LargeMKernel> LargeM256xN();
std::span<const LargeMKernel> LargeM128xN();
std::span<const LargeMKernel> LargeMSplit();

std::span<const LargeMKernel> LargeMKernels() {
  static const std::vector<LargeMKernel> kernels = [] {
    std::vector<LargeMKernel> all;
    for (auto part : {LargeM192xN(), LargeM256x128(), LargeM256xN(), LargeM128xN(), LargeMSplit()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kernels;
}

namespace {

TensorMapPlan BytesPlan(int k, int rows, std::int64_t ld, int box_rows) {
  TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(k);
  plan.outer = static_cast<std::uint64_t>(rows);
  plan.pitch_bytes = static_cast<std::uint64_t>(ld);
  plan.box_inner = kBlockK;
  plan.box_outer = static_cast<std::uint32_t>(box_rows);
  return plan;
}

// Whether four k-blocks of a row of scales are 16 aligned bytes, for every four of them.
bool ReadsVectors(const float* scale_a, int row, int block, int k_blocks) {
  return block == 1 && row % 4 == 0 && k_blocks % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(scale_a) % 16 == 0;
}

}  // namespace

bool PlanLargeM(const LargeMKernel& kernel, const BlockScaledProblem& problem, int swizzle, int sms,
                LargeMParams* params, int* grid) {
  TensorMapPlan d;
  d.inner = static_cast<std::uint64_t>(problem.n);
  d.outer = static_cast<std::uint64_t>(problem.m);
  d.pitch_bytes = static_cast<std::uint64_t>(problem.ldd) * 2;
  d.box_inner = 64;
  d.box_outer = 16;
  d.element_bytes = 2;
  const TensorMapPlan a =
      BytesPlan(problem.k, problem.m, problem.lda, kernel.tile_m / kernel.cluster_n);
  const TensorMapPlan b =
      BytesPlan(problem.k, problem.n, problem.ldb, kernel.tile_n / kernel.cluster_m);
  if (!EncodeTensorMap(a, problem.a, &params->a) || !EncodeTensorMap(b, problem.b, &params->b) ||
      !EncodeTensorMap(d, problem.d, &params->d)) {
    return false;
  }
  params->scale_a = problem.scale_a;
  params->scale_b = problem.scale_b;
  params->alpha = problem.alpha;
  params->scale_a_row = problem.scale_a_row;
  params->scale_a_block = problem.scale_a_block;
  params->scale_b_column = problem.scale_b_column;
  params->scale_b_block = problem.scale_b_block;
  params->scale_a_vector = ReadsVectors(problem.scale_a, problem.scale_a_row, problem.scale_a_block,
                                        CeilDiv(problem.k, kBlockK));
  params->m = problem.m;
  params->n = problem.n;
  params->k_blocks = CeilDiv(problem.k, kBlockK);
  if (params->k_blocks < kernel.split) return false;
  // A tile's place is two indices of 15 and 16 bits.
  if (CeilDiv(problem.m, kernel.tile_m) + kernel.cluster_m > 0x7FFF ||
      CeilDiv(problem.n, kernel.tile_n) + kernel.cluster_n > 0xFFFF)
    return false;
  params->order.tiles_m = CeilDiv(problem.m, kernel.tile_m * kernel.cluster_m);
  params->order.tiles_n = CeilDiv(problem.n, kernel.tile_n * kernel.cluster_n);
  params->order.group = std::max(1, (1 << swizzle) / kernel.cluster_m);
  const int size = kernel.cluster_size();
  // A split kernel computes one tile a cluster; the others are persistent.
  const int clusters = kernel.split > 1 ? params->order.count()
                                        : std::min(params->order.count(), std::max(1, sms / size));
  *grid = clusters * size;
  return true;
}

bool RebindLargeM(const void* a, const float* scale_a, void* d, float alpha, LargeMParams* params) {
  params->scale_a = scale_a;
  params->scale_a_vector =
      ReadsVectors(scale_a, params->scale_a_row, params->scale_a_block, params->k_blocks);
  params->alpha = alpha;
  return ReplaceTensorMapAddress(&params->a, a) && ReplaceTensorMapAddress(&params->d, d);
}

cudaError_t LoadLargeM(const LargeMKernel& kernel) {
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kernel.smem_bytes);
}

cudaError_t LaunchLargeM(const LargeMKernel& kernel, const LargeMParams& params, int grid, bool pdl,
                         cudaStream_t stream) {
  cudaLaunchAttribute attributes[2];
  int count = 0;
  attributes[count].id = cudaLaunchAttributeClusterDimension;
  attributes[count].val.clusterDim.x = static_cast<unsigned>(kernel.cluster_size());
  attributes[count].val.clusterDim.y = 1;
  attributes[count].val.clusterDim.z = 1;
  ++count;
  if (pdl) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.smem_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = static_cast<unsigned>(count);
  void* arguments[] = {const_cast<LargeMParams*>(&params)};
  return cudaLaunchKernelExC(&config, kernel.function, arguments);
}

}  // namespace culet::sm90
