#include "kernels/sm90/grouped/swap.h"

#include <algorithm>
#include <vector>

#include "kernels/sm90/product/operand_map.h"
#include "kernels/sm90/product/product.h"
#include "kernels/sm90/product/product_args.h"
#include "kernels/sm90/product/start.h"
#include "sm90/tensor_map.h"

namespace culet::sm90 {

// The lists of instances.
std::span<const GroupedSwapKernel> Bf16GroupedSwaps();
std::span<const GroupedSwapKernel> F16GroupedSwaps();
std::span<const GroupedSwapKernel> Fp8GroupedSwaps();

std::span<const GroupedSwapKernel> GroupedSwapKernels() {
  static const std::vector<GroupedSwapKernel> kernels = [] {
    std::vector<GroupedSwapKernel> all;
    for (auto part : {Bf16GroupedSwaps(), F16GroupedSwaps(), Fp8GroupedSwaps()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kernels;
}

namespace {

bool IsAligned(const void* pointer, std::int64_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(pointer) | static_cast<std::uintptr_t>(bytes)) % 16 == 0;
}

}  // namespace

const char* WhyNotGrouped(const GroupedProblem& p, const FormatInfo& format, bool gated) {
  const std::int64_t row_bytes = std::int64_t{p.k} * format.element_bytes;
  if (p.groups < 1 || p.groups > kMostExperts) return "takes 1 to 512 groups";
  if (!IsAligned(p.b, row_bytes)) return "takes weights whose rows lie on 16 bytes (TMA)";
  if (!IsAligned(p.a, p.lda * format.element_bytes)) return "takes rows of A on 16 bytes";
  if (p.b_group_rows < 0 || (p.groups - 1) * p.b_group_rows + 2 * p.n > (std::int64_t{1} << 30)) {
    return "takes weights that lie one group behind the other, 2^30 rows of all at most";
  }
  if (!TakesOutput(p.d_type) || !TakesOutput(p.bias_type)) {
    return "writes D, and reads biases, of BF16, F16 or F32";
  }
  if (gated && (p.n % 8 != 0 || p.b_group_rows % 8 != 0)) {
    return "pairs gate and up where each has a multiple of 8 rows";
  }
  return nullptr;
}

bool PlanGroupedSwap(const GroupedSwapKernel& kernel, const GroupedProblem& problem, int splits,
                     int sms, GroupedSwapLaunch* launch) {
  GroupedSwapParams& p = launch->params;
  const int element = kernel.format->element_bytes;
  const std::int64_t rows = (problem.groups - 1) * problem.b_group_rows + problem.n;
  TensorMapPlan map = BytesPlan(problem.k, static_cast<int>(rows), problem.k, element, kernel.rows);
  if (kernel.gated) {
    map.outer = map.box_outer = 8;
    map.rank = 4;
    map.depth = map.box_depth = 2;
    map.depth_bytes = map.pitch_bytes * static_cast<std::uint64_t>(problem.up_rows);
    map.blocks = static_cast<std::uint64_t>(rows / 8);
    map.block_bytes = map.pitch_bytes * 8;
    map.box_blocks = static_cast<std::uint32_t>(kernel.rows / 16);
  }
  if (!EncodeTensorMap(map, problem.b, &p.b)) return false;
  // The address of a plan without operands: a map needs one.
  static char some_address alignas(16);
  const void* const a = problem.a != nullptr ? problem.a : &some_address;
  launch->boxes =
      problem.index == nullptr && problem.a_rows > 0 ? kernel.tokens / kernel.box_rows : 0;
  for (int i = 0; i < launch->boxes; ++i) {
    const TensorMapPlan rows_map =
        BytesPlan(problem.k, problem.a_rows, problem.lda, element, (i + 1) * kernel.box_rows);
    if (!EncodeTensorMap(rows_map, a, &p.a_maps[i])) return false;
  }
  p.Put(problem, element, kernel.gated ? kernel.rows / 2 : kernel.rows);
  p.a = static_cast<const std::uint8_t*>(a);
  p.group_rows = static_cast<int>(problem.b_group_rows);
  p.tile_tokens = splits > 1 ? kernel.split_tokens : kernel.tokens;
  const std::int64_t clusters = std::clamp<std::int64_t>(
      p.MostTiles(p.tile_tokens), 1, std::max(sms * kernel.resident / splits, 1));
  launch->function = kernel.function;
  launch->shape = {.grid = dim3(static_cast<unsigned>(clusters * splits)),
                   .block = dim3(static_cast<unsigned>(kernel.threads)),
                   .smem_bytes = kernel.smem_bytes,
                   .cluster_size = splits,
                   .pdl = problem.pdl};
  return true;
}

bool GroupedSwapLaunch::BindRows(const void* a) {
  params.a = static_cast<const std::uint8_t*>(a);
  if (params.index != nullptr) return true;
  for (int i = 0; i < boxes; ++i) {
    if (!ReplaceTensorMapAddress(&params.a_maps[i], a)) return false;
  }
  return true;
}

cudaError_t GroupedSwapLaunch::Start(cudaStream_t stream) const {
  return StartKernel(function, shape, params, stream);
}

}  // namespace culet::sm90
