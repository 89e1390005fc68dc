// Instances of the grouped kernel.
#include "kernels/sm90/grouped/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> Fp8GroupedSwaps() {
  static const GroupedSwapKernel kernels[] = {
      MakeGroupedSwap<Fp8Block, 128, 32, false>("sm90_fp8_grouped/128x32", 66),
      MakeGroupedSwap<Fp8Block, 128, 32, true>("sm90_fp8_grouped/128x32/gated", 72),
      MakeGroupedSwap<Fp8Block, 128, 160, false>("sm90_fp8_grouped/128x160", 168),
      MakeGroupedSwap<Fp8Block, 128, 160, true>("sm90_fp8_grouped/128x160/gated", 168),
      MakeGroupedSwap<Fp8Block, 128, 144, false, true>("sm90_fp8_grouped/128x144", 168),
      MakeGroupedSwap<Fp8Block, 128, 144, true, true>("sm90_fp8_grouped/128x144/gated", 168),
      MakeGroupedSwap<Fp8Block, 256, 128, false, true>("sm90_fp8_grouped/256x128", 168),
      MakeGroupedSwap<Fp8Block, 256, 112, true, true>("sm90_fp8_grouped/256x112/gated", 168),
  };
  return kernels;
}

}  // namespace culet::sm90
