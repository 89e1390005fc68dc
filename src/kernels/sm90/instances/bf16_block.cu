// Instances of the large-M kernel: BF16.
#include "kernels/sm90/instances/direct_block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Bf16Blocks() { return DirectBlocks<Bf16Direct>(); }

}  // namespace culet::sm90
