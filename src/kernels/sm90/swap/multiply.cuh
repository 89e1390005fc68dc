// The main loop of a small-M kernel's consumers: k-blocks to sums.
#pragma once

#include <cstdint>

#include "kernels/sm90/swap/config.cuh"
#include "sm90/descriptor.h"
#include "sm90/sync.cuh"
#include "sm90/wgmma.cuh"

namespace culet::sm90 {

/// WgmmaWait with a count that is constant once loops are unrolled.
__device__ __forceinline__ void WaitForAllBut(int pending) {
  switch (pending) {
    case 0:
      WgmmaWait<0>();
      break;
    case 1:
      WgmmaWait<1>();
      break;
    case 2:
      WgmmaWait<2>();
      break;
    default:
      WgmmaWait<3>();
      break;
  }
}

struct StageCursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Consumer: adds kBlocks k-blocks to `sum`, with their scales if any. Unrolled, with nothing in
/// flight at the end: ptxas serialises products that cross a loop's back edge and are read in the
/// loop. At most kDepth products run or await promotion. The first k-block is number `in_stage` of
/// its stage; with kTurns every k-block is, each in its own stage.
template <class C, int kBlocks>
__device__ __forceinline__ void SwapBlocks(float (&sum)[C::kRegs], const SwapShared<C>& shared,
                                           StageCursor& at, const float* scales, int stages,
                                           int warpgroup, int in_stage, int lane) {
  const int row_group = C::kTurns > 1 ? 0 : warpgroup % C::kRowGroups,
            token_group = C::kTurns > 1 ? 0 : warpgroup / C::kRowGroups;
  scales += token_group * C::kLoopTokens;
  constexpr int kProducts = kBlocks * C::kParts;
  constexpr int kPartGroups = C::kProductTokens / 8;
  constexpr int kAhead = C::kDepth > 1 ? C::kDepth - 1 : 1;
  using Product = Wgmma<typename C::Format, C::kProductTokens>;
  float product[C::kDepth][C::kProductTokens / 2];
  float2 token_scale[C::kReadFirst ? kBlocks * C::kLoopGroups : C::kReadAhead ? kPartGroups : 2];
  int stage[kBlocks];
  uint64_t weights = 0, activations = 0;
  static_assert(kBlocks == 1 || kBlocks % C::kStageBlocks == 0);
  constexpr bool kInTurn = C::kTurns > 1;
  const auto place = [&](int block) {
    return kBlocks == 1 || kInTurn ? in_stage : block % C::kStageBlocks;
  };
  const auto issue = [&](int i) {
    if (i % C::kParts == 0) {
      const int block = place(i / C::kParts);
      stage[i / C::kParts] = at.stage;
      if (kInTurn || block == 0) BarrierWait(&shared.full[at.stage], at.parity);
      weights = WgmmaDescriptor128(SharedAddress(shared.weights(at.stage)) +
                                   (block * C::kRows + row_group * 64) * 128);
      activations = WgmmaDescriptor128(SharedAddress(shared.activations(at.stage)) +
                                       (block * C::kTokens + token_group * C::kLoopTokens) * 128);
      if (kInTurn || block == C::kStageBlocks - 1) at.Advance(stages);
    }
    const uint64_t part =
        activations + WgmmaDescriptorStep(i % C::kParts * C::kProductTokens * 128);
    WgmmaFence();
    Product::template Ss<false>(product[i % C::kDepth], weights, part);
#pragma unroll
    for (int slice = 1; slice < 4; ++slice) {
      const uint64_t step = WgmmaDescriptorStep(slice * kWgmmaKBytes);
      Product::template Ss<true>(product[i % C::kDepth], weights + step, part + step);
    }
    WgmmaCommit();
  };
  // Read one product ahead: under full-rate products shared memory answers late.
  const auto scales_of = [&](int i) {
    return scales + i / C::kParts * C::kTurns * C::kScaleStride +
           i % C::kParts * C::kProductTokens + 4 * (lane & 3);
  };
  const auto read_two = [&](const float* from, float2* to) {
    const float4 two = *reinterpret_cast<const float4*>(from);
    to[0] = make_float2(two.x, two.y), to[1] = make_float2(two.z, two.w);
  };
  const auto read_ahead = [&](int i) {
    if constexpr (kPartGroups == 1) {
      token_scale[0] = *reinterpret_cast<const float2*>(scales_of(i));
    } else {
#pragma unroll
      for (int j = 0; j < kPartGroups; j += 2) read_two(scales_of(i) + 8 * j, &token_scale[j]);
    }
  };
  if constexpr (C::kReadFirst) {
#pragma unroll
    for (int i = 0; i < kProducts; ++i) {
      if constexpr (kPartGroups == 1) {
        token_scale[i] = *reinterpret_cast<const float2*>(scales_of(i));
      } else {
#pragma unroll
        for (int j = 0; j < kPartGroups; j += 2)
          read_two(scales_of(i) + 8 * j, &token_scale[i * kPartGroups + j]);
      }
    }
    // Here, not where the compiler would like them.
#pragma unroll
    for (float2& x : token_scale) FenceRegister(x);
  }
#pragma unroll
  for (int i = 0; i < kAhead && i < kProducts; ++i) issue(i);
  if constexpr (C::kReadAhead) read_ahead(0);
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    if (C::kDepth > 1 && i + C::kDepth - 1 < kProducts) issue(i + C::kDepth - 1);
    WaitForAllBut((C::kDepth < kProducts - i ? C::kDepth : kProducts - i) - 1);
    float(&done)[C::kProductTokens / 2] = product[i % C::kDepth];
    FenceRegisters(done);
    if (i % C::kParts == C::kParts - 1 &&
        (kInTurn || place(i / C::kParts) == C::kStageBlocks - 1) && lane == 0)
      BarrierArrive(&shared.empty[stage[i / C::kParts]]);
#pragma unroll
    for (int j = 0; j < kPartGroups; ++j) {
      float* const to = sum + 4 * (i % C::kParts * kPartGroups + j);
      if constexpr (!C::kScaled) {
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e] += done[4 * j + e];
        continue;
      }
      if (C::kScaled && !C::kReadFirst && !C::kReadAhead && j % 2 == 0)
        read_two(scales_of(i) + 8 * j, token_scale);
      const float2 x = token_scale[C::kReadFirst ? i * kPartGroups + j : C::kReadAhead ? j : j % 2];
      to[0] += x.x * done[4 * j];
      to[1] += x.y * done[4 * j + 1];
      to[2] += x.x * done[4 * j + 2];
      to[3] += x.y * done[4 * j + 3];
    }
    if (i + 1 < kProducts) {
      if (C::kDepth == 1) issue(i + 1);
      if constexpr (C::kReadAhead) read_ahead(i + 1);
    }
  }
}

