// Instances of the large-M kernel for rows that TMA cannot load: A and B come by copies of 4 or 8
// bytes.
#include "kernels/sm90/instances/block.cuh"
#include "kernels/sm90/product/lists.h"

namespace culet::sm90 {
namespace {

// For few rows of A, with K in four or whole; for more, and for many.
struct List {
  static constexpr BlockSchedule kAll[] = {
      SideBySide({.tile_m = 64, .tile_n = 128, .stages = 8, .split = 4, .copies = true}),
      SideBySide({.tile_m = 64, .tile_n = 128, .stages = 8, .copies = true}),
      {.tile_m = 128, .tile_n = 128, .stages = 6, .copies = true},
      {.tile_m = 256, .tile_n = 128, .stages = 4, .copies = true},
  };
};

}  // namespace

std::span<const BlockKernel> CopyingBlocks() {
  static const auto kernels =
      Joined<BlockKernel>({BlockInstances<Fp8Block, GeneralEpilogue, List>(),
                           BlockInstances<Fp8Precise, GeneralEpilogue, List>(),
                           BlockInstances<Bf16Direct, GeneralEpilogue, List>(),
                           BlockInstances<F16Direct, GeneralEpilogue, List>()});
  return kernels;
}

}  // namespace culet::sm90
