// What feeds a large-M kernel's ring where rows of A or B lie on 4 or 8 bytes, which TMA cannot
// load: the producer's warpgroup by copies of as many bytes, into the order in which TMA writes a
// tile.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/producer.cuh"
#include "sm90/sync.cuh"

namespace culet::sm90 {

/// Arrivals at a stage's full barrier: one a warp of the producer's.
inline constexpr uint32_t kCopyArrivals = 4;

/// One producer thread of 128. A stage is published when its copies have landed, and a fence lets
/// wgmma read them: kBehind stages after the copies were asked for.
template <class C, int kUnit>
struct OperandCopier {
  static constexpr int kThreads = 128, kUnits = kBlockBytes / kUnit, kRows = kThreads / kUnits;
  static constexpr int kBehind = C::kStages - 2;

  const BlockParams& p;
  BlockShared<C>& shared;
  uint8_t *const stages, *const quads;
  RingCursor<C::kStages> at{}, published{};
  int waiting = 0;  // stages whose copies were asked for, and which are not published

  /// `rows` of a tile of kTileRows, those that there are, from `from` on: k-block `kb` of them.
  template <int kTileRows>
  __device__ __forceinline__ void CopyRows(uint32_t to, const char* from, int64_t pitch, int rows,
                                           int kb) const {
    const int row = threadIdx.x / kUnits, byte = threadIdx.x % kUnits * kUnit;
    const int k_byte = kb * kBlockBytes + byte;
    // Zeros beyond K. What lies at the address is not read then.
    const int there = min(max(p.k_bytes - k_byte, 0), kUnit);
    from += row * pitch + (there > 0 ? k_byte : 0);
#pragma unroll 8
    for (int i = 0; i < kTileRows; i += kRows, from += kRows * pitch) {
      const int r = row + i;
      if (r >= rows) break;
      const uint32_t chunk = static_cast<uint32_t>((byte / 16) ^ (r % 8));
      CopyAsync<kUnit>(to + r * kBlockBytes + chunk * 16 + byte % 16, from, there);
    }
  }

  /// The oldest stage that waits, whose copies have landed.
  __device__ __forceinline__ void Publish() {
    FenceAsyncShared();
    __syncwarp();
    if (threadIdx.x % 32 == 0) BarrierArrive(&shared.ring.full[published.stage]);
    published.Advance();
    --waiting;
  }
  __device__ __forceinline__ void PublishAll() {
    CopyAsyncWaitAll();
    while (waiting > 0) Publish();
  }

  /// All tiles of this CTA.
  __device__ __forceinline__ void Run(int rank, int kb_begin, int kb_end) {
    QuadCursor<C> quad_at;
    for (TileWalk<C> walk(p, shared); walk.there(); walk.Advance()) {
      const Tile place = walk.Place(rank);
      const int rows_a = min(p.m - place.row, C::kTileM),
                rows_b = min(p.n - place.column, C::kTileN);
      const char* const a = p.a_rows + place.row * p.a_pitch;
      const char* const b = p.b_rows + place.column * p.b_pitch;
      for (int kb = kb_begin; kb < kb_end; ++kb) {
        shared.ring.WaitEmpty(at);
        if (C::kScaled && (kb % 4 == 0 || kb == kb_begin)) {
          // Consumers cannot leave a quad whose stages were not published.
          if (!quad_at.IsOlderThanRing()) PublishAll();
          quad_at.Acquire(shared, at);
          uint8_t* const quad = quads + quad_at.slot * C::kQuadBytes;
          if (threadIdx.x == 0)
            *reinterpret_cast<int2*>(quad + C::kQuadPlace) = make_int2(place.row, place.column);
          CopyQuad<C>(p, place, SharedAddress(quad), kb, threadIdx.x, kThreads);
        }
        const uint32_t to = SharedAddress(stages + at.stage * C::kStageBytes);
        CopyRows<C::kTileM>(to, a, p.a_pitch, rows_a, kb);
        CopyRows<C::kTileN>(to + C::kStageBytesA, b, p.b_pitch, rows_b, kb);
        CopyAsyncCommit();
        at.Advance();
        if (++waiting > kBehind) {
          CopyAsyncWait<kBehind>();
          Publish();
        }
        if constexpr (C::kScaled) {
          ++quad_at.serial;
          if (kb % 4 == 3 || kb == kb_end - 1) quad_at.Advance();
        }
      }
    }
    PublishAll();
  }
};

/// By the producer's warpgroup. Requires: rows of A and B on kUnit bytes.
template <class C, int kUnit>
__device__ __forceinline__ void CopyOperands(const BlockParams& p, BlockShared<C>& shared,
                                             uint8_t* stages, uint8_t* quads, int rank,
                                             int kb_begin, int kb_end) {
  OperandCopier<C, kUnit>{p, shared, stages, quads}.Run(rank, kb_begin, kb_end);
}

}  // namespace culet::sm90
