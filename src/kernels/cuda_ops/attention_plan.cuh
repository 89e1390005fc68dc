// The blocks of the kernels of attention on tensor cores, and the kernels by type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "culet/layout/host_device.h"
#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/launch.cuh"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// kernel(std::integral_constant<int, kDim>{}) for the least kDim with room for a head.
template <class Function>
cudaError_t WithHeadDim(int head_dim, Function&& function) {
  if (head_dim <= 64) return function(std::integral_constant<int, 64>{});
  if (head_dim <= 96) return function(std::integral_constant<int, 96>{});
  if (head_dim <= 128) return function(std::integral_constant<int, 128>{});
  return function(std::integral_constant<int, 256>{});
}

/// Queries of a tile, of heads of `dim` elements.
constexpr int TileQueries(int dim) { return dim <= 128 ? 128 : 64; }

/// The kernel on warpgroup products (sm90a/attention_wgmma.cuh): queries of a tile; keys of a tile
/// of them, of heads of `dim` elements.
inline constexpr int kWgmmaQueries = 128;
constexpr int WgmmaKeys(int dim) { return dim <= 128 ? 128 : 64; }

/// Contiguous keys that it copies at once: a power of two, at most kMostBox of a cache block and at
/// least kLeastBox, since the swizzle repeats after 8 rows. 0 if it cannot. `block_size` 0 means
/// keys without blocks.
inline constexpr int kLeastBox = 8, kMostBox = 64;
constexpr int WgmmaBox(int block_size) {
  if (block_size % kMostBox == 0) return kMostBox;
  return block_size >= kLeastBox && kMostBox % block_size == 0 ? block_size : 0;
}

/// Where its ring has the keys and the values of tile `i` of `tiles`: a tile's keys come before the
/// values of the tile before. i = tiles: where the ring goes on.
CULET_HOST_DEVICE constexpr int WgmmaKeySlot(int i, int tiles) {
  return i == 0 ? 0 : i < tiles ? 2 * i - 1 : 2 * tiles;
}
CULET_HOST_DEVICE constexpr int WgmmaValueSlot(int i, int tiles) {
  return i < tiles - 1 ? 2 * i + 2 : i == tiles - 1 ? 2 * tiles - 1 : 2 * tiles;
}

/// The work of block `block` of `blocks` in round `round`, for work sorted from large to small:
/// every other round goes backwards, which balances the blocks.
CULET_HOST_DEVICE constexpr std::int64_t WgmmaTurn(std::int64_t round, int block, int blocks) {
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

/// Blocks of a row of queries in decoding: 16 heads of a group each.
inline std::int64_t DecodePieces(const AttentionParams& p) {
  return p.kv_heads * CeilDiv(p.heads / p.kv_heads, 16);
}

/// Enough blocks for the tiles of all queries, however sequences share the rows: each sequence
/// begins a new tile, as do the rows before and after all of them. A tile has `most` queries; no
/// row has more tiles than it would have alone.
inline std::int64_t TileBlocks(const AttentionParams& p, std::int64_t rows, std::int64_t sequences,
                               int most) {
  const std::int64_t group = p.heads / p.kv_heads;
  const std::int64_t begun = std::min(rows, std::max<std::int64_t>(sequences, 1) + 2);
  return std::min(rows * group / most + begun, rows * CeilDiv(group, most)) * p.kv_heads;
}

/// Equal pieces of a key-value head's query heads, of which a block of the kernel for few keys
/// takes one; 0: there are none that are small enough.
CULET_HOST_DEVICE constexpr int NearPieces(const AttentionParams& p) {
  const int group = p.heads / p.kv_heads, pieces = (group + kMostNearHeads - 1) / kMostNearHeads;
  return group % pieces == 0 ? pieces : 0;
}

template <class Kernel>
cudaError_t AllowShared(Kernel kernel, int bytes) {
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

cudaError_t DecodeOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t DecodeOfFloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t DecodeOfE4m3(const AttentionArgs& args, LaunchStream stream);
cudaError_t HeadsDecodeOfBfloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                  LaunchStream stream);
cudaError_t HeadsDecodeOfFloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                 LaunchStream stream);
cudaError_t HeadsDecodeOfE4m3(const FusedHeadsArgs& heads, const AttentionArgs& args,
                              LaunchStream stream);
cudaError_t NearOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t HeadsNearOfBfloat16(const FusedHeadsArgs& heads, const AttentionArgs& args,
                                LaunchStream stream);
cudaError_t AllowNearOfBfloat16(int head_dim);
cudaError_t AllowHeadsNearOfBfloat16(int head_dim);
cudaError_t TilesOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t TilesOfFloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t TilesOfE4m3(const AttentionArgs& args, LaunchStream stream);
cudaError_t AllowDecodeOfBfloat16(int head_dim);
cudaError_t AllowDecodeOfFloat16(int head_dim);
cudaError_t AllowDecodeOfE4m3(int head_dim);
cudaError_t AllowHeadsDecodeOfBfloat16(int head_dim);
cudaError_t AllowHeadsDecodeOfFloat16(int head_dim);
cudaError_t AllowHeadsDecodeOfE4m3(int head_dim);
cudaError_t AllowTilesOfBfloat16(int head_dim);
cudaError_t AllowTilesOfFloat16(int head_dim);
cudaError_t AllowTilesOfE4m3(int head_dim);
cudaError_t WgmmaOfBfloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t WgmmaOfFloat16(const AttentionArgs& args, LaunchStream stream);
cudaError_t WgmmaOfE4m3(const AttentionArgs& args, LaunchStream stream);
cudaError_t AllowWgmmaOfBfloat16(int head_dim);
cudaError_t AllowWgmmaOfFloat16(int head_dim);
cudaError_t AllowWgmmaOfE4m3(int head_dim);

}  // namespace culet::cuda_ops
