// Loads the activations of a warp's first k-blocks if the kernel before produces them. Nothing else
// can run meanwhile, so all lanes load 16 bytes at once into registers: half the time of 64-byte
// copies to shared memory (docs/hopper-lessons.md).
#pragma once

#include <cstdint>

#include "kernels/sm90/skinny/lane.cuh"
#include "kernels/sm90/skinny/skinny.h"

namespace culet::sm90 {

/// A lane's part; addresses are computed before the wait. `C`: SkinnyConfig.
template <class C>
class SkinnyFirst {
 public:
  /// For the warp's `count` k-blocks from `first` on.
  __device__ __forceinline__ SkinnyFirst(const SkinnyParams& p, uint32_t ring, uint32_t lane,
                                         int first, int count)
      : token_(int(lane) / kPieces) {
    const int piece = int(lane) % kPieces, byte = first * 128 + piece * 16;
    inside_ = piece / 8 < count && byte < p.k;
    m_ = p.m, step_ = kTokens * p.lda;
    from_ = p.a + token_ * int64_t(p.lda) + byte;
    to_ = ring + piece / 8 * p.slot_bytes + C::kSlotBytes + piece % 8 / 4 * (p.m * 64) +
          piece % 4 * 16 + token_ * 64;
    Pin(from_), Pin(to_), Pin(m_), Pin(step_);
    if constexpr (C::kScaled) {
      const int block = int(lane) / kSkinnyTokens, token = int(lane) % kSkinnyTokens;
      scale_there_ = block < min(count, C::kDepth) && token < p.m;
      scale_ =
          p.scale_a + int64_t(token) * p.scale_a_row + int64_t(first + block) * p.scale_a_block;
      scale_to_ = ring + block * p.slot_bytes + C::kWeightBytes + token * 4;
      Pin(scale_);
    }
  }

  /// Writes them to the ring. Other lanes see them after a __syncwarp().
  __device__ __forceinline__ void Read() const {
    float scale = 0.0f;
    if constexpr (C::kScaled) {
      if (scale_there_) scale = LoadGlobal<float>(scale_);
    }
    const uint8_t* from = from_;
    uint32_t to = to_;
#pragma unroll 1
    for (int token = token_; token < m_; token += kTogether * kTokens) {
      uint4 v[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        v[i] = make_uint4(0, 0, 0, 0);
        if (inside_ && token + i * kTokens < m_) v[i] = LoadGlobal<uint4>(from);
        from += step_;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i)
        if (token + i * kTokens < m_) StoreShared(to + i * kTokens * 64, v[i]);
      to += kTogether * kTokens * 64;
    }
    if constexpr (C::kScaled) {
      if (scale_there_) StoreShared(scale_to_, scale);
    }
  }

 private:
  static_assert(C::kDepth <= 4);
  static constexpr int kPieces = 8 * C::kDepth;  // of 16 bytes, of a token
  static constexpr int kTokens = 32 / kPieces;   // that the warp reads side by side
  static constexpr int kTogether = 4;            // loads of a lane on their way

  const int token_;  // the lane's first
  int m_, step_;     // tokens; bytes to the lane's next one
  bool inside_, scale_there_ = false;
  const uint8_t* from_;
  const float* scale_ = nullptr;
  uint32_t to_, scale_to_ = 0;
};

}  // namespace culet::sm90
