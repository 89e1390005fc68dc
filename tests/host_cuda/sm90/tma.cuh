// See host_cuda.h: src/sm90/tma.cuh on the CPU.
#pragma once

#include <array>
#include <cstdint>

#include "sm90/sync.cuh"

namespace culet::sm90 {

inline void PrefetchTensorMap(const void* map) { host_cuda::ReadMap(map); }

using L2Policy = uint64_t;
inline L2Policy EvictFirst() { return 0; }

inline void LoadBox(void* to, const void* map, uint64_t* full, std::span<const int> at) {
  host_cuda::LoadBox(to, map, full, at, 1u << host_cuda::RankInCluster());
}

// A policy changes nothing here.
template <class... Policy>
void TmaLoad(void* to, const void* map, uint64_t* full, int inner, int outer, Policy...) {
  LoadBox(to, map, full, std::array{inner, outer});
}
template <class... Policy>
void TmaLoad3(void* to, const void* map, uint64_t* full, int inner, int outer, int slice,
              Policy...) {
  LoadBox(to, map, full, std::array{inner, outer, slice});
}
template <class... Policy>
void TmaLoad4(void* to, const void* map, uint64_t* full, int inner, int outer, int block,
              Policy...) {
  LoadBox(to, map, full, std::array{inner, outer, 0, block});
}
template <class... Policy>
void TmaLoadMulticast(void* to, const void* map, uint64_t* full, int inner, int outer,
                      uint16_t mask, Policy...) {
  host_cuda::LoadBox(to, map, full, std::array{inner, outer}, mask);
}
template <class... Policy>
void TmaLoadMulticast4(void* to, const void* map, uint64_t* full, int inner, int block,
                       uint16_t mask, Policy...) {
  host_cuda::LoadBox(to, map, full, std::array{inner, 0, 0, block}, mask);
}

inline void TmaStore(const void* map, const void* from, int inner, int outer) {
  host_cuda::StoreBox(map, from, std::array{inner, outer});
}
inline void TmaStoreCommit() { host_cuda::CommitStores(); }
template <int kPending>
void TmaStoreWaitRead() {
  host_cuda::AwaitStores(kPending);
}

}  // namespace culet::sm90
