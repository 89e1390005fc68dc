// What a kernel for few tokens is made of: its configuration, and a CTA's shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/sm90/fp8_swap.h"

namespace culet::sm90 {

/// kRowGroups x kTokenGroups consumer warpgroups, each with 64 rows and its share of the kTokens.
/// One wgmma covers kProductTokens; kDepth of them run in the tensor core at a time. With kTurns =
/// 2 two warpgroups take the k-blocks of the same 64 rows and tokens in turn: one promotes while
/// the other's product runs, and products stay wide, which read shared memory least.
template <int kTokens_, int kRowGroups_, int kTokenGroups_, int kProductTokens_, int kDepth_,
          int kMinCtas_, int kStageBlocks_ = 1, int kTurns_ = 1>
struct Fp8SwapConfig {
  static constexpr int kTokens = kTokens_;
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kTokenGroups = kTokenGroups_;
  static constexpr int kProductTokens = kProductTokens_;
  static constexpr int kDepth = kDepth_;
  static constexpr int kMinCtas = kMinCtas_;
  static constexpr int kStageBlocks = kStageBlocks_;  ///< k-blocks of a stage
  static constexpr int kTurns = kTurns_;
  static constexpr int kWarpgroups = kRowGroups * kTokenGroups * kTurns;
  static constexpr int kLoopTokens = kTokens / kTokenGroups;   ///< of a warpgroup in the loop
  static constexpr int kOwnTokens = kLoopTokens / kTurns;      ///< and once turns are summed
  static constexpr int kParts = kLoopTokens / kProductTokens;  ///< its products a k-block
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kRows = 64 * kRowGroups;
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
  static constexpr int kNeeded = kRegs + kDepth * kProductTokens / 2 + 32;
  static constexpr int kMostRegisters =
      kMinCtas <= 2 ? std::max(kEvenRegisters, kConsumerRegisters) : kEvenRegisters;
  /// Scales are read before their products start, where registers allow: products of 64 columns
  /// take all that shared memory gives, and a read beside them waits. Wider ones leave room.
  static constexpr bool kReadFirst =
      kProductTokens <= 64 && kNeeded + kUnroll * kLoopTokens / 4 <= kMostRegisters;
  static constexpr bool kReadAhead = !kReadFirst && kNeeded + kProductTokens / 4 <= 208;
  static constexpr int kScaleRegisters = kReadFirst   ? kUnroll * kLoopTokens / 4
                                         : kReadAhead ? kProductTokens / 4
                                                      : 4;
  static constexpr bool kReallocate = kMinCtas <= 2 && kNeeded + kScaleRegisters > kEvenRegisters;
  static constexpr int kProducers = kReallocate ? 128 : 64;
  /// Each with its part of the tokens.
  static constexpr int kScaleWarps = kReallocate && kTokens >= 128 ? 2 : 1;
  static_assert(32 * (1 + kScaleWarps) <= kProducers);
  static constexpr int kThreads = kConsumers + kProducers;
  /// Products in flight hold their stages: so many that the last of them can arrive.
  static constexpr int kHeldBlocks = (std::min(kDepth, kUnroll* kParts) + kParts - 1) / kParts;
  static constexpr int kMinStages =
      std::max(2, (kHeldBlocks + 2 * kStageBlocks - 2) / kStageBlocks);
  static constexpr int kStageBytes = (kRows + kTokens) * 128 * kStageBlocks;
  static constexpr int kScaleStride = Fp8SwapLayout::ScaleBytes(kTokens) / 4;
  /// With many tokens the next kernel starts once all loads are issued: its weights would queue
  /// ahead of this one's activations. With few it starts as early as it may.
  static constexpr bool kLateTrigger = kTokens >= 64;
  static constexpr bool kFloat32 = false;  ///< D is BF16
  static_assert(kRows <= 128, "a CTA's rows share one weight scale");
  static_assert(kDepth >= 1 && kDepth <= 4);
  static_assert(kTokenGroups == 1 || kOwnTokens % 16 == 0, "scales of two groups lie together");
  static_assert(kGroups <= 32, "a mask of 32 bits says which groups a CTA sums");
  static_assert(kTurns == 1 || (kTurns == 2 && kStageBlocks == 2 && kWarpgroups == 2),
                "a stage holds a k-block for each turn");
};

/// The same with D in F32.
template <class C>
struct Fp8SwapF32 : C {
  static constexpr bool kFloat32 = true;
};

/// Where the scale of token 8 * group + t lies: lane l of a consumer needs tokens 2(l%4) and +1 of
/// every group, and finds those of two groups side by side, for one 16-byte read.
__device__ __forceinline__ int Fp8SwapScaleIndex(int group, int t) {
  return (group / 2) * 16 + (t / 2) * 4 + (group & 1) * 2 + (t & 1);
}

template <class C>
struct Fp8SwapShared {
  uint8_t* stages;
  float* scales;
  uint64_t* full;
  uint64_t* empty;
  uint64_t* scales_full;
  uint64_t* scales_empty;
  uint64_t* exchange_full;
  uint8_t* exchange;

  __device__ __forceinline__ Fp8SwapShared(uint8_t* base, int count) : stages(base) {
    using L = Fp8SwapLayout;
    uint8_t* const after = base + count * C::kStageBytes;
    scales = reinterpret_cast<float*>(after);
    full = reinterpret_cast<uint64_t*>(after +
                                       L::kScaleBuffers * L::kScaleBlocks * C::kScaleStride * 4);
    empty = full + kFp8SwapMaxStages;
    scales_full = empty + kFp8SwapMaxStages;
    scales_empty = scales_full + L::kScaleBuffers;
    exchange_full = scales_empty + L::kScaleBuffers;
    exchange = reinterpret_cast<uint8_t*>(exchange_full + 2);
  }
  __device__ __forceinline__ uint8_t* weights(int s) const { return stages + s * C::kStageBytes; }
  __device__ __forceinline__ uint8_t* activations(int s) const {
    return weights(s) + C::kRows * 128 * C::kStageBlocks;
  }
  /// Scales of block `block` of a chunk.
  __device__ __forceinline__ float* scale(int buffer, int block) const {
    return scales + (buffer * Fp8SwapLayout::kScaleBlocks + block) * C::kScaleStride;
  }
};

}  // namespace culet::sm90
