// The main loop of a large-M kernel's consumer warpgroup: a tile's k-blocks to sums.
//
// BlockScaled and Promoted: each k-block's product goes to a small FP32 accumulator and is then
// promoted, sum += scale_a * scale_b * product, while the tensor core runs another warpgroup's
// product. To keep the tensor core busy, a warpgroup's gap between two products must be shorter
// than the other's product (about 200 of 256 clocks for 64 x 128 x 128). So everything else that a
// k-block needs (scales, the next stage's barrier, descriptors, the tile's place) is prepared under
// the products. Direct: products accumulate in the sums, two k-blocks are in flight, and a stage is
// released once the next k-block has been started.
#pragma once

#include <cstdint>

#include "kernels/sm90/block/config.cuh"
#include "kernels/sm90/block/tiles.cuh"
#include "sm90/descriptor.h"
#include "sm90/pipeline.cuh"
#include "sm90/sync.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// scale_a * scale_b of one k-block as one thread needs them: two rows of each block of a
/// warpgroup's part of the tile (m64 blocks, or halves of its columns), groups of columns.
template <class C, int kGroups>
struct StepScales {
  float x[C::kBlocks][kGroups][2];
};

/// Layout of A's scales in a quad (row-major or k-block-major): bytes between rows and between
/// k-blocks, constant where unrolled code gains by it. Also whether B has one scale for gate's half
/// and one for up's.
template <class C, bool kRowsInner, bool kOfHalves>
struct KnownLayout {
  static constexpr bool kHalves = kOfHalves;
  static constexpr uint32_t row = kRowsInner ? 4 : 16;
  static constexpr uint32_t block = kRowsInner ? C::kTileM * 4 : 4;
};
/// That layout, chosen at run time.
template <bool kOfHalves>
struct GivenLayout {
  static constexpr bool kHalves = kOfHalves;
  uint32_t row, block;
};
/// No scales in the ring.
struct NoLayout {
  static constexpr bool kHalves = false;
  static constexpr uint32_t row = 0, block = 0;
};

/// A consumer thread's state, held entirely in registers.
template <class C, class Layout>
struct Consumer {
  static constexpr uint32_t kStageStep = C::kStageBytes / 16;
  // Only a descriptor's low word depends on the address; 64-bit additions would cost a carry each.
  static constexpr uint64_t kHigh = kWgmmaDescriptor128 & 0xFFFFFFFF00000000ull;
  // Steps from one block to the next, along M and along N.
  static constexpr uint32_t kBlockStep = 64 * kBlockBytes / 16;
  static constexpr uint32_t kHalfStep = C::kProductColumns * kBlockBytes / 16;
  static constexpr uint32_t kWgmmaStep = kWgmmaKBytes / 16;
  static constexpr bool kHalves = Layout::kHalves, kCross = kHalves && C::kPairsCross;
  using Scales = StepScales<C, kHalves ? C::kPairGroups : C::kScaleGroups>;
  using Product = Wgmma<typename C::Format, C::kProductColumns>;
  const BlockParams& p;
  BlockShared<C>& shared;
  Layout layout;
  uint32_t low_a, low_b;  // low words of the descriptors of this warpgroup's A and B
  uint32_t quads;         // shared address of the first quad
  uint32_t row_a;         // this thread's first row in a quad, bytes
  int column_offset;      // of this warpgroup in the tile
  int lane;
  int quad = 0;                     // slot of the current one
  [[maybe_unused]] int next_block;  // the first group that lies in a half's next block (kCross)
  Tile place;
  bool ready = false;  // the next stage's data have arrived
  RingCursor<C::kStages> at;
  float sum[C::kBlocksM][C::kColumns / 2];
  float products[C::kTwoInFlight ? 2 : 1][C::kProductColumns / 2];  // unless they go to the sums

  /// Starts the product of block `i` of a k-block in accumulator `slot`: four wgmma, one group.
  /// The k-block is the next one, or `ahead` stages behind it in the ring.
  __device__ __forceinline__ void Issue(int i, int slot = 0, int ahead = 0) {
    float(&product)[C::kProductColumns / 2] = products[slot];
    const uint32_t skip = ahead * kStageStep;
    const uint32_t a = low_a + skip + (C::kBlocksM > 1 ? i * kBlockStep : 0);
    const uint32_t b = low_b + skip + (C::kBlocksN > 1 ? i * kHalfStep : 0);
    FenceRegisters(product);
    WgmmaFence();
    Product::template Ss<false>(product, kHigh | a, kHigh | b);
    Product::template Ss<true>(product, kHigh | (a + kWgmmaStep), kHigh | (b + kWgmmaStep));
    Product::template Ss<true>(product, kHigh | (a + 2 * kWgmmaStep), kHigh | (b + 2 * kWgmmaStep));
    Product::template Ss<true>(product, kHigh | (a + 3 * kWgmmaStep), kHigh | (b + 3 * kWgmmaStep));
    WgmmaCommit();
  }

