// See host_cuda.h: src/sm90/sync.cuh on the CPU.
#pragma once

#include <async.h>
#include <cuda_runtime.h>
#include <running_threads.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace culet::sm90 {

#define CULET_DYNAMIC_SHARED(name) uint8_t* const name = DynamicShared()
inline uint8_t* DynamicShared() { return reinterpret_cast<uint8_t*>(host_cuda::DynamicShared()); }
inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - DynamicShared());
}

inline bool ElectOne() { return host_cuda::Lane() == 0; }
inline int WarpUniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

inline void BarrierInit(uint64_t* barrier, uint32_t arrivals) {
  host_cuda::InitBarrier(barrier, arrivals);
}
inline void BarrierInitFence() {}
inline void BarrierArriveExpect(uint64_t* barrier, uint32_t bytes) {
  host_cuda::ArriveExpecting(barrier, bytes);
}
inline void BarrierArrive(uint64_t* barrier) { host_cuda::Arrive(barrier); }
inline void BarrierArriveRemote(uint64_t* barrier, uint32_t rank) {
  host_cuda::ArriveAt(barrier, rank);
}
inline void BarrierWait(uint64_t* barrier, uint32_t parity) {
  host_cuda::AwaitPhase(barrier, parity);
}
/// A test may come too early.
inline bool BarrierTest(uint64_t* barrier, uint32_t parity) {
  return host_cuda::HasCompleted(barrier, parity) && host_cuda::Coin();
}
inline void BarrierWaitCluster(uint64_t* barrier, uint32_t parity) {
  host_cuda::AwaitPhase(barrier, parity);
}
inline void Lag(uint32_t) {}

inline void NamedSync(int id, int threads) { host_cuda::MeetNamed(id, threads, false, true); }
inline bool NamedAny(int id, int threads, bool mine) {
  return host_cuda::MeetNamed(id, threads, mine, true);
}
inline void NamedArrive(int id, int threads) { host_cuda::MeetNamed(id, threads, false, false); }

template <int kBytes>
void CopyAsync(uint32_t shared_address, const void* source, int there = kBytes) {
  if (shared_address % kBytes != 0 || reinterpret_cast<std::uintptr_t>(source) % kBytes != 0)
    host_cuda::Fail("a copy of bytes that are not aligned");
  host_cuda::CopyAsync(DynamicShared() + shared_address, source, static_cast<std::size_t>(there),
                       kBytes);
}
inline void CopyAsyncWide(uint32_t shared_address, const void* source, int there) {
  CopyAsync<16>(shared_address, source, there);
}
inline void CopyAsyncCommit() { host_cuda::CommitCopies(); }
template <int kGroups>
void CopyAsyncWait() {
  host_cuda::AwaitArrivals();
  host_cuda::AwaitCopies(kGroups);
}
inline void CopyAsyncArrive(uint64_t* barrier) { host_cuda::ArriveAfterCopies(barrier); }
inline void CopyAsyncWaitAll() {
  CopyAsyncCommit();
  CopyAsyncWait<0>();
}

inline float LoadShared(uint32_t shared_address) {
  float v;
  std::memcpy(&v, DynamicShared() + shared_address, sizeof v);
  return v;
}
inline int2 LoadSharedInt2(uint32_t shared_address) {
  int2 v;
  std::memcpy(&v, DynamicShared() + shared_address, sizeof v);
  return v;
}

inline uint32_t ClusterRank() { return static_cast<uint32_t>(host_cuda::RankInCluster()); }
inline uint32_t ClusterSize() { return static_cast<uint32_t>(host_cuda::BlocksOfCluster()); }
inline uint32_t MapToRank(uint32_t address, uint32_t rank) {
  return host_cuda::AddressInCluster(address, rank);
}
inline void ClusterArriveRelaxed() { host_cuda::ArriveInCluster(); }
inline void ClusterWait() { host_cuda::AwaitArrivedCluster(); }

inline void StoreAsync(uint32_t address, float4 value, uint32_t barrier) {
  host_cuda::StoreToCluster(address, std::array{value.x, value.y, value.z, value.w}, barrier);
}
inline void StoreAsync(uint32_t address, float value, uint32_t barrier) {
  host_cuda::StoreToCluster(address, std::array{value}, barrier);
}
inline void StoreAsync(uint32_t address, float2 value, uint32_t barrier) {
  host_cuda::StoreToCluster(address, std::array{value.x, value.y}, barrier);
}

inline void FenceAsyncShared() {}
template <int kRegisters>
void RegistersUp() {}
template <int kRegisters>
void RegistersDown() {}

inline void GridDependencyWait() { host_cuda::WaitForPreviousAlone(); }
inline void GridDependencyLaunch() {}

}  // namespace culet::sm90
