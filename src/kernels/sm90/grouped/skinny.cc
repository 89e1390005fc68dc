#include "kernels/sm90/grouped/skinny.h"

#include <algorithm>
#include <limits>

#include "kernels/sm90/product/lists.h"
#include "kernels/sm90/product/product.h"
#include "kernels/sm90/product/product_args.h"
#include "kernels/sm90/product/start.h"

namespace culet::sm90 {

// The lists of instances.
std::span<const GroupedSkinnyKernel> Bf16GroupedSkinny();
std::span<const GroupedSkinnyKernel> F16GroupedSkinny();
std::span<const GroupedSkinnyKernel> Fp8GroupedSkinny();

std::span<const GroupedSkinnyKernel> GroupedSkinnyKernels() {
  static const auto kernels =
      Joined<GroupedSkinnyKernel>({Bf16GroupedSkinny(), F16GroupedSkinny(), Fp8GroupedSkinny()});
  return kernels;
}

namespace {

constexpr int kWarpsOfSm = 16;  // of a launch: more hide nothing, and keep the next launch out

bool IsAligned(const void* pointer, std::int64_t bytes) {
  return (reinterpret_cast<std::uintptr_t>(pointer) | static_cast<std::uintptr_t>(bytes)) % 16 == 0;
}

}  // namespace

cudaError_t Load(const GroupedSkinnyKernel& kernel) {
  return LoadKernel(kernel.function, kMostGroupedWarps * kernel.warp_bytes);
}

int GroupedSkinnyMaxSplits(const GroupedSkinnyKernel& kernel, int k) {
  return std::min(kMostGroupedWarps, CeilDiv(k, kernel.block_k()));
}

int GroupedSkinnyResident(const GroupedSkinnyKernel& kernel, int splits) {
  const int held = ResidentCtas(splits, kernel.registers(), splits * kernel.warp_bytes);
  return std::max(std::min(held, kWarpsOfSm / splits), 1);
}

const char* WhyNotGroupedSkinny(const GroupedProblem& p, const FormatInfo& format, bool gated) {
  const std::int64_t row_bytes = std::int64_t{p.k} * format.element_bytes;
  if (p.groups < 1 || p.groups > kMostExperts) return "takes 1 to 512 groups";
  if (row_bytes > std::numeric_limits<int>::max() - 1024)
    return "takes rows of K of less than 2^31 bytes";
  if (!IsAligned(p.b, row_bytes)) return "takes weights whose rows lie on 16 bytes";
  if (!IsAligned(p.a, p.lda * format.element_bytes)) return "takes rows of A on 16 bytes";
  if (p.b_group_rows < 0) return "takes weights that lie one group behind the other";
  if (!TakesOutput(p.d_type) || !TakesOutput(p.bias_type))
    return "writes D, and reads biases, of BF16, F16 or F32";
  if (gated && p.n % 8 != 0) return "pairs gate and up where each has a multiple of 8 rows";
  return nullptr;
}

GroupedSkinnyLaunch PlanGroupedSkinny(const GroupedSkinnyKernel& kernel,
                                      const GroupedProblem& problem, int splits, int sms) {
  GroupedSkinnyLaunch launch;
  GroupedSkinnyParams& p = launch.params;
  p.Put(problem, kernel.format->element_bytes, kernel.gated ? kernel.rows() / 2 : kernel.rows());
  p.b = static_cast<const std::uint8_t*>(problem.b);
  p.group_rows = problem.b_group_rows;
  p.up_rows = problem.up_rows;
  p.blocks_each = p.k_blocks / splits;
  p.blocks_rest = p.k_blocks % splits;
  const std::int64_t held = std::int64_t{sms} * GroupedSkinnyResident(kernel, splits);
  launch.function = kernel.function;
  launch.shape = {.grid = dim3(static_cast<unsigned>(
                      std::clamp<std::int64_t>(p.MostTiles(kSkinnyTokens), 1, held))),
                  .block = dim3(32, static_cast<unsigned>(splits)),
                  .smem_bytes = splits * kernel.warp_bytes,
                  .pdl = problem.pdl};
  return launch;
}

cudaError_t GroupedSkinnyLaunch::Start(cudaStream_t stream) const {
  return StartKernel(function, shape, params, stream);
}

}  // namespace culet::sm90