  /// Moves to the next stage.
  __device__ __forceinline__ void Advance() {
    at.Advance();
    const uint32_t step = at.stage == 0 ? kStageStep - C::kStages * kStageStep : kStageStep;
    low_a += step;
    low_b += step;
  }

  /// Moves past `count` stages, which other warpgroups read.
  __device__ __forceinline__ void Skip(int count) {
    const int stage = at.stage;
    at.Skip(count);
    low_a += (at.stage - stage) * kStageStep;
    low_b += (at.stage - stage) * kStageStep;
    ready = false;
  }

  /// Finds where the walk's tile lies, or tile `step` of its run: in its first quad where there are
  /// quads.
  __device__ __forceinline__ void StartTile(const TileWalk<C>& walk, int rank, int step) {
    if constexpr (C::kGrouped) {
      if (!ready) shared.ring.WaitFull(at);
      ready = true;
      place = GroupTilesOf<C>(shared).of_stage[at.stage];
    } else if constexpr (C::kScaled) {
      if (!ready) shared.ring.WaitFull(at);
      ready = true;
      const int2 v = LoadSharedInt2(quads + quad * C::kQuadBytes + C::kQuadPlace);
      place = {v.x, v.y, p.m - v.x, 0};
    } else {
      place = walk.Place(rank, step);
    }
    if constexpr (kCross) {
      static_assert(C::kScaleColumns == 32, "a group is sixteen columns of gate and of up");
      next_block = (128 - place.column / 2 % 128 + 15) / 16;
    }
  }

  /// Loads the scales of k-block `kb` into registers.
  __device__ __forceinline__ void ReadScales(int kb, Scales& s) {
    const uint32_t base = quads + quad * C::kQuadBytes;
    const uint32_t from = base + row_a + (kb & 3) * layout.block;
    float a[C::kBlocksM][2];
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m) {
      a[m][0] = LoadShared(from + m * 64 * layout.row);
      a[m][1] = LoadShared(from + (m * 64 + 8) * layout.row);
    }
    if constexpr (kHalves) {
      ReadPairs(base + C::kQuadB + (kb & 3) * 4, a[0], s);
      return;
    }
    // If the tile's width is a multiple of 128, each warpgroup has one block of 128 columns.
    constexpr int kBlocks = C::kScaleGroups == 1 ? 1 : C::kProductScaleBlocks;
    const int column = place.column % 128 + column_offset;
    const uint32_t from_b =
        base + C::kQuadB + (kb & 3) * 4 + (kBlocks == 1 ? column / 128 * 16 : 0);
    if constexpr (C::kBlocksN > 1 && !C::kGroupsAcross) {
      // From a multiple of 128 on, each half with its block.
#pragma unroll
      for (int i = 0; i < C::kBlocksN; ++i) {
        const float b = LoadShared(from_b + i * 16) * (C::kAlphaLast ? 1.0f : p.epilogue.alpha);
        s.x[i][0][0] = a[0][0] * b;
        s.x[i][0][1] = a[0][1] * b;
      }
    } else {
      ReadGroups<kBlocks>(from_b, column, a, s);
    }
  }

  /// The same where gate and up lie in halves: a scale of each, of its half's first block or, in
  /// groups behind its end, of the next one.
  __device__ __forceinline__ void ReadPairs(uint32_t from, const float (&a)[2], Scales& s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t first = from + half * C::kHalfScaleBlocks * 16;
      const float b = LoadShared(first);
      [[maybe_unused]] float next;
      if constexpr (kCross) next = LoadShared(first + 16);
#pragma unroll
      for (int i = 0; i < C::kBlocksN; ++i)
#pragma unroll
        for (int group = half; group < C::kPairGroups; group += 2)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float of_group = b;
            if constexpr (kCross)
              if (group >= 2 && group / 2 >= next_block) of_group = next;
            s.x[i][group][h] = a[h] * of_group;
          }
    }
  }

  /// The same for products whose groups of columns may have scales of several blocks: kCount, of
  /// which the first lies at `from`.
  template <int kCount>
  __device__ __forceinline__ void ReadGroups(uint32_t from, int column,
                                             const float (&a)[C::kBlocksM][2], Scales& s) {
    float x[kCount][C::kBlocksM][2];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float b = LoadShared(from + i * 16) * (C::kAlphaLast ? 1.0f : p.epilogue.alpha);
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m) {
        x[i][m][0] = a[m][0] * b;
        x[i][m][1] = a[m][1] * b;
      }
    }
