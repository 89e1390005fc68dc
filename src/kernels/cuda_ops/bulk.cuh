// Bulk copies of Hopper, without a tensor map. tests/host_cuda has the same for the CPU.
#pragma once

#include <cstdint>

#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::cuda_ops {

/// Copies `bytes`, a multiple of 16 as both addresses are, to this block's shared memory and
/// completes them on `barrier`. PTX ISA, cp.async.bulk.
__device__ __forceinline__ void CopyBulk(void* to, const void* from, int bytes,
                                         std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(sm90::SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(sm90::SharedAddress(barrier))
      : "memory");
}
/// CopyBulk with an L2 policy.
__device__ __forceinline__ void CopyBulk(void* to, const void* from, int bytes,
                                         std::uint64_t* barrier, sm90::L2Policy policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(sm90::SharedAddress(to)),
      "l"(from), "r"(bytes), "r"(sm90::SharedAddress(barrier)), "l"(policy)
      : "memory");
}

}  // namespace culet::cuda_ops
