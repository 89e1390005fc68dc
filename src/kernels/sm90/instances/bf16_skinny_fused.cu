// BF16 products with up to 8 tokens, fused with the operations before and behind them.
#include "kernels/sm90/instances/skinny.cuh"

namespace culet::sm90 {
namespace {

struct Norm {
  static constexpr SkinnyInstance kAll[] = {
      {.rows = 16, .depth = 2, .registers = 95},  {.rows = 16, .depth = 4, .registers = 95},
      {.rows = 32, .depth = 2, .registers = 96},  {.rows = 32, .depth = 4, .registers = 96},
      {.rows = 48, .depth = 4, .registers = 106}, {.rows = 64, .depth = 2, .registers = 107}};
};
struct Gated {
  static constexpr SkinnyInstance kAll[] = {
      {.rows = 16, .depth = 2, .registers = 91},  {.rows = 16, .depth = 4, .registers = 91},
      {.rows = 32, .depth = 2, .registers = 96},  {.rows = 32, .depth = 4, .registers = 96},
      {.rows = 48, .depth = 4, .registers = 108}, {.rows = 64, .depth = 2, .registers = 101}};
};

}  // namespace

std::span<const SkinnyKernel> Bf16SkinnyNorm() {
  return FusedSkinnyInstances<Bf16Direct, Norm, SkinnyFusion::kNorm, EpilogueKind::kGeneral>();
}

std::span<const SkinnyKernel> Bf16SkinnyNormGated() {
  return FusedSkinnyInstances<Bf16Direct, Gated, SkinnyFusion::kNormGated,
                              EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
