// Instances of the large-M kernel: F16.
#include "kernels/sm90/instances/direct_block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> F16Blocks() { return DirectBlocks<F16Direct>(); }

}  // namespace culet::sm90
