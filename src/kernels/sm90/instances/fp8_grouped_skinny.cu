// E4M3 products of few rows a group, with scales of blocks.
#include "kernels/sm90/instances/grouped_skinny.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr GroupedSkinnyInstance kAll[] = {
      {.rows = 16, .depth = 4, .plain_registers = 68, .gated_registers = 70},
      {.rows = 32, .depth = 4, .plain_registers = 120, .gated_registers = 120}};
};

}  // namespace

std::span<const GroupedSkinnyKernel> Fp8GroupedSkinny() {
  return GroupedSkinnyInstances<Fp8Block, List>();
}

}  // namespace culet::sm90
