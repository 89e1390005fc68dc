// E4M3 products with up to 8 tokens and scales of blocks.
#include "kernels/sm90/skinny_kernel.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SkinnyInstance kAll[] = {{.row_tiles = 1, .depth = 2, .registers = 72},
                                            {.row_tiles = 1, .depth = 4, .registers = 72},
                                            {.row_tiles = 2, .depth = 2, .registers = 102},
                                            {.row_tiles = 2, .depth = 4, .registers = 102},
                                            {.row_tiles = 4, .depth = 2, .registers = 124}};
};
struct Float32 {
  static constexpr SkinnyInstance kAll[] = {{.row_tiles = 1, .depth = 4, .registers = 72}};
};

}  // namespace

std::span<const SkinnyKernel> Fp8Skinny() {
  return SkinnyInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

std::span<const SkinnyKernel> Fp8SkinnyFloat32() {
  return SkinnyInstances<Fp8Block, Float32, EpilogueKind::kPlain, OutputType::kF32>();
}

}  // namespace culet::sm90
