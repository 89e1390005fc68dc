// Instances of the large-M kernel: BF16.
#include "kernels/sm90/block_direct.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Bf16Blocks() { return DirectBlocks<Bf16Direct>(); }

}  // namespace culet::sm90
