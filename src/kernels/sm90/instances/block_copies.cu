// Instances of the large-M kernel for rows that TMA cannot load: A and B come by copies of 4 or 8
// bytes.
#include <vector>

#include "kernels/sm90/instances/block.cuh"

namespace culet::sm90 {
namespace {

template <BlockSchedule kSchedule, class Policy>
BlockKernel Make() {
  return MakeBlock<BlockConfig<kSchedule, Policy, GeneralEpilogue>>();
}

// For few rows of A, with K in four or whole; for more, and for many.
template <class Policy>
void AddTo(std::vector<BlockKernel>& kernels) {
  kernels.push_back(Make<BlockSchedule{.tile_m = 64,
                                       .tile_n = 128,
                                       .warpgroups_m = 1,
                                       .warpgroups_n = 2,
                                       .stages = 8,
                                       .split = 4,
                                       .copies = true},
                         Policy>());
  kernels.push_back(Make<BlockSchedule{.tile_m = 64,
                                       .tile_n = 128,
                                       .warpgroups_m = 1,
                                       .warpgroups_n = 2,
                                       .stages = 8,
                                       .copies = true},
                         Policy>());
  kernels.push_back(
      Make<BlockSchedule{.tile_m = 128, .tile_n = 128, .stages = 6, .copies = true}, Policy>());
  kernels.push_back(
      Make<BlockSchedule{.tile_m = 256, .tile_n = 128, .stages = 4, .copies = true}, Policy>());
}

}  // namespace

std::span<const BlockKernel> CopyingBlocks() {
  static const std::vector<BlockKernel> kernels = [] {
    std::vector<BlockKernel> all;
    AddTo<Fp8Block>(all);
    AddTo<Fp8Precise>(all);
    AddTo<Bf16Direct>(all);
    AddTo<F16Direct>(all);
    return all;
  }();
  return kernels;
}

}  // namespace culet::sm90
