// How kernels of every Hopper family are loaded and launched, and how many CTAs a multiprocessor
// holds.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "kernels/sm90/product/product.h"

namespace culet::sm90 {

/// Shared memory of a multiprocessor, of which each resident CTA takes kSmemReserved besides its
/// own, and the most that a CTA can have.
inline constexpr int kSmemPerSm = 228 * 1024, kSmemReserved = 1024, kSmemPerCta = 227 * 1024;

/// CTAs of `warps` warps with `registers` a thread that a multiprocessor holds, 0 if not even one.
constexpr int ResidentCtas(int warps, int registers, int smem_bytes) {
  constexpr int kRegistersPerPart = 16384, kMaxCtas = 32, kMaxWarps = 64;
  // Warps get registers in units of 8 a thread. Each warp belongs to one of four partitions.
  const int warps_held = kRegistersPerPart / (CeilDiv(registers, 8) * 8 * 32) * 4;
  return std::min(
      {warps_held / warps, kSmemPerSm / (smem_bytes + kSmemReserved), kMaxCtas, kMaxWarps / warps});
}

/// Loads a kernel on the current device and raises its shared-memory limit; not during a capture.
cudaError_t LoadKernel(const void* function, int smem_bytes);

struct LaunchShape {
  dim3 grid, block;
  int smem_bytes = 0;
  int cluster_size =
      1;             ///< CTAs along x; a cluster of one, too, takes longer to start, so 1 is none
  bool pdl = false;  ///< a programmatic dependent launch
};

/// `params` points at the kernel's one argument.
cudaError_t LaunchKernel(const void* function, const LaunchShape& shape, const void* params,
                         cudaStream_t stream);

}  // namespace culet::sm90
