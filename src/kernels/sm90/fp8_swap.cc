#include "kernels/sm90/fp8_swap.h"

#include <algorithm>
#include <vector>

#include "sm90/tensor_map.h"

namespace culet::sm90 {

std::span<const Fp8SwapKernel> Fp8Swap64();
std::span<const Fp8SwapKernel> Fp8Swap128();
std::span<const Fp8SwapKernel> Fp8SwapBetween();
std::span<const Fp8SwapKernel> Fp8SwapFloat32();

std::span<const Fp8SwapKernel> Fp8SwapKernels() {
  static const std::vector<Fp8SwapKernel> kernels = [] {
    std::vector<Fp8SwapKernel> all;
    for (auto part : {Fp8Swap64(), Fp8Swap128(), Fp8SwapBetween(), Fp8SwapFloat32()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kernels;
}

namespace {

// Shared memory of a multiprocessor, of which each resident CTA takes 1 KB besides its own.
constexpr int kSmemPerSm = 228 * 1024, kSmemReserved = 1024, kSmemPerCta = 227 * 1024;
constexpr int kMaxGridZ = 65535;  // and y

// TMA spends about 135 clocks on a box and one on each of its rows, so with few rows a box brings
// several k-blocks, as slices of a third axis. Such a map needs whole k-blocks: its last slice
// would reach into the next row.
bool Sliced(const Fp8SwapKernel& kernel, int k) {
  return kernel.stage_blocks > 1 && k > 128 && k % 128 == 0;
}

TensorMapPlan BytesPlan(const Fp8SwapKernel& kernel, int k, int rows, std::int64_t ld,
                        int box_rows) {
  TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(k);
  if (Sliced(kernel, k)) {
    plan.inner = 128;
    plan.depth = static_cast<std::uint64_t>(k / 128);
    plan.depth_bytes = 128;
    plan.box_depth = static_cast<std::uint32_t>(kernel.stage_blocks);
  }
  plan.outer = static_cast<std::uint64_t>(rows);
  plan.pitch_bytes = static_cast<std::uint64_t>(ld);
  plan.box_inner = 128;
  plan.box_outer = static_cast<std::uint32_t>(box_rows);
  return plan;
}

}  // namespace

int Fp8SwapStages(const Fp8SwapKernel& kernel, int k_blocks, int splits, int residency) {
  const int budget = std::min(kSmemPerCta, kSmemPerSm / residency - kSmemReserved);
  int stages = std::min(kFp8SwapMaxStages, CeilDiv(CeilDiv(k_blocks, kernel.stage_blocks), splits));
  while (stages > 0 && kernel.Layout(stages, splits).total > budget) --stages;
  return stages;
}

bool Fp8SwapFits(const Fp8SwapKernel& kernel, int k_blocks, int splits, int residency) {
  const int loads = CeilDiv(k_blocks, kernel.stage_blocks);
  return splits >= 1 && splits <= kFp8SwapMaxSplits && loads >= splits &&
         Fp8SwapStages(kernel, k_blocks, splits, residency) >=
             std::min(kernel.min_stages, CeilDiv(loads, splits));
}

bool PlanFp8Swap(const Fp8SwapKernel& kernel, const BlockScaledProblem& problem, int splits,
                 int residency, Fp8SwapLaunch* launch) {
  const int k_blocks = CeilDiv(problem.k, 128);
  if (!Fp8SwapFits(kernel, k_blocks, splits, residency)) return false;
  const int loads = CeilDiv(k_blocks, kernel.stage_blocks);
  const int stages = Fp8SwapStages(kernel, k_blocks, splits, residency);

  Fp8SwapParams& params = launch->params;
  if (!EncodeTensorMap(BytesPlan(kernel, problem.k, problem.n, problem.ldb, kernel.rows()),
                       problem.b, &params.weights) ||
      !EncodeTensorMap(BytesPlan(kernel, problem.k, problem.m, problem.lda, kernel.tokens),
                       problem.a, &params.activations)) {
    return false;
  }
  params.scale_a = problem.scale_a;
  params.scale_b = problem.scale_b;
  params.d = problem.d;
  params.ldd = problem.ldd;
  params.scale_a_row = problem.scale_a_row;
  params.scale_a_block = problem.scale_a_block;
  params.scale_b_column = problem.scale_b_column;
  params.scale_b_block = problem.scale_b_block;
  params.m = problem.m;
  params.n = problem.n;
  params.k_blocks = k_blocks;
  params.loads_each = loads / splits;
  params.loads_rest = loads % splits;
  params.sliced = Sliced(kernel, problem.k) ? 1 : 0;
  params.stages = stages;
  params.alpha = problem.alpha;
  params.early_weights = problem.pdl ? 1 : 0;
  launch->kernel = &kernel;
  launch->splits = splits;
  launch->smem_bytes = kernel.Layout(stages, splits).total;
  launch->row_tiles = CeilDiv(problem.n, kernel.rows());
  launch->token_tiles = CeilDiv(problem.m, kernel.tokens);
  return launch->row_tiles <= kMaxGridZ && launch->token_tiles <= kMaxGridZ;
}

bool RebindFp8Swap(const void* a, const float* scale_a, void* d, float alpha,
                   Fp8SwapLaunch* launch) {
  launch->params.scale_a = scale_a;
  launch->params.d = d;
  launch->params.alpha = alpha;
  return ReplaceTensorMapAddress(&launch->params.activations, a);
}

cudaError_t LoadFp8Swap(const Fp8SwapKernel& kernel) {
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              kSmemPerCta);
}

cudaError_t LaunchFp8Swap(const Fp8SwapLaunch& launch, cudaStream_t stream) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (launch.splits > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = static_cast<unsigned>(launch.splits);
    attributes[count].val.clusterDim.y = 1;
    attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  if (launch.params.early_weights != 0) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count].val.programmaticStreamSerializationAllowed = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  // Token tiles that share weights are neighbours in launch order, so the weights leave DRAM once.
  config.gridDim =
      dim3(static_cast<unsigned>(launch.splits), static_cast<unsigned>(launch.token_tiles),
           static_cast<unsigned>(launch.row_tiles));
  config.blockDim = dim3(static_cast<unsigned>(launch.kernel->threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(launch.smem_bytes);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  void* arguments[] = {const_cast<Fp8SwapParams*>(&launch.params)};
  return cudaLaunchKernelExC(&config, launch.kernel->function, arguments);
}

}  // namespace culet::sm90
