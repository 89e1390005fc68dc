// Products with up to 8 tokens: D^T = B A^T; each warp computes 8 to 64 rows of B.
//
// Short launches are bound by the latency of the first and last byte, not by bandwidth. So weight
// loads start at once: no tensor maps, mbarriers or clusters, and little code, because code that
// runs once also comes from memory. Each warp fills its own ring in shared memory by cp.async, and
// each lane reads the 16 bytes that it copied itself. Warps synchronise once, when those that share
// rows add their sums.
//
// The order of k inside a 128-byte k-block is free if both operands use the same one. Lane l takes
// the 16 bytes of row l / 4 at byte 16 (l % 4) of every 64 as its elements of two 16 x 8 x 16
// products of a 16-bit format, or of four of E4M3, which converts to F16 exactly. Products are
// exact in FP32, where the tensor core adds them; with block scales each k-block has sums of its
// own. The order of additions is fixed, so results repeat bit for bit.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm90/product/output.cuh"
#include "kernels/sm90/skinny/first.cuh"
#include "kernels/sm90/skinny/fused.h"
#include "kernels/sm90/skinny/lane.cuh"

namespace culet::sm90 {

/// Constants derived from a policy and an instance of a list (as in SwapConfig): kRows rows of
/// weights by 8 tokens per warp, kDepth k-blocks in flight.
template <class Policy_, class List, int kIndex, EpilogueKind kEpilogue_, OutputType kOutput_,
          SkinnyFusion kFusion_ = SkinnyFusion::kNone>
struct SkinnyConfig {
  using Policy = Policy_;
  using Format = typename Policy::Format;
  static constexpr EpilogueKind kEpilogue = kEpilogue_;
  static constexpr OutputType kOutput = kOutput_;  ///< of a plain epilogue: BF16 or F32
  static constexpr SkinnyFusion kFusion = kFusion_;
  static constexpr bool kNorm = kFusion != SkinnyFusion::kNone;  ///< A lies beside the rings
  static constexpr bool kGated = kFusion == SkinnyFusion::kNormGated;
  using Params = std::conditional_t<kNorm, FusedSkinnyParams, SkinnyParams>;
  static constexpr bool kGeneral = kEpilogue == EpilogueKind::kGeneral;
  static constexpr bool kScaled = Policy::kInfo.sums == Sums::kBlockScaled;
  static constexpr int kRows = List::kAll[kIndex].rows;
  static constexpr int kEights = kRows / 8;
  static constexpr int kRowTiles = (kEights + 1) / 2;  ///< mma's; the last one may be half empty
  static constexpr int kDepth = List::kAll[kIndex].depth;
  /// If registers allow, a k-block is read and its slot refilled before it is multiplied.
  static constexpr bool kReadFirst = kRowTiles <= 3;
  /// Independent sums for a k-block's halves, where row tiles are too few to hide mma latency.
  static constexpr int kChains = kRowTiles <= 2 ? 2 : 1;
  static constexpr int kSums = kScaled ? 1 : kChains;  ///< for each element of D, to be added
  /// A k-block in shared memory: 512 bytes per warp load, the scales, then 128 bytes per token.
  static constexpr int kWeightBytes = kEights * 2 * 512;
  static constexpr int kScaleBytes = kScaled ? 128 : 0;
  static constexpr int kSlotBytes = kWeightBytes + kScaleBytes;
  /// Floats per token: 4 more than rows, so that a fragment's lanes have no bank conflicts.
  static constexpr int kSumStride = kRows + 4;
  static constexpr int kSumBytes = kSkinnyTokens * kSumStride * 4;
  static_assert(kSumBytes <= kDepth * kSlotBytes, "sums take the ring's place");
  static_assert((kDepth & (kDepth - 1)) == 0);
  static_assert(kRows % 16 == 0 || kRows == 8);
  static_assert(kRows % 16 == 0 || !kGated, "eights of gates and ups take turns");
  static_assert(!kNorm || !kScaled, "the norm makes no codes");
};

__device__ __forceinline__ uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/// Splits a lane's 16 bytes into kCount mma fragments of type Operand, a low and a high word each.
template <class Format>
struct SkinnyFragments {
  using Operand = Format;
  static constexpr int kCount = 2;
  static __device__ __forceinline__ void Get(const uint4& bytes, int i, uint32_t& low,
                                             uint32_t& high) {
    low = Word(bytes, 2 * i);
    high = Word(bytes, 2 * i + 1);
  }
};
template <>
struct SkinnyFragments<E4m3> {
  using Operand = F16;
  static constexpr int kCount = 4;
  static __device__ __forceinline__ void Get(const uint4& bytes, int i, uint32_t& low,
                                             uint32_t& high) {
    ToHalf(Word(bytes, i), low, high);
  }
};

/// One warp's part of the product: `count` k-blocks from `first` on.
template <class C>
struct SkinnyWarp {
  /// This lane copies the weights' scale, gated gate's, and the next one up's; lower lanes copy the
  /// tokens'.
  static constexpr uint32_t kWeightScaleLane = 16;
  const uint32_t lane, ring;
  uint32_t slot_bytes, tokens_half;  ///< of a k-block; of one half's activations
  int has_token;                     ///< 1: this lane's token of a fragment, l / 4, exists
  const bool has_scale;              ///< this lane copies a scale
  // Of the next k-block to fetch:
  const uint8_t* weight_row[C::kEights];  ///< rows l / 4, l / 4 + 8, ...
  const uint8_t* token_row;               ///< likewise
  const uint8_t* scale;
  const int64_t scale_step;            ///< bytes
  int weights_left, activations_left;  ///< bytes of the row; this lane's are inside while positive
  uint32_t tile;  ///< of the next k-block to multiply, where A lies beside the rings
  float sum[C::kSums][C::kRowTiles][4];

