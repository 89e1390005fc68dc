// See host_cuda.h: src/kernels/cuda_ops/peers.cuh on the CPU, between threads that are ranks.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace culet::cuda_ops {

inline std::uint32_t ReadShared(const std::uint32_t* from) {
  return std::atomic_ref(*const_cast<std::uint32_t*>(from)).load(std::memory_order_acquire);
}
inline void WriteShared(std::uint32_t* to, std::uint32_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}
inline void FenceSystem() { std::atomic_thread_fence(std::memory_order_seq_cst); }

// The epoch is written last and read first: who sees it sees the data. Packets of a thread come one
// by one.
inline void SendPacket(uint4* to, const uint4& packet) {
  static thread_local unsigned sent = 0;
  if (++sent % 7 == 0) host_cuda::Pause();
  std::atomic_ref(to->x).store(packet.x, std::memory_order_relaxed);
  std::atomic_ref(to->y).store(packet.y, std::memory_order_relaxed);
  std::atomic_ref(to->z).store(packet.z, std::memory_order_relaxed);
  WriteShared(&to->w, packet.w);
}
inline uint4 ReadPacket(const uint4* from) {
  auto* const at = const_cast<uint4*>(from);
  uint4 packet;
  packet.w = ReadShared(&from->w);
  packet.x = std::atomic_ref(at->x).load(std::memory_order_relaxed);
  packet.y = std::atomic_ref(at->y).load(std::memory_order_relaxed);
  packet.z = std::atomic_ref(at->z).load(std::memory_order_relaxed);
  return packet;
}

inline std::uint64_t Nanoseconds() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

constexpr std::uint32_t kLooksBetween = 16;

inline void Pause() { host_cuda::Pause(); }

}  // namespace culet::cuda_ops