/// Consumer: the tensor core sums all of the CTA's loads. A stage is released once the products of
/// the next kDepth - 1 stages have been issued. The last load is zero past K.
template <class C>
__device__ __forceinline__ void SwapDirect(float (&sum)[C::kRegs], const SwapShared<C>& shared,
                                           int stages, int loads, int warpgroup, int lane) {
  const int row_group = warpgroup % C::kRowGroups, token_group = warpgroup / C::kRowGroups;
  using Product = Wgmma<typename C::Format, C::kProductTokens>;
  StageCursor at, left;  // where products are issued, and the oldest stage that they still read
#pragma unroll 1
  for (int i = 0; i < loads; ++i) {
    BarrierWait(&shared.full[at.stage], at.parity);
    const uint64_t weights =
        WgmmaDescriptor128(SharedAddress(shared.weights(at.stage)) + row_group * 64 * kBlockBytes);
    const uint64_t activations = WgmmaDescriptor128(SharedAddress(shared.activations(at.stage)) +
                                                    token_group * C::kLoopTokens * kBlockBytes);
    WgmmaFence();
#pragma unroll
    for (int block = 0; block < C::kStageBlocks; ++block) {
#pragma unroll
      for (int slice = 0; slice < kBlockBytes / int(kWgmmaKBytes); ++slice) {
        const uint32_t step = slice * kWgmmaKBytes;
        Product::template Ss<true>(
            sum, weights + WgmmaDescriptorStep(block * C::kRows * kBlockBytes + step),
            activations + WgmmaDescriptorStep(block * C::kTokens * kBlockBytes + step));
      }
    }
    WgmmaCommit();
    at.Advance(stages);
    WgmmaWait<C::kDepth - 1>();
    if (i >= C::kDepth - 1) {
      if (lane == 0) BarrierArrive(&shared.empty[left.stage]);
      left.Advance(stages);
    }
  }
  WgmmaWait<0>();
  FenceRegisters(sum);
}

}  // namespace culet::sm90
