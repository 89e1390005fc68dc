// See host_cuda.h: src/kernels/cuda_ops/cluster.cuh on the CPU.
#pragma once

#include <cstdint>
#include <cstring>

namespace culet::cuda_ops {

inline void MeetCluster(int) { host_cuda::MeetCluster(); }
inline void LeaveCluster(int) { host_cuda::MeetCluster(); }

template <std::size_t kCount>
void LoadOfCluster(std::uint32_t from, int rank, float (&to)[kCount]) {
  std::memcpy(to, host_cuda::SharedOfCluster(rank) + from, sizeof to);
}

inline void Pin(int&) {}

}  // namespace culet::cuda_ops