  __device__ __forceinline__ SkinnyWarp(const SkinnyParams& p, uint32_t ring, int row0,
                                        uint32_t lane, int first)
      : lane(lane),
        ring(ring),
        slot_bytes(p.slot_bytes),
        tokens_half(p.m * 64),
        has_token(int(lane / 4) < p.m),
        has_scale(int(lane) < p.m || lane == kWeightScaleLane),
        scale_step(int64_t(4) * (lane == kWeightScaleLane ? p.scale_b_block : p.scale_a_block)) {
    const int byte = first * 128 + int(lane % 4 * 16);
    weights_left = activations_left = p.k - byte;
    // Rows past the last one repeat it: read, multiplied and not stored.
#pragma unroll
    for (int r = 0; r < C::kEights; ++r)
      weight_row[r] = p.b + Row(p, row0, r) * int64_t(p.ldb) + byte;
    token_row = p.a + int(lane / 4) * int64_t(p.lda) + byte;
    const bool of_weights = lane == kWeightScaleLane;
    scale = reinterpret_cast<const uint8_t*>((of_weights ? p.scale_b : p.scale_a) +
                                             int64_t(first) *
                                                 (of_weights ? p.scale_b_block : p.scale_a_block) +
                                             int64_t(of_weights ? row0 / 128 : int(lane)) *
                                                 (of_weights ? p.scale_b_column : p.scale_a_row));
    Clear();
  }

  /// Without operands: the caller says for each what it fetches (grouped/skinny_kernel.cuh).
  __device__ __forceinline__ SkinnyWarp(uint32_t ring, uint32_t lane, uint32_t slot_bytes,
                                        int tokens, int64_t scale_step)
      : lane(lane),
        ring(ring),
        slot_bytes(slot_bytes),
        tokens_half(tokens * 64),
        has_token(0),
        has_scale(false),
        weight_row(),
        token_row(nullptr),
        scale(nullptr),
        scale_step(scale_step),
        weights_left(0),
        activations_left(0) {}

  /// The lane's row, lane / 4, in the r-th group of 8 rows. Gated, groups alternate between the
  /// halves of B, so that a lane has a gate row and its up row.
  __device__ __forceinline__ int Row(const SkinnyParams& p, int row0, int r) const {
    if constexpr (C::kGated) {
      const int half = p.n / 2;
      return min(row0 / 2 + r / 2 * 8 + int(lane / 4), half - 1) + r % 2 * half;
    }
    return min(row0 + 8 * r + int(lane / 4), p.n - 1);
  }

