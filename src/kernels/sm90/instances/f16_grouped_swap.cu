// Instances of the grouped kernel.
#include "kernels/sm90/grouped/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> F16GroupedSwaps() {
  static const GroupedSwapKernel kernels[] = {
      MakeGroupedSwap<F16Direct, 32, false>("sm90_f16_grouped/128x32"),
      MakeGroupedSwap<F16Direct, 32, true>("sm90_f16_grouped/128x32/gated"),
      MakeGroupedSwap<F16Direct, 128, false>("sm90_f16_grouped/128x128"),
      MakeGroupedSwap<F16Direct, 128, true>("sm90_f16_grouped/128x128/gated"),
      MakeGroupedSwap<F16Direct, 224, false>("sm90_f16_grouped/128x224"),
      MakeGroupedSwap<F16Direct, 224, true>("sm90_f16_grouped/128x224/gated"),
  };
  return kernels;
}

}  // namespace culet::sm90
