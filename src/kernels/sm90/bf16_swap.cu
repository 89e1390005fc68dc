// BF16 products with few tokens.
#include "kernels/sm90/swap_direct.h"
#include "kernels/sm90/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const SwapKernel> Bf16Swap() {
  return SwapInstances<Bf16Direct, SwapDirectList<2>, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
