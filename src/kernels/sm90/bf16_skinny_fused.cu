// BF16 products with up to 8 tokens, fused with their neighbours.
#include "kernels/sm90/skinny_fused.cuh"

namespace culet::sm90 {
namespace {

struct Norm {
  static constexpr SkinnyInstance kAll[] = {{.row_tiles = 1, .depth = 2, .registers = 61},
                                            {.row_tiles = 1, .depth = 4, .registers = 61},
                                            {.row_tiles = 2, .depth = 2, .registers = 87},
                                            {.row_tiles = 2, .depth = 4, .registers = 87},
                                            {.row_tiles = 4, .depth = 2, .registers = 104}};
};
struct Gated {
  static constexpr SkinnyInstance kAll[] = {{.row_tiles = 1, .depth = 2, .registers = 64},
                                            {.row_tiles = 1, .depth = 4, .registers = 64},
                                            {.row_tiles = 2, .depth = 2, .registers = 87},
                                            {.row_tiles = 2, .depth = 4, .registers = 87},
                                            {.row_tiles = 4, .depth = 2, .registers = 104}};
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