  __device__ __forceinline__ void SetTile(const FusedSkinnyParams& p, uint32_t shared, int first) {
    tile = shared + p.tile_at + lane / 4 * p.tile_stride + first * 128 + lane % 4 * 16;
  }

  /// Keeps derived arguments in registers, so that they are not recomputed after a wait.
  __device__ __forceinline__ void Keep() {
    Pin(slot_bytes), Pin(tokens_half), Pin(has_token);
    Clear();
  }

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int s = 0; s < C::kSums; ++s)
#pragma unroll
      for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[s][i][e] = 0.0f;
  }

  __device__ __forceinline__ uint32_t Slot(int i) const {
    return ring + i % C::kDepth * slot_bytes;
  }

  __device__ __forceinline__ void FetchWeights(uint32_t slot) {
    // lane / 32 is always 0; it works around ptxas 13.0, which emits an illegal instruction for a
    // copy with a cache policy whose address is a register plus a uniform register.
    const uint32_t to = (slot + lane * 16) ^ (lane / 32);
#pragma unroll
    for (int r = 0; r < C::kEights; ++r) {
      CopyStream(to + 2 * r * 512, weight_row[r], weights_left > 0);
      CopyStream(to + (2 * r + 1) * 512, weight_row[r] + 64, weights_left > 64);
      weight_row[r] += 128;
    }
    weights_left -= 128;
  }

  __device__ __forceinline__ void FetchActivations(uint32_t slot) {
    if constexpr (C::kNorm) return;
    const uint32_t to = slot + C::kSlotBytes + lane * 16;
    if (has_token != 0) {
      CopyShared(to, token_row, activations_left > 0);
      CopyShared(to + tokens_half, token_row + 64, activations_left > 64);
    }
    SkipActivations(1);
    FetchScales(slot, has_scale);
  }

  /// Skips `blocks` k-blocks of activations, which other code reads.
  __device__ __forceinline__ void SkipActivations(int blocks) {
    token_row += blocks * 128;
    activations_left -= blocks * 128;
  }

  __device__ __forceinline__ void FetchScales(uint32_t slot, bool mine) {
    if constexpr (!C::kScaled) return;
    if (mine) CopyAsync<4>(slot + C::kWeightBytes + lane * 4, scale);
    scale += scale_step;
  }

  /// Adds the k-block in `slot`. Calls refill() once this lane has read its part of the slot.
  template <class Refill>
  __device__ __forceinline__ void Multiply(uint32_t slot, const Refill& refill) {
    const uint32_t weights = slot + lane * 16,
                   activations = C::kNorm ? tile : weights + C::kSlotBytes,
                   scales = slot + C::kWeightBytes;
    const uint32_t second_half = C::kNorm ? 64 : tokens_half;
    uint4 x[2], w[2][C::kEights];
    const auto read = [&](int c) {
      x[c] = make_uint4(0, 0, 0, 0);
      if (has_token != 0) x[c] = LoadShared<uint4>(activations + c * second_half);
#pragma unroll
      for (int r = 0; r < C::kEights; ++r) w[c][r] = LoadShared<uint4>(weights + (2 * r + c) * 512);
      if (c == 0) return;
      refill();
    };
    float weight_scale = 1.0f, up_scale = 1.0f;
    float2 token_scale = make_float2(1.0f, 1.0f);
    if constexpr (C::kScaled) {
      weight_scale = LoadShared<float>(scales + kWeightScaleLane * 4);
      if constexpr (C::kGated) up_scale = LoadShared<float>(scales + (kWeightScaleLane + 1) * 4);
      token_scale = LoadShared<float2>(scales + lane % 4 * 8);
    }
    if constexpr (C::kNorm) tile += 128;
    if constexpr (C::kReadFirst) {
      read(0);
      read(1);
    }
    using Fragments = SkinnyFragments<typename C::Format>;
    float product[C::kChains][C::kRowTiles][4] = {};
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (!C::kReadFirst) read(c);
#pragma unroll
      for (int part = 0; part < Fragments::kCount; ++part) {
        uint32_t b[2];
        Fragments::Get(x[c], part, b[0], b[1]);
#pragma unroll
        for (int i = 0; i < C::kRowTiles; ++i) {
          uint32_t a[4];
          Fragments::Get(w[c][2 * i], part, a[0], a[2]);
          if constexpr (C::kEights > 1) {
            Fragments::Get(w[c][2 * i + 1], part, a[1], a[3]);
          } else {
            a[1] = a[3] = 0;
          }
          if constexpr (C::kScaled)
            Mma16x8x16(typename Fragments::Operand(), product[c % C::kChains][i], a, b);
          else
            Mma16x8x16(typename Fragments::Operand(), sum[c % C::kChains][i], a, b);
        }
      }
    }
    if constexpr (!C::kScaled) return;
    const float even = weight_scale * token_scale.x, odd = weight_scale * token_scale.y;
    const float up_even = C::kGated ? up_scale * token_scale.x : even,
                up_odd = C::kGated ? up_scale * token_scale.y : odd;
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float whole = product[0][i][e];
        if constexpr (C::kChains == 2) whole += product[1][i][e];
        sum[0][i][e] += (e == 0 ? even : e == 1 ? odd : e == 2 ? up_even : up_odd) * whole;
      }
    }
  }

  /// Multiplies the warp's kDepth k-blocks, all of which are in the ring. Unrolled, so that the
  /// shared-memory loads of one overlap the products of another.
  __device__ __forceinline__ void MultiplyHeld() {
    CopyAsyncWait<0>();
    __syncwarp();
#pragma unroll
    for (int i = 0; i < C::kDepth; ++i) Multiply(Slot(i), [] {});
  }

  /// Writes the sums, before the epilogue: kSumStride floats per token.
  __device__ __forceinline__ void PutSums(float* to) const {
    to += 2 * (lane % 4) * C::kSumStride + lane / 4;
#pragma unroll
    for (int i = 0; i < C::kRowTiles; ++i)
#pragma unroll
      for (int e = 0; e < 4 && 16 * i + e / 2 * 8 < C::kRows; ++e) {
        float whole = sum[0][i][e];
        if constexpr (C::kSums == 2) whole += sum[1][i][e];
        to[e % 2 * C::kSumStride + 16 * i + e / 2 * 8] = whole;
      }
  }
};

