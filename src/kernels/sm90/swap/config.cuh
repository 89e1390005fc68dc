// What a kernel for few tokens is made of: its configuration, and a CTA's shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sm90/swap/swap.h"
#include "sm90/scheduler.h"

namespace culet::sm90 {

/// A policy, the schedule of an instance of a list (a structural template argument would say more,
/// but nvcc 13.0 writes invalid host code for kernels with one), and what follows from them.
/// kRowGroups x kTokenGroups consumer warpgroups,
/// each with 64 rows and its share of the tokens, twice where two take turns.
template <class Policy_, class List, int kIndex, EpilogueKind kEpilogue_, OutputType kOutput_>
struct SwapConfig {
  using Policy = Policy_;
  using Format = typename Policy::Format;
  static constexpr SwapSchedule S = List::kAll[kIndex].schedule;
  static constexpr EpilogueKind kEpilogue = kEpilogue_;
  static constexpr Sums kSums = Policy::kInfo.sums;
  static constexpr bool kScaled = kSums == Sums::kBlockScaled;
  static constexpr bool kDirect = kSums == Sums::kDirect;
  static constexpr bool kGated = IsGated(kEpilogue);
  static constexpr bool kQuantises = kEpilogue == EpilogueKind::kGatedQuant;
  static constexpr bool kGeneral = kEpilogue == EpilogueKind::kGeneral || kGated;
  static constexpr OutputType kOutput = kOutput_;  ///< of a plain epilogue: BF16 or F32

  static constexpr int kTokens = S.tokens;
  static constexpr int kRowGroups = S.row_groups;
  static constexpr int kTokenGroups = S.token_groups;
  static constexpr int kDepth = S.depth;
  static constexpr int kMinCtas = S.min_ctas;
  static constexpr int kStageBlocks = S.stage_blocks;
  static constexpr int kTurns = S.turns;
  static constexpr int kWarpgroups = S.warpgroups();
  static constexpr int kLoopTokens = kTokens / kTokenGroups;  ///< of a warpgroup in the loop
  static constexpr int kOwnTokens = kLoopTokens / kTurns;     ///< and once turns are summed
  static constexpr int kProductTokens = S.product_tokens == 0 ? kLoopTokens : S.product_tokens;
  static constexpr int kParts = kLoopTokens / kProductTokens;  ///< its products a k-block
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kRows = S.rows();
  static constexpr int kRegs = kLoopTokens / 2;        ///< sums a thread in the loop
  static constexpr int kLoopGroups = kLoopTokens / 8;  ///< of 8 tokens: 4 sums a thread
  static constexpr int kGroups = kOwnTokens / 8;
  /// k-blocks of straight-line code: more outgrow registers and the instruction cache.
  static constexpr int kUnroll = kLoopTokens < 256 ? 4 / kTurns : 1;
  /// Registers of a thread where kMinCtas CTAs with two producer warps share a multiprocessor, and
  /// of a consumer when it takes some of a whole warpgroup of producers.
  static constexpr int kEvenRegisters = 512 / ((kMinCtas * (kConsumers / 32 + 2) + 3) / 4);
  static constexpr int kProducerRegisters = 56;
  static constexpr int kLaunchRegisters =
      std::min(248, 65536 / kMinCtas / (kConsumers + 128) / 8 * 8);
  static constexpr int kConsumerRegisters = std::min(
      240, (kLaunchRegisters * (kConsumers + 128) - 128 * kProducerRegisters) / kConsumers / 8 * 8);
  /// What a consumer needs for sums, products and, by an estimate, everything but scales.
  static constexpr int kNeeded = kRegs + (kDirect ? 0 : kDepth * kProductTokens / 2) + 32;
  static constexpr int kMostRegisters =
      kMinCtas <= 2 ? std::max(kEvenRegisters, kConsumerRegisters) : kEvenRegisters;
  /// Scales are read before their products start, where registers allow: products of 64 columns
  /// take all that shared memory gives, and a read beside them waits. Wider ones leave room.
  static constexpr bool kReadFirst =
      kScaled && kProductTokens <= 64 && kNeeded + kUnroll * kLoopTokens / 4 <= kMostRegisters;
  static constexpr bool kReadAhead = kScaled && !kReadFirst && kNeeded + kProductTokens / 4 <= 208;
  static constexpr int kScaleRegisters = !kScaled     ? 0
                                         : kReadFirst ? kUnroll * kLoopTokens / 4
                                         : kReadAhead ? kProductTokens / 4
                                                      : 4;
  static constexpr bool kReallocate = kMinCtas <= 2 && kNeeded + kScaleRegisters > kEvenRegisters;
  static constexpr int kProducers = kReallocate ? 128 : 64;
  /// Each with its part of the tokens.
  static constexpr int kScaleWarps = kScaled && kReallocate && kTokens >= 128 ? 2 : 1;
  static_assert(32 * (1 + kScaleWarps) <= kProducers);
  static constexpr int kThreads = kConsumers + kProducers;
  /// Products in flight hold their stages: so many that the last of them can arrive.
  static constexpr int kHeldBlocks = (std::min(kDepth, kUnroll* kParts) + kParts - 1) / kParts;
  static constexpr int kMinStages =
      kDirect ? std::max(2, kDepth)
              : std::max(2, (kHeldBlocks + 2 * kStageBlocks - 2) / kStageBlocks);
  static constexpr SwapLayout kLayout = SwapLayout::Make(S, kSums, kEpilogue);
  static constexpr int kStageBytes = kLayout.stage_bytes;
  static constexpr int kWeightsBytes = kLayout.weights_bytes;
  static constexpr int kScaleStride = kLayout.scale_stride;
  /// With many tokens the next kernel starts once all loads are issued: its weights would queue
  /// ahead of this one's activations. With few it starts as early as it may.
  static constexpr bool kLateTrigger = kTokens >= 64;
  static_assert(!kScaled || kRows <= 128, "a CTA's rows share one weight scale");
  static_assert(kDepth >= 1 && kDepth <= 4);
  static_assert(!kScaled || kTokenGroups == 1 || kOwnTokens % 16 == 0,
                "scales of two groups lie together");
  static_assert(kGroups <= 32, "a mask of 32 bits says which groups a CTA sums");
  /// CTAs of a cluster, beside those that split K, whose columns of D share a scale.
  static constexpr int kSharers = kQuantises ? SwapSharers(S.rows()) : 1;
  static_assert(!kQuantises || kRowGroups == 1, "a token's largest is of the CTA's four warps");
  static_assert(kTurns == 1 || (kTurns == 2 && kStageBlocks == 2 && kWarpgroups == 2),
                "a stage holds a k-block for each turn");
  static_assert(!kDirect || (kTurns == 1 && kParts == 1), "one product a k-block, in the sums");
};

/// Where the scale of token 8 * group + t lies: lane l of a consumer needs tokens 2(l%4) and +1 of
/// every group, and finds those of two groups side by side, for one 16-byte read.
__device__ __forceinline__ int SwapScaleIndex(int group, int t) {
  return (group / 2) * 16 + (t / 2) * 4 + (group & 1) * 2 + (t & 1);
}

/// The tile of a CTA that is number `sharer` of those that share scales: from a token, a row of D,
/// and a row of the weights, a column of D.
template <class C>
__device__ __forceinline__ Tile SwapTile(const SwapParams& p, int sharer) {
  const int token = blockIdx.y * C::kTokens;
  const int row = (blockIdx.z * C::kSharers + sharer) * C::kRows;
  return {.row = token, .column = row, .rows = p.m - token, .group = 0};
}

/// A CTA's shared memory, as SwapLayout says.
template <class C>
struct SwapShared {
  using L = SwapLayout;
  uint8_t* stages;
  float* scales;
  float* factors;
  uint64_t* full;
  uint64_t* empty;
  uint64_t* scales_full;
  uint64_t* scales_empty;
  uint64_t* exchange_full;
  uint64_t* largest_full;
  uint8_t* exchange;
  float* largest;

