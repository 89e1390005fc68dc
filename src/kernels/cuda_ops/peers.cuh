// Packets between GPUs: data and the epoch in one access of 16 bytes, which a reader sees whole.
// tests/host_cuda has the same for the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace culet::cuda_ops {

/// The words x, y and z are data, w is the epoch. A 128-bit scalar is one access in the PTX memory
/// model, and no fence is needed between what lies in one access; a vector would be four.
__device__ __forceinline__ void SendPacket(uint4* to, const uint4& packet) {
  asm volatile(
      "{\n\t"
      ".reg .b64 low, high;\n\t"
      ".reg .b128 both;\n\t"
      "mov.b64 low, {%1, %2};\n\t"
      "mov.b64 high, {%3, %4};\n\t"
      "mov.b128 both, {low, high};\n\t"
      "st.relaxed.sys.global.b128 [%0], both;\n\t"
      "}" ::"l"(to),
      "r"(packet.x), "r"(packet.y), "r"(packet.z), "r"(packet.w)
      : "memory");
}

__device__ __forceinline__ uint4 ReadPacket(const uint4* from) {
  uint4 packet;
  asm volatile(
      "{\n\t"
      ".reg .b64 low, high;\n\t"
      ".reg .b128 both;\n\t"
      "ld.relaxed.sys.global.b128 both, [%4];\n\t"
      "mov.b128 {low, high}, both;\n\t"
      "mov.b64 {%0, %1}, low;\n\t"
      "mov.b64 {%2, %3}, high;\n\t"
      "}"
      : "=r"(packet.x), "=r"(packet.y), "=r"(packet.z), "=r"(packet.w)
      : "l"(from)
      : "memory");
  return packet;
}

/// A word that the host or another kernel may change meanwhile.
__device__ __forceinline__ std::uint32_t ReadShared(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void WriteShared(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// What this thread wrote before is seen by all GPUs before what it writes afterwards.
__device__ __forceinline__ void FenceSystem() { __threadfence_system(); }

__device__ __forceinline__ std::uint64_t Nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Looks for a packet between those at the clock and the host, which take a microsecond.
constexpr std::uint32_t kLooksBetween = 1024;

/// In a loop that waits for another rank.
__device__ __forceinline__ void Pause() {}

}  // namespace culet::cuda_ops