/// Stores two neighbouring elements of a row of D; the second only if `both`.
__device__ __forceinline__ void SkinnyStore(uint8_t* d, OutputType type, float2 v, bool both) {
  if (type == OutputType::kF32) {
    float* const to = reinterpret_cast<float*>(d);
    to[0] = v.x;
    if (both) to[1] = v.y;
  } else {
    uint16_t* const to = reinterpret_cast<uint16_t*>(d);
    const uint32_t packed = PackOutput(type, v.x, v.y);
    if (both && reinterpret_cast<uint64_t>(to) % 4 == 0) {
      *reinterpret_cast<uint32_t*>(to) = packed;
    } else {
      to[0] = static_cast<uint16_t>(packed);
      if (both) to[1] = static_cast<uint16_t>(packed >> 16);
    }
  }
}

/// Where a thread's pairs of neighbours in D go. The first address is computed before the wait:
/// kernel arguments first read after it can be slow to arrive.
template <class C>
struct SkinnyEnd {
  static constexpr int kPairs = C::kRows / (C::kGated ? 4 : 2);  ///< per token
  int pairs;                                                     ///< of all tokens
  int warp_floats;                                               ///< between two warps' sums
  int type;
  float alpha;
  // Of the next pair:
  uint8_t* to;
  int columns;  ///< of D from there on

