// F16 products with few tokens.
#include "kernels/sm90/instances/direct_swap.h"
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {

std::span<const SwapKernel> F16Swap() {
  return SwapInstances<F16Direct, SwapDirectList<2>, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