#pragma unroll
    for (int g = 0; g < C::kScaleGroups; ++g)
#pragma unroll
      for (int i = 0; i < kCount; ++i)
#pragma unroll
        for (int m = 0; m < C::kBlocksM; ++m)
          if (i == 0 || column + g * C::kScaleColumns >= i * 128) {
            s.x[m][g][0] = x[i][m][0];
            s.x[m][g][1] = x[i][m][1];
          }
  }

  /// sum += scales * product, for the product of block `block` in accumulator `slot`. kFirst: the
  /// tile's first k-block, which overwrites the sums.
  template <bool kFirst = false>
  __device__ __forceinline__ void Promote(int block, const Scales& s, int slot = 0) {
    float(&product)[C::kProductColumns / 2] = products[slot];
    const int m = C::kBlocksM > 1 ? block : 0, first = (block - m) * C::kProductColumns;
    FenceRegisters(product);
    if constexpr (C::kScaled) {
#pragma unroll
      for (int n8 = 0; n8 < C::kProductColumns / 8; ++n8) {
        const int column = n8 * 8;
        const int group = kHalves ? (kCross ? column / C::kScaleColumns * 2 : 0) + IsUpGroup<C>(n8)
                                  : (C::kGroupsAcross ? first + column : column) / C::kScaleColumns;
        const float x0 = s.x[C::kGroupsAcross ? 0 : block][group][0];
        const float x1 = s.x[C::kGroupsAcross ? 0 : block][group][1];
        float* d = &sum[m][(first + column) / 2];
        const float* v = &product[n8 * 4];
        d[0] = kFirst ? x0 * v[0] : fmaf(x0, v[0], d[0]);
        d[1] = kFirst ? x0 * v[1] : fmaf(x0, v[1], d[1]);
        d[2] = kFirst ? x1 * v[2] : fmaf(x1, v[2], d[2]);
        d[3] = kFirst ? x1 * v[3] : fmaf(x1, v[3], d[3]);
      }
    } else if constexpr (C::kTwoInFlight) {
      // Multiplies by a one that ptxas cannot see: it gives an FFMA's result its own register,
      // while an addition beside two products in flight makes it spill the sums.
#pragma unroll
      for (int i = 0; i < C::kProductColumns / 2; ++i)
        sum[m][first / 2 + i] = fmaf(p.epilogue.one, product[i], sum[m][first / 2 + i]);
    } else {
#pragma unroll
      for (int i = 0; i < C::kProductColumns / 2; ++i) sum[m][first / 2 + i] += product[i];
    }
  }

  /// One k-block; kFirst: the tile's first, which overwrites the sums. Calls started() under the
  /// tile's last product, if the kernel has work for it.
  template <bool kFirst = false, class Started>
  __device__ __forceinline__ void Step(int kb, int kb_end, Started started) {
    if (!ready) shared.ring.WaitFull(at);
    const int stage = at.stage;
    Scales s;
#pragma unroll
    for (int i = 0; i < C::kBlocks; ++i) {
      Issue(i);
      // As in StepQuads.
      if constexpr (C::kGated) __syncwarp();
      if constexpr (C::kScaled)
        if (i == 0) ReadScales(kb, s);
      if (i == C::kBlocks - 1) {
        Advance();
        if (C::kScaled && (kb % 4 == 3 || kb == kb_end - 1)) AdvanceQuad();
        ready = shared.ring.TestFull(at);
        if constexpr (C::kWaitsUnder)
          if (kb == kb_end - 1) started();
      }
      WgmmaWait<0>();
      if (i == C::kBlocks - 1) shared.ring.template Release<C::kMulticast>(stage, lane);
      this->template Promote<kFirst>(i, s);
    }
  }

  /// Moves to the next quad.
  __device__ __forceinline__ void AdvanceQuad() { quad = quad + 1 == C::kQuads ? 0 : quad + 1; }

  /// kCount k-blocks (whole quads), two products in flight. Unrolled, and drained at the end:
  /// accumulators in flight across a loop's back edge make ptxas serialise every wgmma. If kCount
  /// is a multiple of the ring's stages, stage indices are constants; then requires at.stage == 0.
  template <int kCount>
  __device__ __forceinline__ void StepQuads() {
    constexpr bool kAround = kCount % C::kStages == 0;
    Scales s[2];
    int stages[2];
#pragma unroll
    for (int j = 0; j <= kCount; ++j) {
      if (j < kCount) {
        if constexpr (kAround) at.stage = j % C::kStages;
        if (!ready) shared.ring.WaitFull(at);
        stages[j % 2] = at.stage;
        Issue(0, j % 2, kAround ? j % C::kStages : 0);
        // A NOP that keeps ptxas from moving the loads of scales and their uses across it, where
        // they would delay the products. A 64-column product is too short to hide them.
        if constexpr (C::kScaled && C::kColumns > 64) __syncwarp();
        if constexpr (C::kScaled) ReadScales(j % 4, s[j % 2]);
        if (C::kScaled && j % 4 == 3) AdvanceQuad();
        if constexpr (kAround)
          at.Advance();
        else
          Advance();
        ready = shared.ring.TestFull(at);
      }
      if (j > 0) {
        if (j < kCount)
          WgmmaWait<1>();
        else
          WgmmaWait<0>();
        shared.ring.template Release<C::kMulticast>(stages[(j - 1) % 2], lane);
        Promote(0, s[(j - 1) % 2], (j - 1) % 2);
      }
    }
  }

  /// Runs the longest unrolled body, up to kCount k-blocks, that fits in [kb, kb_end) and moves
  /// `kb` past it. Returns false if none fits.
  template <int kCount>
  __device__ __forceinline__ bool StepStraight(int& kb, int kb_end) {
    if (kb % 4 == 0 && kb + kCount <= kb_end && (kCount % C::kStages != 0 || at.stage == 0)) {
      this->template StepQuads<kCount>();
      kb += kCount;
      return true;
    }
    if constexpr (kCount > 4)
      return StepStraight<kCount / 2>(kb, kb_end);
    else
      return false;
  }

  /// Starts a k-block, all m64 blocks in one group; the tile's first overwrites the sums.
  template <bool kFirst>
  __device__ __forceinline__ void IssueDirect() {
    if (!ready) shared.ring.WaitFull(at);
    WgmmaFence();
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int m = 0; m < C::kBlocksM; ++m) {
        const uint64_t a = kHigh | (low_a + m * kBlockStep + j * kWgmmaStep);
        const uint64_t b = kHigh | (low_b + j * kWgmmaStep);
        if (kFirst && j == 0)
          Product::template Ss<false>(sum[m], a, b);
        else
          Product::template Ss<true>(sum[m], a, b);
      }
    WgmmaCommit();
  }

  /// Accumulates all k-blocks of a tile in the sums. Calls started() once the last is issued.
  template <class Started>
  __device__ __forceinline__ void SumDirect(int kb_begin, int kb_end, Started started) {
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m) FenceRegisters(sum[m]);
    IssueDirect<true>();
    int before = at.stage;
    Advance();
    ready = shared.ring.TestFull(at);