  __device__ __forceinline__ SwapShared(uint8_t* base, int count) : stages(base) {
    constexpr L kLayout = C::kLayout;
    uint8_t* const tail = base + kLayout.RingBytes(count);
    scales = reinterpret_cast<float*>(tail);
    factors = reinterpret_cast<float*>(tail + kLayout.factors);
    full = reinterpret_cast<uint64_t*>(tail + kLayout.barriers);
    empty = full + kSwapMaxStages;
    scales_full = empty + kSwapMaxStages;
    scales_empty = scales_full + L::kScaleBuffers;
    exchange_full = scales_empty + L::kScaleBuffers;
    largest_full = exchange_full + 1;
    exchange = tail + kLayout.exchange;
    largest = reinterpret_cast<float*>(tail + kLayout.largest);
  }
  __device__ __forceinline__ uint8_t* weights(int s) const { return stages + s * C::kStageBytes; }
  __device__ __forceinline__ uint8_t* activations(int s) const {
    return weights(s) + C::kWeightsBytes;
  }
  /// Scales of block `block` of a chunk.
  __device__ __forceinline__ float* scale(int buffer, int block) const {
    return scales + (buffer * L::kScaleBlocks + block) * C::kScaleStride;
  }
  /// What the general epilogue multiplies and adds, of each token and row of the CTA.
  __device__ __forceinline__ float* token_factors() const { return factors; }
  __device__ __forceinline__ float* row_factors() const { return factors + C::kTokens; }
  __device__ __forceinline__ float* token_bias() const { return row_factors() + C::kRows; }
  __device__ __forceinline__ float* row_bias() const { return token_bias() + C::kTokens; }
};

}  // namespace culet::sm90
