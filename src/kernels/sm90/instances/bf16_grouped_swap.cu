// Instances of the grouped kernel.
#include "kernels/sm90/grouped/swap_kernel.cuh"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> Bf16GroupedSwaps() {
  static const GroupedSwapKernel kernels[] = {
      MakeGroupedSwap<Bf16Direct, 32, false>("sm90_bf16_grouped/128x32"),
      MakeGroupedSwap<Bf16Direct, 32, true>("sm90_bf16_grouped/128x32/gated"),
      MakeGroupedSwap<Bf16Direct, 128, false>("sm90_bf16_grouped/128x128"),
      MakeGroupedSwap<Bf16Direct, 128, true>("sm90_bf16_grouped/128x128/gated"),
      MakeGroupedSwap<Bf16Direct, 224, false>("sm90_bf16_grouped/128x224"),
      MakeGroupedSwap<Bf16Direct, 224, true>("sm90_bf16_grouped/128x224/gated"),
  };
  return kernels;
}

}  // namespace culet::sm90
