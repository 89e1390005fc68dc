// E4M3 products with few tokens, scaled in the end, summed in the tensor core.
#include "kernels/sm90/swap_direct.h"
#include "kernels/sm90/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const SwapKernel> Fp8FastSwap() {
  return SwapInstances<Fp8Fast, SwapDirectList<1>, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
