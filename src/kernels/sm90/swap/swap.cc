#include "kernels/sm90/swap/swap.h"

#include <algorithm>
#include <vector>

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/lists.h"
#include "kernels/sm90/product/operand_map.h"
#include "kernels/sm90/product/padded.h"
#include "sm90/tensor_map.h"

namespace culet::sm90 {

// The lists of instances, a format's each.
std::span<const SwapKernel> Fp8Swap64();
std::span<const SwapKernel> Fp8Swap128();
std::span<const SwapKernel> Fp8SwapBetween();
std::span<const SwapKernel> Fp8SwapFloat32();
std::span<const SwapKernel> Fp8SwapGated();
std::span<const SwapKernel> Fp8SwapGatedQuant();
std::span<const SwapKernel> Fp8PreciseSwap();
std::span<const SwapKernel> Fp8FastSwap();
std::span<const SwapKernel> Bf16Swap();
std::span<const SwapKernel> Bf16SwapGated();
std::span<const SwapKernel> Bf16SwapGatedQuant();
std::span<const SwapKernel> F16Swap();

std::span<const SwapKernel> SwapKernels() {
  static const auto kernels =
      Joined<SwapKernel>({Fp8Swap64(), Fp8Swap128(), Fp8SwapBetween(), Fp8SwapFloat32(),
                          Fp8PreciseSwap(), Fp8FastSwap(), Bf16Swap(), F16Swap(), Fp8SwapGated(),
                          Bf16SwapGated(), Fp8SwapGatedQuant(), Bf16SwapGatedQuant()});
  return kernels;
}

namespace {

constexpr int kMaxGridZ = 65535;  // and y

// TMA spends about 135 clocks on a box and one on each of its rows, so with few rows a box brings
// several k-blocks, as slices of a third axis. Such a map needs whole k-blocks: its last slice
// would reach into the next row.
bool Sliced(const SwapKernel& kernel, std::int64_t row_bytes) {
  return kernel.stage_blocks() > 1 && row_bytes > kBlockBytes && row_bytes % kBlockBytes == 0;
}

TensorMapPlan SlicedPlan(const SwapKernel& kernel, int k, int rows, std::int64_t ld, int box_rows) {
  TensorMapPlan plan = BytesPlan(k, rows, ld, kernel.format->element_bytes, box_rows);
  const auto row_bytes = static_cast<std::int64_t>(plan.inner);
  if (Sliced(kernel, row_bytes)) {
    plan.inner = kBlockBytes;
    plan.rank = 3;
    plan.depth = static_cast<std::uint64_t>(row_bytes / kBlockBytes);
    plan.depth_bytes = kBlockBytes;
    plan.box_depth = static_cast<std::uint32_t>(kernel.stage_blocks());
  }
  return plan;
}

}  // namespace

std::string SwapKernel::Id(int residency) const {
  return std::string("sm90_") + format->name + "_swap/" + std::to_string(rows()) + "x" +
         std::to_string(tokens()) + "x" + std::to_string(stage_blocks() * block_k()) +
         instance.suffix + "/r" + std::to_string(residency) +
         (epilogue == EpilogueKind::kGatedQuant ? "/gated_e4m3"
          : IsGated(epilogue)                   ? "/gated"
                                                : "");
}

int SwapStages(const SwapKernel& kernel, int k_blocks, int splits, int residency) {
  const int budget = std::min(kSmemPerCta, kSmemPerSm / residency - kSmemReserved);
  int stages = std::min(kSwapMaxStages, CeilDiv(CeilDiv(k_blocks, kernel.stage_blocks()), splits));
  while (stages > 0 && kernel.layout.Total(stages, splits) > budget) --stages;
  return stages;
}

int SwapResidentCtas(const SwapKernel& kernel, int stages, int splits) {
  return std::max(1, ResidentCtas(kernel.threads / 32, kernel.instance.registers,
                                  kernel.layout.Total(stages, splits)));
}

bool SwapFits(const SwapKernel& kernel, int k_blocks, int splits, int residency) {
  const int loads = CeilDiv(k_blocks, kernel.stage_blocks());
  return splits >= 1 && splits * kernel.sharers() <= kSwapMaxSplits && loads >= splits &&
         SwapStages(kernel, k_blocks, splits, residency) >=
             std::min(kernel.min_stages, CeilDiv(loads, splits));
}

bool PlanSwap(const SwapKernel& kernel, const ProductProblem& problem, int splits, int residency,
              SwapLaunch* launch) {
  const int k_blocks = CeilDiv(problem.k, kernel.block_k());
  if (!SwapFits(kernel, k_blocks, splits, residency)) return false;
  if (kernel.sharers() > 1 && problem.n % (kernel.sharers() * kernel.rows()) != 0) return false;
  const int loads = CeilDiv(k_blocks, kernel.stage_blocks());
  const int stages = SwapStages(kernel, k_blocks, splits, residency);

  SwapParams& params = launch->params;
  if (!EncodeTensorMapAndRest(SlicedPlan(kernel, problem.k, problem.n, problem.ldb, kernel.rows()),
                              problem.b, &params.weights, &params.weights_rest) ||
      !EncodeTensorMapAndRest(
          SlicedPlan(kernel, problem.k, problem.m, problem.lda, kernel.tokens()), problem.a,
          &params.activations, &params.activations_rest)) {
    return false;
  }
  params.Put(problem, *kernel.format, kernel.epilogue);
  params.k_blocks = k_blocks;
  params.loads_each = loads / splits;
  params.loads_rest = loads % splits;
  params.sliced = Sliced(kernel, std::int64_t{problem.k} * kernel.format->element_bytes) ? 1 : 0;
  params.stages = stages;
  params.early_weights = problem.pdl ? 1 : 0;
  launch->format = kernel.format;
  launch->function = kernel.function;
  // Token tiles that share weights are neighbours in launch order, so the weights leave DRAM once.
  const int row_tiles = CeilDiv(problem.n, kernel.rows());
  const int token_tiles = CeilDiv(problem.m, kernel.tokens());
  launch->shape = {.grid = dim3(static_cast<unsigned>(splits * kernel.sharers()),
                                static_cast<unsigned>(token_tiles),
                                static_cast<unsigned>(row_tiles / kernel.sharers())),
                   .block = dim3(static_cast<unsigned>(kernel.threads)),
                   .smem_bytes = kernel.layout.Total(stages, splits),
                   .cluster_size = splits * kernel.sharers(),
                   .pdl = problem.pdl};
  return row_tiles <= kMaxGridZ && token_tiles <= kMaxGridZ;
}

bool SwapParams::Bind(const GemmOperands& operands) {
  return ReplaceTensorMapAddress(&activations, operands.a) &&
         ReplaceTensorMapAddress(&activations_rest, operands.a);
}

bool BindB(SwapParams* params, const void* b) {
  return ReplaceTensorMapAddress(&params->weights, b) &&
         ReplaceTensorMapAddress(&params->weights_rest, b);
}

}  // namespace culet::sm90
