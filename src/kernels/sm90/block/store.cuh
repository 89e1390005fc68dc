// Stores a large-M kernel's sums to D. With split K the cluster reduces them first. They leave from
// registers, by TMA through slabs (buffers in shared memory of 16 rows x 128 bytes per warp), or,
// for the last tile, by copies of the warps.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/quantise.cuh"
#include "sm90/descriptor.h"
#include "sm90/epilogue.cuh"
#include "sm90/sync.cuh"
#include "sm90/tma.cuh"

namespace culet::sm90 {

/// Stores a warp's part of a tile: 16 rows x kColumns columns of each m64 block.
template <class C>
struct TileStore {
  const BlockParams& p;
  float (&sum)[C::kBlocksM][C::kColumns / 2];
  const Tile& tile;
  const int& lane;

  /// End of the rows of D that this tile may write.
  __device__ __forceinline__ int RowEnd() const { return C::kGrouped ? tile.row + tile.rows : p.m; }

  /// Columns of D.
  __device__ __forceinline__ int n() const { return C::kGated ? p.n / 2 : p.n; }

  /// Columns that fill whole 16-byte pieces. A bulk store writes whole pieces even if its map ends
  /// inside one (measured), so D's map ends here and StoreEnd writes the remaining columns.
  __device__ __forceinline__ int whole() const { return n() - n() % kElementsOfPiece; }

  /// Stores the columns past whole() among the kColumns from `column` on, for 16 rows from `row`
  /// on. `values` are in accumulator layout. Not unrolled for 16-bit products, which would spill.
  template <int kColumns, class Element, class Round>
  __device__ __forceinline__ void StoreEnd(const float* values, int row, int column, Round round) {
    if (whole() == n() || column + kColumns <= whole()) return;
    const int first = lane % 4 * 2 + column;
    constexpr int kAtOnce = C::kPlain || C::Policy::kInfo.element_bytes == 1 ? kColumns / 8 : 1;
#pragma unroll kAtOnce
    for (int n8 = 0; n8 < kColumns / 8; ++n8) {
      if (column + n8 * 8 < whole()) continue;
      float of_eight[4];
#pragma unroll
      for (int g = 0; g < kColumns / 8; ++g)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (g == 0 || g == n8) of_eight[i] = values[g * 4 + i];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = row + lane / 4 + i / 2 * 8, j = first + n8 * 8 + i % 2;
        if (at < RowEnd() && j < n())
          static_cast<Element*>(p.d)[at * p.ldd + j] = round(of_eight[i]);
      }
    }
  }
  /// StoreEnd for a slab's 64 columns of 16 bits.
  __device__ __forceinline__ void StoreEndOfSlab(const float* values, int row, int column) {
    const OutputType type = C::kPlain ? OutputType::kBf16 : p.epilogue.d_type;
    StoreEnd<64, uint16_t>(values, row, column, [&](float x) {
      return static_cast<uint16_t>(PackOutput(type, x, 0.0f));
    });
  }