  __device__ __forceinline__ SkinnyEnd(const SkinnyParams& p, int row0, uint32_t thread)
      : pairs(p.m * kPairs),
        warp_floats(C::kDepth * p.slot_bytes / 4),
        type(static_cast<int>(C::kGeneral ? p.epilogue.d_type : C::kOutput)),
        alpha(p.epilogue.alpha) {
    Find(p, row0, thread);
    Pin(pairs), Pin(warp_floats), Pin(type), Pin(alpha), Pin(columns);
  }
  __device__ __forceinline__ void Find(const SkinnyParams& p, int row0, uint32_t pair) {
    const int column = row0 / (C::kGated ? 2 : 1) + int(pair % kPairs) * 2;
    columns = p.n / (C::kGated ? 2 : 1) - column;
    to = static_cast<uint8_t*>(p.d) +
         (int64_t(pair / kPairs) * p.ldd + column) * (Type() == OutputType::kF32 ? 4 : 2);
  }
  __device__ __forceinline__ OutputType Type() const { return static_cast<OutputType>(type); }
};

/// Factors of the general epilogue for two neighbours in a row of D. Scales are loaded before the
/// weights where possible, so that the epilogue does not wait for them.
struct SkinnyFactors {
  const bool plain;  ///< D is alpha times the sums
  float row[2] = {1.0f, 1.0f}, token = 1.0f;

  __device__ __forceinline__ explicit SkinnyFactors(const SkinnyParams& p)
      : plain(IsPlain(p.epilogue)) {}
  __device__ __forceinline__ static float Load(const float* from) {
    return LoadGlobal<float>(from);
  }
  __device__ __forceinline__ void LoadRows(const SkinnyParams& p, int r) {
    const EpilogueParams& e = p.epilogue;
    if (e.scale_b == nullptr) return;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      if (r + j < p.n) row[j] = Load(e.scale_b + int64_t(r + j) * e.scale_b_step);
  }
  __device__ __forceinline__ void LoadToken(const SkinnyParams& p, int t) {
    const EpilogueParams& e = p.epilogue;
    if (e.scale_a != nullptr && t < p.m) token = Load(e.scale_a + int64_t(t) * e.scale_a_step);
  }
  /// beta C plus the bias.
  __device__ __forceinline__ float Added(const SkinnyParams& p, int t, int r) const {
    const EpilogueParams& e = p.epilogue;
    float v = 0.0f;
    if (e.bias != nullptr)
      v = LoadOutput(e.bias, e.bias_type, int64_t(t) * e.bias_row_step + int64_t(r) * e.bias_step);
    if (e.beta != 0.0f) v = fmaf(e.beta, LoadOutput(e.c, e.c_type, t * e.ldc + r), v);
    return v;
  }
};

/// The general epilogue, not inlined to keep it out of the plain path's code. `first`: `factors`
/// already hold this pair's.
[[maybe_unused]] static __device__ __noinline__ float2 SkinnyEpilogue(const SkinnyParams& p,
                                                                      SkinnyFactors factors,
                                                                      bool first, int token,
                                                                      int column, bool both,
                                                                      float2 total) {
  if (!first) {
    factors.LoadRows(p, column);
    factors.LoadToken(p, token);
  }
  const float factor = p.epilogue.alpha * factors.token;
  total.x = fmaf(total.x * factor, factors.row[0], factors.Added(p, token, column));
  if (both) total.y = fmaf(total.y * factor, factors.row[1], factors.Added(p, token, column + 1));
  return total;
}

/// Adds the partial sums of `splits` warps, in warp order, and stores D. `factors` belong to the
/// thread's first pair; null if the epilogue is plain.
template <class C>
__device__ __forceinline__ void SkinnyFinish(const SkinnyParams& p, const float* sums, int splits,
                                             int row0, int thread, SkinnyEnd<C> end,
                                             const SkinnyFactors* factors) {
#pragma unroll 1
  for (int i = thread; i < end.pairs;) {
    if (end.columns > 0) {
      const int token = i / end.kPairs, row = i % end.kPairs * 2;
      const float* from = sums + token * C::kSumStride + row;
      float2 total = make_float2(0.0f, 0.0f);
#pragma unroll 1
      for (int s = 0; s < splits; s += 4) {
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          if (s + u < splits) {
            const float2 v = *reinterpret_cast<const float2*>(from);
            total.x += v.x, total.y += v.y;
          }
          from += end.warp_floats;
        }
      }
      if (!C::kGeneral || factors == nullptr || factors->plain) {
        total.x *= end.alpha, total.y *= end.alpha;
      } else {
        total = SkinnyEpilogue(p, *factors, i == thread, token, row0 + row, end.columns > 1, total);
      }
      SkinnyStore(end.to, end.Type(), total, end.columns > 1);
    }
    i += splits * 32;
    if (i < end.pairs) end.Find(p, row0, i);
  }
}

