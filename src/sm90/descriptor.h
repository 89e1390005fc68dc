// Hopper's data layouts as constexpr arithmetic: shared-memory matrix descriptors, geometry of
// tensor maps, counts of barriers. There is no device code and no CUDA header, so host tests cover
// all of it.
#pragma once

#include <cstdint>

#include "culet/layout/host_device.h"

namespace culet::sm90 {

/// Width of the swizzle pattern of a shared-memory tile, in bytes. A row of the tile is not wider.
/// culet/layout/tma_swizzle.h has the patterns.
enum class SwizzleMode : std::uint8_t { kNone = 0, k128Bytes = 1, k64Bytes = 2, k32Bytes = 3 };

CULET_HOST_DEVICE constexpr int SwizzleBytes(SwizzleMode mode) noexcept {
  return mode == SwizzleMode::k128Bytes  ? 128
         : mode == SwizzleMode::k64Bytes ? 64
         : mode == SwizzleMode::k32Bytes ? 32
                                         : 16;
}

/// The constant part of a wgmma shared-memory descriptor (PTX ISA 9.7.15.5.1 "Matrix Descriptor
/// Format") of a K-major tile with 128-byte rows: leading offset 1 (ignored for swizzled K-major
/// tiles), 1024 bytes between groups of 8 rows, 128-byte swizzle in bits 62-63. WgmmaDescriptor128
/// adds the address.
inline constexpr std::uint64_t kWgmmaDescriptor128 =
    (std::uint64_t{1} << 16) | (std::uint64_t{1024 >> 4} << 32) | (std::uint64_t{1} << 62);

/// The descriptor of a tile at byte address `address` of shared memory. Requires: address % 1024 ==
/// 0, but for steps along K inside a 128-byte row (WgmmaDescriptorStep).
CULET_HOST_DEVICE constexpr std::uint64_t WgmmaDescriptor128(std::uint32_t address) noexcept {
  return kWgmmaDescriptor128 | static_cast<std::uint64_t>((address & 0x3FFFF) >> 4);
}

/// The descriptor of an MN-major tile of a 16-bit format with 128-byte rows. A row holds 64
/// elements along M or N of one k. Groups of 8 rows are 1024 bytes apart. The next 64 elements of
/// all k lie `next` bytes further. Requires: as WgmmaDescriptor128; next a multiple of 1024 below
/// 2^18.
CULET_HOST_DEVICE constexpr std::uint64_t WgmmaDescriptorTransposed128(
    std::uint32_t address, std::uint32_t next) noexcept {
  return (std::uint64_t{1} << 62) | (std::uint64_t{1024 >> 4} << 32) |
         (std::uint64_t{next >> 4} << 16) | static_cast<std::uint64_t>((address & 0x3FFFF) >> 4);
}

/// The number to add to a descriptor that moves it by `bytes`, a multiple of 16.
CULET_HOST_DEVICE constexpr std::uint64_t WgmmaDescriptorStep(std::uint32_t bytes) noexcept {
  return bytes >> 4;
}

/// Bytes of K that one wgmma consumes, in every format.
inline constexpr std::uint32_t kWgmmaKBytes = 32;

/// Arrivals that complete a phase of a stage's `full` barrier: one arrive.expect_tx of the
/// producer, and one of each of `extra_threads` that write parts of the stage themselves.
CULET_HOST_DEVICE constexpr std::uint32_t FullArrivals(std::uint32_t extra_threads = 0) noexcept {
  return 1 + extra_threads;
}

/// Arrivals that complete a phase of a stage's `empty` barrier: one of each consumer warp, in every
/// CTA that reads what this CTA's producer loads (all CTAs of a multicast group).
CULET_HOST_DEVICE constexpr std::uint32_t EmptyArrivals(std::uint32_t consumer_warps,
                                                        std::uint32_t multicast_ctas) noexcept {
  return consumer_warps * multicast_ctas;
}

/// A tensor map before it is encoded. `inner` is the contiguous axis.
struct TensorMapPlan {
  std::uint64_t inner = 0;        ///< elements along the contiguous axis
  std::uint64_t outer = 0;        ///< rows
  std::uint64_t pitch_bytes = 0;  ///< between two rows
  std::uint32_t box_inner = 0;    ///< elements
  std::uint32_t box_outer = 0;    ///< rows
  std::uint64_t depth = 1;        ///< slices, depth_bytes apart (which may be less than a row)
  std::uint64_t depth_bytes = 0;
  std::uint32_t box_depth = 1;
  std::uint64_t blocks = 1;  ///< of slices, block_bytes apart
  std::uint64_t block_bytes = 0;
  std::uint32_t box_blocks = 1;
  int rank = 2;  ///< axes of the map: 2, with slices 3, with blocks 4
  std::uint32_t element_bytes = 1;
  SwizzleMode swizzle = SwizzleMode::k128Bytes;
};

/// Null, or the reason why cuTensorMapEncodeTiled would refuse (CUDA driver API, "Tensor Map Object
/// Management"). The base address must be a multiple of 16, too.
constexpr const char* WhyNotTensorMap(const TensorMapPlan& plan) noexcept {
  constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 32;
  if (plan.inner == 0 || plan.outer == 0) return "a tensor map needs at least one element";
  if (plan.inner > kMaxExtent || plan.outer > kMaxExtent)
    return "a tensor map's extents end at 2^32";
  if (plan.pitch_bytes % 16 != 0) return "rows must be a multiple of 16 bytes apart for TMA";
  if (plan.pitch_bytes >= (std::uint64_t{1} << 40)) return "a tensor map's pitch ends at 2^40";
  if (plan.depth == 0 || plan.depth > kMaxExtent || plan.box_depth == 0 || plan.box_depth > 256)
    return "a tensor map's third axis has 1 to 2^32 slices, its box 1 to 256 of them";
  if (plan.depth_bytes % 16 != 0 || plan.depth_bytes >= (std::uint64_t{1} << 40))
    return "a tensor map's slices must be a multiple of 16 bytes apart";
  if (plan.blocks == 0 || plan.blocks > kMaxExtent || plan.box_blocks == 0 || plan.box_blocks > 256)
    return "a tensor map's fourth axis has 1 to 2^32 blocks, its box 1 to 256 of them";
  if (plan.block_bytes % 16 != 0 || plan.block_bytes >= (std::uint64_t{1} << 40))
    return "a tensor map's blocks must be a multiple of 16 bytes apart";
  if (plan.rank < 2 || plan.rank > 4 || (plan.rank < 3 && plan.depth > 1) ||
      (plan.rank < 4 && plan.blocks > 1))
    return "a tensor map has 2 to 4 axes, and one for slices or blocks where it has several";
  if (plan.box_inner == 0 || plan.box_inner > 256 || plan.box_outer == 0 || plan.box_outer > 256)
    return "a TMA box has 1 to 256 elements along each axis";
  if (plan.box_inner * plan.element_bytes % 16 != 0)
    return "a TMA box's rows are multiples of 16 bytes";
  if (plan.swizzle != SwizzleMode::kNone &&
      plan.box_inner * plan.element_bytes > static_cast<std::uint32_t>(SwizzleBytes(plan.swizzle)))
    return "a TMA box's rows must fit the swizzle";
  return nullptr;
}

/// Bytes that one box brings, which expect_tx must say. Elements outside the tensor count: they are
/// filled with zeros.
CULET_HOST_DEVICE constexpr std::uint32_t BoxBytes(const TensorMapPlan& plan) noexcept {
  return plan.box_inner * plan.box_outer * plan.box_depth * plan.box_blocks * plan.element_bytes;
}

}  // namespace culet::sm90