  /// Stores kCount columns from `begin` on of m64 block `m` as F32: four lanes write 32 bytes side
  /// by side. Requires: D and its rows aligned to 8 bytes.
  template <int kCount>
  __device__ __forceinline__ void StoreF32(int m, int begin, int row, int column) {
    column += lane % 4 * 2 + begin;
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // rows r and r + 8 of the block
      const int at = row + m * 64 + i * 8 + lane / 4;
      if (at >= RowEnd()) continue;
      float* const to = static_cast<float*>(p.d) + at * p.ldd;
#pragma unroll
      for (int n8 = 0; n8 < kCount / 8; ++n8) {
        const float* v = &sum[m][begin / 2 + n8 * 4 + i * 2];
        const int j = column + n8 * 8;
        if (j + 1 < n()) {
          *reinterpret_cast<float2*>(to + j) = make_float2(v[0], v[1]);
        } else if (j < n()) {
          to[j] = v[0];
        }
      }
    }
  }

  /// Stores kCount columns from `begin` on of m64 block `m` one by one, in D's type, whatever D's
  /// alignment.
  template <int kCount>
  __device__ __forceinline__ void StoreElements(int m, int begin, int row, int column) {
    column += lane % 4 * 2 + begin;
    const OutputType type = C::kPlain ? OutputType::kBf16 : p.epilogue.d_type;
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // rows r and r + 8 of the block
      const int at = row + m * 64 + i * 8 + lane / 4;
      if (at >= RowEnd()) continue;
#pragma unroll
      for (int n8 = 0; n8 < kCount / 8; ++n8) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int j = column + n8 * 8 + e;
          if (j < n())
            StoreOutput(p.d, type, at * p.ldd + j, sum[m][begin / 2 + n8 * 4 + i * 2 + e]);
        }
      }
    }
  }

  /// Rounds kWidth columns from `offset` on of m64 block `m` into `slab`, and some that lie behind
  /// where they are no multiple of 16.
  template <int kWidth>
  __device__ __forceinline__ void FillSlab(int m, int offset, uint8_t* slab) {
    const float* const from = &sum[m][offset / 2];
    constexpr int kFilled = (kWidth + 15) / 16 * 16;
    if (!C::kPlain && p.epilogue.d_type == OutputType::kF16)
      StoreSlab16<kFilled>(SharedAddress(slab), from, lane, PackF16);
    else
      StoreSlab16<kFilled>(SharedAddress(slab), from, lane, PackBf16);
  }

  /// Stores kWidth columns from `offset` on of m64 block `m` by the warp's own copies. For the last
  /// tile, where no work is left to hide a bulk store's latency.
  /// Requires: D and its rows aligned to 16 bytes.
  template <int kWidth>
  __device__ __forceinline__ void CopySlab(int m, int offset, uint8_t* slab, int row, int column) {
    FillSlab<kWidth>(m, offset, slab);
    __syncwarp();
    const int chunk = lane % 8, first = lane / 8;
    if (chunk >= kWidth / 8) return;
    const int to_row = row + m * 64 + first, to_column = column + offset + chunk * 8;
    auto* to = static_cast<uint16_t*>(p.d) + to_row * p.ldd + to_column;
#pragma unroll
    for (int j = 0; j < 16; j += 4, to += 4 * p.ldd) {
      const uint8_t* const from = slab + Slab16::apply<uint32_t>(first + j, chunk * 16);
      if (to_row + j >= RowEnd()) break;
      if (to_column + 8 <= n()) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
      } else {
        for (int e = 0; e < n() - to_column; ++e)
          to[e] = reinterpret_cast<const uint16_t*>(from)[e];
      }
    }
  }

  /// Stores the columns [begin, begin + kCount) of m64 block `m`, each 64 through a slab, kStep
  /// bytes from one to the next from `slab` on; the last 64 overlap those before where kCount is no
  /// multiple.
  template <int kCount, int kStep = C::kSlabBytes>
  __device__ __forceinline__ void CopyColumns(int m, int begin, uint8_t* slab, int row,
                                              int column) {
    constexpr int kWidth = kCount < 64 ? kCount : 64;
#pragma unroll
    for (int done = 0; done < kCount; done += 64, slab += kStep) {
      if (kStep == 0) __syncwarp();
      const int from = done + kWidth <= kCount ? done : kCount - kWidth;
      CopySlab<kWidth>(m, begin + from, slab, row, column);
    }
  }

  /// The first column of slab `i` of kBlocksM * kSlabsN. The last slab of a row of slabs overlaps
  /// the one before where the columns are no multiple of 64: both write the same values.
  static __device__ __forceinline__ int OffsetOf(int i) {
    const int s = i % C::kSlabsN;
    return s * 64 + 64 <= C::kColumnsOfD ? s * 64 : C::kColumnsOfD - 64;
  }

  /// Puts slab `i`'s 16 rows of this warp into `slab`.
  __device__ __forceinline__ void Fill(int i, uint8_t* slab, int row, int column) {
    const int m = i / C::kSlabsN, offset = OffsetOf(i);
    FillSlab<64>(m, offset, slab);
    StoreEndOfSlab(&sum[m][offset / 2], row + m * 64, column + offset);
  }

  /// One thread stores it to D, alone or with the warpgroup's other slabs as a box of 64 rows
  /// (kStoreRows).
  __device__ __forceinline__ void Send(int i, const uint8_t* slab, int row, int column) {
    const int to_row = row + i / C::kSlabsN * 64, to_column = column + OffsetOf(i);
    if (to_row < RowEnd() && to_column < whole()) TmaStore(&p.d_map, slab, to_column, to_row);
  }

  /// Stores slab `i` through `slab`. First waits for the store that may still read that buffer:
  /// kSlabs stores ago, or the previous one if each tile restarts at the first buffer. `leads`:
  /// this thread issues the stores; it must be the same one each time.
  __device__ __forceinline__ void StoreSlab(int i, uint8_t* slab, int row, int column, int group,
                                            bool leads) {
    if (leads) {
      if (C::kAllSlabs % C::kSlabs != 0 && i == 0)
        TmaStoreWaitRead<0>();
      else
        TmaStoreWaitRead<C::kSlabs - 1>();
    }
    Sync(group);
    Fill(i, slab, row, column);
    FenceAsyncShared();
    Sync(group);
    if (leads) {
      Send(i, slab, row, column);
      TmaStoreCommit();
    }
  }

  /// Waits until all stores issued so far have read their slabs.
  __device__ __forceinline__ void WaitForSlabs(int group, bool leads) {
    if (leads) TmaStoreWaitRead<0>();
    Sync(group);
  }

  /// Stores all slabs at once, each in its own buffer, `step` bytes apart: every fence with its two
  /// barriers costs about 250 clocks (H200) without a product running.
  __device__ __forceinline__ void StoreSlabs(uint8_t* slabs, int step, int row, int column,
                                             int group, bool leads) {
    static_assert(C::kAllSlabs <= C::kSlabs);
    if constexpr (!C::kWaitsUnder) WaitForSlabs(group, leads);
#pragma unroll
    for (int i = 0; i < C::kAllSlabs; ++i) Fill(i, slabs + i * step, row, column);
    FenceAsyncShared();
    Sync(group);
    if (leads) {
#pragma unroll
      for (int i = 0; i < C::kAllSlabs; ++i) Send(i, slabs + i * step, row, column);
      TmaStoreCommit();
    }
  }

  /// A barrier of warpgroup `group`'s warps if their slabs are stored together.
  __device__ __forceinline__ void Sync(int group) {
    if constexpr (C::kStoreRows == 64)
      NamedSync(2 + group, 128);
    else
      __syncwarp();
  }
};

