#include "kernels/sm90/skinny/skinny.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/lists.h"

namespace culet::sm90 {

// The lists of instances, a format's each.
std::span<const SkinnyKernel> Fp8Skinny();
std::span<const SkinnyKernel> Fp8SkinnyFloat32();
std::span<const SkinnyKernel> Fp8PreciseSkinny();
std::span<const SkinnyKernel> Bf16Skinny();
std::span<const SkinnyKernel> F16Skinny();

std::span<const SkinnyKernel> SkinnyKernels() {
  static const auto kernels = Joined<SkinnyKernel>(
      {Fp8Skinny(), Fp8SkinnyFloat32(), Fp8PreciseSkinny(), Bf16Skinny(), F16Skinny()});
  return kernels;
}

std::string SkinnyKernel::Id() const {
  return std::string("sm90_") + format->name + "_skinny/" + std::to_string(rows()) + "x" +
         std::to_string(kSkinnyTokens) + "x" + std::to_string(depth()) +
         (output == OutputType::kF32 ? "f32" : "");
}

namespace {

constexpr std::int64_t kMaxPitch = std::numeric_limits<int>::max();

}  // namespace

int SkinnyMaxSplits(const SkinnyKernel& kernel, int k) {
  return std::min({kSkinnyMaxThreads / 32, kSmemPerCta / kernel.WarpBytes(kSkinnyTokens),
                   CeilDiv(k, kernel.block_k())});
}

int SkinnyRowGroups(int splits) { return splits >= 3 ? 1 : 4 / splits; }

bool PlanSkinny(const SkinnyKernel& kernel, const ProductProblem& problem, int splits,
                SkinnyLaunch* launch) {
  const int bytes = kernel.format->element_bytes;
  if (problem.m > kSkinnyTokens || std::int64_t{problem.k} * bytes % 16 != 0 || splits < 1 ||
      splits > SkinnyMaxSplits(kernel, problem.k) || problem.lda * bytes > kMaxPitch ||
      problem.ldb * bytes > kMaxPitch) {
    return false;
  }
  const int k_blocks = CeilDiv(problem.k, kernel.block_k());
  SkinnyParams& params = launch->params;
  params.a = static_cast<const std::uint8_t*>(problem.a);
  params.b = static_cast<const std::uint8_t*>(problem.b);
  params.Put(problem, *kernel.format, kernel.epilogue);
  params.lda = static_cast<int>(problem.lda * bytes);
  params.ldb = static_cast<int>(problem.ldb * bytes);
  params.k = problem.k * bytes;
  params.blocks_each = k_blocks / splits;
  params.blocks_rest = k_blocks % splits;
  params.slot_bytes = kernel.SlotBytes(problem.m);
  params.early_weights = problem.pdl ? 1 : 0;
  params.early_next = problem.pdl_chain ? 1 : 0;
  const int warps = splits * SkinnyRowGroups(splits);
  const bool rehearse = SkinnyRehearses(kernel, warps, problem.m, problem.pdl);
  params.rehearse = rehearse ? 1 : 0;
  const int row_groups = SkinnyRowGroups(splits);
  launch->format = kernel.format;
  launch->function = kernel.function;
  if (SkinnyHolds(kernel, problem, splits)) launch->held = kernel.held;
  launch->shape = {
      .grid = dim3(static_cast<unsigned>(CeilDiv(problem.n, kernel.rows() * row_groups))),
      .block = dim3(32, static_cast<unsigned>(splits), static_cast<unsigned>(row_groups)),
      .smem_bytes = kernel.SmemBytes(warps, problem.m, rehearse),
      .pdl = problem.pdl};
  return true;
}

bool SkinnyHolds(const SkinnyKernel& kernel, const ProductProblem& problem, int splits) {
  return kernel.held != nullptr && problem.pdl &&
         problem.k == splits * kernel.depth() * kernel.block_k();
}

bool SkinnyRehearses(const SkinnyKernel& kernel, int warps, int m, bool pdl) {
  return !pdl && kernel.SmemBytes(warps, m, true) <= kSmemPerCta;
}

int SkinnyResidentCtas(const SkinnyKernel& kernel, int warps, int m, bool pdl) {
  const int smem_bytes = kernel.SmemBytes(warps, m, SkinnyRehearses(kernel, warps, m, pdl));
  return ResidentCtas(warps, kernel.registers(), smem_bytes);
}

}  // namespace culet::sm90
