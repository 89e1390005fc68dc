// BF16 products with up to 8 tokens, fused with their neighbours.
#include "kernels/sm90/skinny_fused.cuh"

namespace culet::sm90 {
namespace {

struct Norm {
  static constexpr SkinnyInstance kAll[] = {
      {.rows = 16, .depth = 2, .registers = 64},  {.rows = 16, .depth = 4, .registers = 64},
      {.rows = 32, .depth = 2, .registers = 88},  {.rows = 32, .depth = 4, .registers = 88},
      {.rows = 48, .depth = 4, .registers = 104}, {.rows = 64, .depth = 2, .registers = 98}};
};
struct Gated {
  static constexpr SkinnyInstance kAll[] = {
      {.rows = 16, .depth = 2, .registers = 63},  {.rows = 16, .depth = 4, .registers = 63},
      {.rows = 32, .depth = 2, .registers = 88},  {.rows = 32, .depth = 4, .registers = 88},
      {.rows = 48, .depth = 4, .registers = 102}, {.rows = 64, .depth = 2, .registers = 98}};
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