/// Split K: exchanges partial sums over distributed shared memory. Afterwards CTA `rank` holds the
/// sums of registers [rank * kShare, (rank + 1) * kShare) of every thread, added in the order of
/// the parts, so results repeat bit by bit. The partial sums may land in the stages, and a cluster
/// of a split kernel computes one tile (PlanBlock sizes the grid). A CTA that has all its
/// partial sums is sent nothing more, and may leave before the others.
template <class C>
__device__ __forceinline__ void ReduceSplit(float* mine, int lane, BlockShared<C>& shared,
                                            uint8_t* incoming_sums, int rank) {
  constexpr int kRegisters = C::kBlocksM * C::kColumns / 2;
  constexpr int kShare = kRegisters / C::kSplit;
  const int thread = threadIdx.x - 128;
  if constexpr (!C::kOwnPartials) {
    __syncwarp();
    if (lane < C::kSplit) BarrierArriveRemote(&shared.peers_done, lane);
    BarrierWait(&shared.peers_done, 0);
  }
  if (thread == 0) BarrierArriveExpect(&shared.partials, (C::kSplit - 1) * kShare * 4 * 256);
#pragma unroll
  for (int to = 0; to < C::kSplit; ++to) {
    if (to == rank) continue;
    const int slot = rank < to ? rank : rank - 1;
    const uint32_t base =
        MapToRank(SharedAddress(incoming_sums), to) + (slot * (kShare / 4) * 256 + thread) * 16;
    const uint32_t barrier = MapToRank(SharedAddress(&shared.partials), to);
#pragma unroll
    for (int j = 0; j < kShare / 4; ++j) {
      const float* v = mine + to * kShare + j * 4;
      StoreAsync(base + j * 256 * 16, make_float4(v[0], v[1], v[2], v[3]), barrier);
    }
  }
  BarrierWaitCluster(&shared.partials, 0);
  const float4* incoming = reinterpret_cast<const float4*>(incoming_sums) + thread;
#pragma unroll
  for (int r = 0; r < C::kSplit; ++r) {
    if (r != rank) continue;
#pragma unroll
    for (int j = 0; j < kShare / 4; ++j) {
      float* own = mine + r * kShare + j * 4;
      float4 sum;
#pragma unroll
      for (int from = 0; from < C::kSplit; ++from) {
        const float4 v = from == r
                             ? make_float4(own[0], own[1], own[2], own[3])
                             : incoming[((from < r ? from : from - 1) * (kShare / 4) + j) * 256];
        sum = from == 0 ? v : make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
      }
      own[0] = sum.x;
      own[1] = sum.y;
      own[2] = sum.z;
      own[3] = sum.w;
    }
  }
}

}  // namespace culet::sm90
