// See host_cuda.h: src/kernels/cuda_ops/bulk.cuh on the CPU.
#pragma once

#include <async.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::cuda_ops {

template <class... Policy>
void CopyBulk(void* to, const void* from, int bytes, std::uint64_t* barrier, Policy...) {
  host_cuda::LoadBytes(to, from, bytes, barrier);
}

}  // namespace culet::cuda_ops
