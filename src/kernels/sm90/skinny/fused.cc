#include "kernels/sm90/skinny/fused.h"

#include <algorithm>
#include <vector>

#include "kernels/sm90/product/launch.h"

namespace culet::sm90 {

// The lists of instances.
std::span<const SkinnyKernel> Bf16SkinnyNorm();
std::span<const SkinnyKernel> Bf16SkinnyNormGated();

std::span<const SkinnyKernel> FusedSkinnyKernels() {
  static const std::vector<SkinnyKernel> kernels = [] {
    std::vector<SkinnyKernel> all;
    for (auto part : {Bf16SkinnyNorm(), Bf16SkinnyNormGated()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return kernels;
}

const SkinnyKernel* FusedSkinnyTwin(const SkinnyKernel& kernel, SkinnyFusion fusion) {
  const std::span<const SkinnyKernel> all = FusedSkinnyKernels();
  const auto found = std::ranges::find_if(
      all, [&](const SkinnyKernel& k) { return k.fusion == fusion && k.Id() == kernel.Id(); });
  return found == all.end() ? nullptr : &*found;
}

namespace {

constexpr int kWide = 8;            // elements of a lane's vector
constexpr int kMostNormParts = 16;  // warps of the largest block of fused_norm.cu
constexpr int kLeastNormParts = 2;  // warps of its smallest block
constexpr int kStageBytes = 32 * 4 * kWide;

// The same choice as that of fused_norm.cu's block.
int NormShift(int vectors) {
  int shift = 0;
  while ((1 << shift) < kLeastNormParts) ++shift;
  while ((1 << shift) < kMostNormParts && (32 << shift) < vectors) ++shift;
  return shift;
}

}  // namespace

int FusedSkinnyBeside(const SkinnyKernel& kernel, int m, int k, DataType gamma, int warps,
                      int rings, FusedSkinnyParams* params) {
  if (k > kSmemPerCta) return kSmemPerCta;  // the sums below could overflow
  FusedSkinnyParams mine;
  FusedSkinnyParams& p = params != nullptr ? *params : mine;
  const int k_blocks = CeilDiv(k, kernel.block_k());
  int at = rings;
  const auto take = [&](int size) {
    const int start = at;
    at += CeilDiv(size, 16) * 16;
    return start;
  };
  p.elements = k;
  p.norm_shift = NormShift(k / kWide);
  p.turn_shift = 0;
  while (32 << (p.norm_shift + p.turn_shift) < k / kWide) ++p.turn_shift;
  p.norm_steps = CeilDiv(m << p.norm_shift, warps) << p.turn_shift;
  // Half a line more, so that halves of k-blocks of two tokens use different banks.
  p.tile_stride = k_blocks * kBlockBytes + 64;
  p.tile_at = take(m * p.tile_stride);
  p.gamma_at = take(k * static_cast<int>(SizeOf(gamma)));
  p.sums_at = take((m << p.norm_shift) * 4);
  p.stage_at = take(p.norm_steps > kNormKept ? p.norm_steps * warps * kStageBytes : 0);
  return at - rings;
}

bool PlanFusedSkinny(const SkinnyKernel& kernel, const ProductProblem& problem,
                     const ProductFusion& fusion, int splits, FusedSkinnyLaunch* launch) {
  SkinnyLaunch plain;
  if (!PlanSkinny(kernel, problem, splits, &plain)) return false;
  FusedSkinnyParams& params = launch->params;
  static_cast<SkinnyParams&>(params) = plain.params;
  params.rehearse = 0;
  params.gamma = fusion.gamma;
  params.gamma_type = fusion.gamma_type;
  params.epsilon = fusion.epsilon;
  if (fusion.gated) params.ldd = problem.n / 2;  // rows of D follow each other without gaps
  const dim3 block = plain.shape.block;
  const int row_groups = static_cast<int>(block.z), warps = splits * row_groups;
  const int rings = warps * kernel.WarpBytes(problem.m);
  launch->format = kernel.format;
  launch->function = kernel.function;
  launch->shape = plain.shape;
  launch->shape.smem_bytes =
      rings + FusedSkinnyBeside(kernel, problem.m, problem.k, fusion.gamma_type, warps, rings,
                                &params);
  // Parts of the norm and of the product are the same where each is one vector of a warp's lanes.
  params.own_rows = row_groups == 1 && splits == 1 << params.norm_shift &&
                    params.elements == splits * 32 * kWide &&
                    params.blocks_each * kernel.block_k() == 32 * kWide;
  if (params.norm_steps == 1) launch->held = plain.held;
  return launch->shape.smem_bytes <= kSmemPerCta;
}

}  // namespace culet::sm90
