// F16 products of few rows a group.
#include "kernels/sm90/instances/grouped_skinny.cuh"

namespace culet::sm90 {
namespace {

struct List {
  static constexpr GroupedSkinnyInstance kAll[] = {
      {.rows = 16, .depth = 4, .plain_registers = 64, .gated_registers = 64},
      {.rows = 32, .depth = 4, .plain_registers = 110, .gated_registers = 108}};
};

}  // namespace

std::span<const GroupedSkinnyKernel> F16GroupedSkinny() {
  return GroupedSkinnyInstances<F16Direct, List>();
}

}  // namespace culet::sm90
