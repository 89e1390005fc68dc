// Instances of the grouped kernel.
#include "kernels/sm90/grouped/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> F16GroupedSwaps() {
  static const GroupedSwapKernel kernels[] = {
      MakeGroupedSwap<F16Direct, 32, false>("sm90_f16_grouped/128x32", 56),
      MakeGroupedSwap<F16Direct, 32, true>("sm90_f16_grouped/128x32/gated", 56),
      MakeGroupedSwap<F16Direct, 128, false>("sm90_f16_grouped/128x128", 168),
      MakeGroupedSwap<F16Direct, 128, true>("sm90_f16_grouped/128x128/gated", 168),
      MakeGroupedSwap<F16Direct, 224, false>("sm90_f16_grouped/128x224", 168),
      MakeGroupedSwap<F16Direct, 224, true>("sm90_f16_grouped/128x224/gated", 168),
  };
  return kernels;
}

}  // namespace culet::sm90