#pragma unroll 1
    for (int kb = kb_begin + 1; kb < kb_end; ++kb) {
      IssueDirect<false>();
      const int stage = at.stage;
      Advance();
      ready = shared.ring.TestFull(at);
      WgmmaWait<1>();
      shared.ring.template Release<C::kMulticast>(before, lane);
      before = stage;
    }
    started();
    WgmmaWait<0>();
    shared.ring.template Release<C::kMulticast>(before, lane);
#pragma unroll
    for (int m = 0; m < C::kBlocksM; ++m) FenceRegisters(sum[m]);
  }

  /// Releases a tile's stages without multiplying, if all rows of this warpgroup lie past the
  /// matrix: that leaves the tensor core to the others.
  __device__ __forceinline__ void Pass(int kb_begin, int kb_end) {
#pragma unroll 1
    for (int kb = kb_begin; kb < kb_end; ++kb) {
      if (!ready) shared.ring.WaitFull(at);
      const int stage = at.stage;
      Advance();
      if (C::kScaled && (kb % 4 == 3 || kb == kb_end - 1)) AdvanceQuad();
      ready = shared.ring.TestFull(at);
      shared.ring.template Release<C::kMulticast>(stage, lane);
    }
  }

  /// Sums a tile over k-blocks [kb_begin, kb_end). Requires at least one. Calls started() under the
  /// last product; kernels that promote may do work there.
  template <class Started>
  __device__ __forceinline__ void Sum(int kb_begin, int kb_end, Started started) {
    if constexpr (!C::kPromotes) {
      SumDirect(kb_begin, kb_end, started);
    } else {
      int kb = kb_begin;
      if constexpr (C::kFirstOverwrites) {
        this->template Step<true>(kb++, kb_end, started);
      } else {
#pragma unroll
        for (int m = 0; m < C::kBlocksM; ++m)
#pragma unroll
          for (int i = 0; i < C::kColumns / 2; ++i) sum[m][i] = 0.0f;
      }
#pragma unroll 1
      while (kb < kb_end) {
        if constexpr (C::kTwoInFlight)
          if (StepStraight<C::kStraightBlocks>(kb, kb_end)) continue;
        Step(kb++, kb_end, started);
      }
    }
  }
};

}  // namespace culet::sm90
