// Products with up to 8 tokens and a general epilogue: BF16, F16, and E4M3 whose scales the
// epilogue applies. E4M3 products are added in FP32, so one kernel serves precise and fast sums.
#include "kernels/sm90/instances/skinny.cuh"

namespace culet::sm90 {
namespace {

struct Half {
  static constexpr SkinnyInstance kAll[] = {
      {.rows = 8, .depth = 4, .registers = 72},   {.rows = 16, .depth = 2, .registers = 82},
      {.rows = 16, .depth = 4, .registers = 82},  {.rows = 32, .depth = 2, .registers = 108},
      {.rows = 32, .depth = 4, .registers = 108}, {.rows = 48, .depth = 4, .registers = 124},
      {.rows = 64, .depth = 2, .registers = 128}};
};
struct Fp8 {
  static constexpr SkinnyInstance kAll[] = {{.rows = 16, .depth = 2, .registers = 86},
                                            {.rows = 16, .depth = 4, .registers = 86},
                                            {.rows = 32, .depth = 2, .registers = 114},
                                            {.rows = 32, .depth = 4, .registers = 114},
                                            {.rows = 64, .depth = 2, .registers = 126}};
};

}  // namespace

std::span<const SkinnyKernel> Bf16Skinny() {
  return SkinnyInstances<Bf16Direct, Half, EpilogueKind::kGeneral>();
}

std::span<const SkinnyKernel> F16Skinny() {
  return SkinnyInstances<F16Direct, Half, EpilogueKind::kGeneral>();
}

std::span<const SkinnyKernel> Fp8PreciseSkinny() {
  return SkinnyInstances<Fp8Precise, Fp8, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
