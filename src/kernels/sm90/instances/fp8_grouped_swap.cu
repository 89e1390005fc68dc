// Instances of the grouped kernel.
#include "kernels/sm90/grouped/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> Fp8GroupedSwaps() {
  static const GroupedSwapKernel kernels[] = {
      MakeGroupedSwap<Fp8Block, 32, false>("sm90_fp8_grouped/128x32", 67),
      MakeGroupedSwap<Fp8Block, 32, true>("sm90_fp8_grouped/128x32/gated", 69),
      MakeGroupedSwap<Fp8Block, 160, false>("sm90_fp8_grouped/128x160", 168),
      MakeGroupedSwap<Fp8Block, 160, true>("sm90_fp8_grouped/128x160/gated", 168),
  };
  return kernels;
}

}  // namespace culet::sm90
