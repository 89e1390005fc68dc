// Instances of the large-M kernel: E4M3 with scales of rows or tensors, summed in the tensor core's
// accumulator.
#include "kernels/sm90/instances/direct_block.cuh"

namespace culet::sm90 {

std::span<const BlockKernel> Fp8FastBlocks() { return DirectBlocks<Fp8Fast>(); }

}  // namespace culet::sm90