/// Block dimensions: (32, warps along K, groups of rows).
template <class C>
__global__ void __launch_bounds__(kSkinnyMaxThreads, 1)
    SkinnyGemm(const __grid_constant__ SkinnyParams p) {
  uint8_t* const shared_base = SharedBase();
  const bool early = p.early_weights != 0;
  if (p.early_next != 0) GridDependencyLaunch();
  const uint32_t lane = threadIdx.x;
  const int splits = blockDim.y;
  const int part = WarpUniform(threadIdx.y), group = WarpUniform(threadIdx.z);
  const int row0 = (blockIdx.x * blockDim.z + group) * C::kRows;
  // A group past the last row only takes part in the barrier.
  const int count = row0 < p.n ? p.blocks_each + (part < p.blocks_rest ? 1 : 0) : 0;
  const int warp_bytes = C::kDepth * p.slot_bytes;
  uint8_t* const rings = shared_base + group * splits * warp_bytes;
  uint8_t* const ring = rings + part * warp_bytes;
  const int first = part * p.blocks_each + min(part, p.blocks_rest);
  SkinnyWarp<C> warp(p, SharedAddress(ring), row0, lane, first);
  const SkinnyFirst<C> activations(p, SharedAddress(ring), lane, first, count);
  const int thread = part * 32 + int(lane);
  SkinnyFactors factors(p);
  const SkinnyEnd<C> end(p, row0, thread);
  if constexpr (C::kGeneral) {
    constexpr int kPairs = C::kRows / 2;
    factors.LoadRows(p, row0 + thread % kPairs * 2);
    if (!early) factors.LoadToken(p, thread / kPairs);
  }
#pragma unroll 1
  for (int i = 0; i < C::kDepth; ++i) {
    if (i < count) {
      warp.FetchWeights(warp.Slot(i));
      if (early) {
        warp.FetchScales(warp.Slot(i), lane == SkinnyWarp<C>::kWeightScaleLane);
      } else {
        warp.FetchActivations(warp.Slot(i));
      }
    }
    CopyAsyncCommit();
  }

  // Warm the instruction cache: one warp runs the loop once on a scratch slot while the first
  // loads are in flight.
  const uint32_t nobodys = SharedAddress(shared_base + blockDim.z * splits * warp_bytes);
#pragma unroll 1
  for (int pass = p.rehearse != 0 && part == 0 && group == 0 ? 0 : 1; pass < 2; ++pass) {
    Pin(pass);  // or the compiler duplicates the loop, one copy per pass
    const bool real = pass == 1;
    if (real && early) {
      GridDependencyWait();
      if (p.early_next == 0) GridDependencyLaunch();
      if constexpr (C::kGeneral) factors.LoadToken(p, thread / (C::kRows / 2));
      activations.Read();
      warp.SkipActivations(C::kDepth);
    }
    warp.Clear();
    const int blocks = real ? count : 1;
#pragma unroll 1
    for (int i = 0; i < blocks; ++i) {
      if (real) CopyAsyncWait<C::kDepth - 1>();
      __syncwarp();
      warp.Multiply(real ? warp.Slot(i) : nobodys, [&] {
        if (!real) return;
        __syncwarp();
        if (i + C::kDepth < count) {
          warp.FetchWeights(warp.Slot(i));
          warp.FetchActivations(warp.Slot(i));
        }
        CopyAsyncCommit();
      });
    }
  }
  __syncwarp();
  warp.PutSums(reinterpret_cast<float*>(ring));
  __syncthreads();
  SkinnyFinish<C>(p, reinterpret_cast<const float*>(rings), splits, row0, thread, end, &factors);
}

}  // namespace culet::sm90
