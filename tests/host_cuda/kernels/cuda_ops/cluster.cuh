// See host_cuda.h: src/kernels/cuda_ops/cluster.cuh on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace culet::cuda_ops {

inline void MeetCluster(int) { host_cuda::MeetCluster(); }
inline void LeaveCluster(int) { host_cuda::MeetCluster(); }

template <std::size_t kCount>
void LoadOfCluster(std::uint32_t from, int rank, float (&to)[kCount]) {
  std::memcpy(to, host_cuda::SharedOfCluster(rank) + from, sizeof to);
}

inline void StoreToBlock(std::uint32_t to, int rank, float x) {
  std::memcpy(host_cuda::SharedOfCluster(rank) + to, &x, sizeof x);
}

inline void ArriveAtCluster() {}
inline void AwaitCluster() { host_cuda::MeetCluster(); }

inline void MakeStoresBarrier(std::uint32_t) {}
inline void ExpectStores(std::uint32_t, int) {}
inline void StoreToCluster(std::uint32_t to, std::uint32_t, int rank, float x, float y) {
  const float pair[2] = {x, y};
  std::memcpy(host_cuda::SharedOfCluster(rank) + to, pair, sizeof pair);
}
inline void AwaitStores(std::uint32_t) { host_cuda::MeetCluster(); }

template <class T>
void Pin(T&) {}

}  // namespace culet::cuda_ops
