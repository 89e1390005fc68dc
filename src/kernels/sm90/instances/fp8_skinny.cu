// E4M3 products with up to 8 tokens and scales of blocks.
#include "kernels/sm90/instances/skinny.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr SkinnyInstance kAll[] = {{.rows = 16, .depth = 2, .registers = 86},
                                            {.rows = 16, .depth = 4, .registers = 86},
                                            {.rows = 32, .depth = 2, .registers = 118},
                                            {.rows = 64, .depth = 2, .registers = 124}};
};
struct Float32 {
  static constexpr SkinnyInstance kAll[] = {{.rows = 16, .depth = 4, .registers = 86}};
};

}  // namespace

std::span<const SkinnyKernel> Fp8Skinny() {
  return SkinnyInstances<Fp8Block, List, EpilogueKind::kPlain>();
}

std::span<const SkinnyKernel> Fp8SkinnyFloat32() {
  return SkinnyInstances<Fp8Block, Float32, EpilogueKind::kPlain, OutputType::kF32>();
}

}  // namespace culet::sm90
