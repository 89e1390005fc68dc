// Instances of the grouped kernel.
#include "kernels/sm90/grouped/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> F16GroupedSwaps() {
  static const GroupedSwapKernel kernels[] = {
      MakeGroupedSwap<F16Direct, 128, 32, false>("sm90_f16_grouped/128x32", 64),
      MakeGroupedSwap<F16Direct, 128, 32, true>("sm90_f16_grouped/128x32/gated", 72),
      MakeGroupedSwap<F16Direct, 128, 128, false>("sm90_f16_grouped/128x128", 168),
      MakeGroupedSwap<F16Direct, 128, 128, true>("sm90_f16_grouped/128x128/gated", 168),
      MakeGroupedSwap<F16Direct, 128, 224, false>("sm90_f16_grouped/128x224", 168),
      MakeGroupedSwap<F16Direct, 128, 224, true>("sm90_f16_grouped/128x224/gated", 168),
      MakeGroupedSwap<F16Direct, 256, 144, false>("sm90_f16_grouped/256x144", 168),
      MakeGroupedSwap<F16Direct, 256, 144, true>("sm90_f16_grouped/256x144/gated", 168),
  };
  return kernels;
}

}  // namespace culet::sm90
