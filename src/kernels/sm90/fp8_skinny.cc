#include "kernels/sm90/fp8_skinny.h"

#include <algorithm>
#include <limits>

#include "kernels/sm90/launch.h"

namespace culet::sm90 {

namespace {

constexpr std::int64_t kMaxPitch = std::numeric_limits<int>::max();

}  // namespace

int Fp8SkinnyMaxSplits(const Fp8SkinnyKernel& kernel, int k) {
  return std::min({kFp8SkinnyMaxThreads / 32, kSmemPerCta / kernel.warp_bytes, CeilDiv(k, 128)});
}

int Fp8SkinnyRowGroups(int splits) { return splits >= 3 ? 1 : 4 / splits; }

bool PlanFp8Skinny(const Fp8SkinnyKernel& kernel, const BlockScaledProblem& problem, int splits,
                   Fp8SkinnyLaunch* launch) {
  if (problem.m > kFp8SkinnyTokens || problem.k % 16 != 0 || splits < 1 ||
      splits > Fp8SkinnyMaxSplits(kernel, problem.k) || problem.lda > kMaxPitch ||
      problem.ldb > kMaxPitch) {
    return false;
  }
  const int k_blocks = CeilDiv(problem.k, 128);
  Fp8SkinnyParams& params = launch->params;
  params.a = static_cast<const std::uint8_t*>(problem.a);
  params.b = static_cast<const std::uint8_t*>(problem.b);
  SetScales(problem, &params);
  params.d = problem.d;
  params.lda = static_cast<int>(problem.lda);
  params.ldb = static_cast<int>(problem.ldb);
  params.ldd = problem.ldd;
  params.m = problem.m;
  params.n = problem.n;
  params.k = problem.k;
  params.blocks_each = k_blocks / splits;
  params.blocks_rest = k_blocks % splits;
  params.alpha = problem.alpha;
  params.early_weights = problem.pdl ? 1 : 0;
  const int warps = splits * Fp8SkinnyRowGroups(splits);
  const bool rehearse = Fp8SkinnyRehearses(kernel, warps, problem.pdl);
  params.rehearse = rehearse ? 1 : 0;
  launch->smem_bytes = kernel.SmemBytes(warps, rehearse);
  launch->kernel = &kernel;
  launch->splits = splits;
  launch->row_groups = Fp8SkinnyRowGroups(splits);
  launch->ctas = CeilDiv(problem.n, kernel.rows * launch->row_groups);
  return true;
}

void RebindFp8Skinny(const void* a, const float* scale_a, void* d, float alpha,
                     Fp8SkinnyLaunch* launch) {
  launch->params.a = static_cast<const std::uint8_t*>(a);
  launch->params.scale_a = scale_a;
  launch->params.d = d;
  launch->params.alpha = alpha;
}

bool Fp8SkinnyRehearses(const Fp8SkinnyKernel& kernel, int warps, bool pdl) {
  return !pdl && kernel.SmemBytes(warps, true) <= kSmemPerCta;
}

int Fp8SkinnyResidentCtas(const Fp8SkinnyKernel& kernel, int warps, bool pdl) {
  const int smem_bytes = kernel.SmemBytes(warps, Fp8SkinnyRehearses(kernel, warps, pdl));
  return ResidentCtas(warps, kernel.registers, smem_bytes);
}

cudaError_t LoadFp8Skinny(const Fp8SkinnyKernel& kernel) {
  return LoadKernel(kernel.function, kSmemPerCta);
}

cudaError_t LaunchFp8Skinny(const Fp8SkinnyLaunch& launch, cudaStream_t stream) {
  return LaunchKernel(launch.kernel->function,
                      {.grid = dim3(static_cast<unsigned>(launch.ctas)),
                       .block = dim3(32, static_cast<unsigned>(launch.splits),
                                     static_cast<unsigned>(launch.row_groups)),
                       .smem_bytes = launch.smem_bytes,
                       .pdl = launch.params.early_weights != 0},
                      &launch.params, stream);
}

}  // namespace culet::sm90
