// E4M3 products with few tokens: the tensor core sums over all of K, the epilogue scales.
#include "kernels/sm90/instances/direct_swap.h"
#include "kernels/sm90/swap/kernel.cuh"

namespace culet::sm90 {

std::span<const SwapKernel> Fp8FastSwap() {
  return SwapInstances<Fp8Fast, SwapDirectList<1>, EpilogueKind::kGeneral>();
}

}  // namespace culet::sm90
