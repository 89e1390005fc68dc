// The kernels of code_product.h. A CTA computes kRows rows of the weight by up to kTokens tokens.
// Its warps take pieces of K in turn, each through a ring in shared memory that no other warp
// touches, and multiply codes, made numbers in registers, by tokens: the weight is the first
// operand of mma.sync. At the end their sums meet in a fixed order.
#pragma once

#include "kernels/cuda_ops/code_pairs.cuh"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/overlap.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// Pairs of numbers of T. A small integer in the last bits of kMagic is added to its value.
template <class T>
struct HalfConstants;
template <>
struct HalfConstants<__nv_bfloat16> {
  static constexpr std::uint32_t kMagic = 0x43004300;  // 128
  static constexpr std::uint32_t kOnes = 0x3F803F80;
  // E2M1's exponent and fraction at their places are 2^-126 of its value.
  static constexpr int kE2m1Shift = 6;
  static constexpr std::uint32_t kE2m1Mask = 0x01C001C0, kE2m1Factor = 0x7E807E80;  // 2^126
};
template <>
struct HalfConstants<__half> {
  static constexpr std::uint32_t kMagic = 0x64006400;  // 1024
  static constexpr std::uint32_t kOnes = 0x3C003C00;
  static constexpr int kE2m1Shift = 9;                                              // 2^-14
  static constexpr std::uint32_t kE2m1Mask = 0x0E000E00, kE2m1Factor = 0x74007400;  // 2^14
};

__device__ __forceinline__ constexpr std::uint32_t Shifted(std::uint32_t bits, int left) {
  return left >= 0 ? bits << left : bits >> -left;
}

/// uint4: codes of 4 bits less a zero point.
struct Uint4Codes {
  static constexpr bool kZeros = true;
  /// Codes i and i + 4 of a word, for i = kFirst, as a pair of T.
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word) {
    constexpr std::uint32_t kMagic = HalfConstants<T>::kMagic;
    return SubtractPairs<T>((word >> (4 * kFirst) & 0x000F000F) | kMagic, kMagic);
  }
};

struct E2m1Codes {
  static constexpr bool kZeros = false;
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word) {
    using Half = HalfConstants<T>;
    const std::uint32_t sign = word << (12 - 4 * kFirst) & 0x80008000;
    const std::uint32_t rest = Shifted(word, Half::kE2m1Shift - 4 * kFirst) & Half::kE2m1Mask;
    return MultiplyPairs<T>(sign | rest, Half::kE2m1Factor);
  }
};

/// int8: a word holds four codes, of which i and i + 2 are a pair.
struct Int8Codes {
  static constexpr bool kZeros = false;
  template <class T, int kFirst>
  static __device__ __forceinline__ std::uint32_t Pair(std::uint32_t word) {
    constexpr std::uint32_t kMagic = HalfConstants<T>::kMagic;
    const std::uint32_t codes = word >> (8 * kFirst);
    return SubtractPairs<T>((codes & 0x007F007F) | kMagic, (codes & 0x00800080) | kMagic);
  }
};

/// `kWide`: a lane takes eight codes of 4 bits from 32 elements of a row at a time, which two
/// instructions multiply; else four codes from 16, for groups of 16.
template <class T_, class Codes_, bool kWide_, int kSubTiles_, int kOctets_, int kStages_,
          int kCtas_>
struct CodeConfig {
  using T = T_;
  using Codes = Codes_;
  static constexpr bool kWide = kWide_;
  static constexpr int kSubTiles = kSubTiles_;  // of 16 rows
  static constexpr int kOctets = kOctets_;      // of 8 tokens
  static constexpr int kStages = kStages_;
  static constexpr int kCtas = kCtas_;
  static constexpr int kRows = 16 * kSubTiles, kTokens = 8 * kOctets;
  static constexpr int kWarps = kCodeProductWarps, kThreads = 32 * kWarps;
  static constexpr bool kBytes = std::is_same_v<Codes, Int8Codes>;
  static constexpr int kRowBytes = 64;               // of codes, of a warp's piece
  static constexpr int kBlockK = kBytes ? 64 : 128;  // elements of them
  static constexpr int kWindow = kWide ? 32 : 16;    // elements between promotions, at least
  static constexpr int kWindows = kBlockK / kWindow;
  static constexpr int kTokenBytes = 2 * kBlockK;  // of a token
  static constexpr int kTokenChunks = kTokenBytes / 16;
  static constexpr int kWeightBytes = kRows * kRowBytes;
  // Groups whose scales are in shared memory: those of a piece of each warp.
  static constexpr int kGroups = kWarps * kBlockK / kWindow;
  static constexpr int kPitch = kRows + 1;  // of a group's scales
  static constexpr int kScaleBytes = (kGroups * kPitch * 8 + 15) / 16 * 16;
  static constexpr int kSumPitch = kRows + 4;  // of a token's sums
  static constexpr int kSumBytes = kWarps * kTokens * kSumPitch * 4;
};

/// Where 16 bytes of a token lie: the chunks that lanes read together on different banks.
template <class C>
__device__ __forceinline__ int TokenChunk(int token, int chunk) {
  return chunk ^ (C::kWide ? (token & 1) * 4 : (token & 3) * 2);
}

/// One warp's ring.
template <class C>
struct CodeRing {
  const CodeProductParams& p;
  char* memory;
  int lane, row0, token0, tokens, stage_bytes;

  __device__ __forceinline__ char* Stage(int stage) const { return memory + stage * stage_bytes; }

  // The codes of 64 bytes of each row from element k0 on.
  __device__ __forceinline__ void CopyCodes(int stage, int k0) const {
    const int chunk = lane % 4, r = lane / 4;
    const int first = k0 + chunk * (C::kBlockK / 4);
    const bool in_k = first < p.k;
    const auto* const from = static_cast<const char*>(p.codes) +
                             (C::kBytes ? std::int64_t{first} : std::int64_t{first} / 2);
    const std::uint32_t to =
        SharedAddress(Stage(stage)) +
        static_cast<std::uint32_t>(r * C::kRowBytes + ((chunk ^ (r >> 1)) & 3) * 16);
#pragma unroll
    for (int i = 0; i < 2 * C::kSubTiles; ++i) {
      const int row = row0 + 8 * i + r;
      const bool there = in_k && row < p.n;
      CopyAsync16(to + static_cast<std::uint32_t>(i * 8 * C::kRowBytes),
                  there ? from + row * p.code_stride : p.codes, there ? 16 : 0);
    }
  }

  // The tokens' elements from k0 on.
  __device__ __forceinline__ void CopyTokens(int stage, int k0) const {
    constexpr int kTogether = 32 / C::kTokenChunks;  // tokens that a warp copies at a time
    const std::uint32_t to = SharedAddress(Stage(stage)) + C::kWeightBytes;
    const int chunk = lane % C::kTokenChunks, first = lane / C::kTokenChunks;
    const bool there = k0 + chunk * 8 < p.k;
    const auto* const from =
        static_cast<const char*>(p.x) + ((token0 + first) * p.x_stride + k0 + chunk * 8) * 2;
#pragma unroll
    for (int i = 0; i < C::kTokens / kTogether; ++i) {
      const int token = first + i * kTogether;
      if (token >= tokens) continue;
      CopyAsync16(to + static_cast<std::uint32_t>(token * C::kTokenBytes +
                                                  TokenChunk<C>(token, chunk) * 16),
                  there ? from + i * kTogether * 2 * p.x_stride : p.x, there ? 16 : 0);
    }
  }
};

/// The second operand of the instructions of one window and octet: two registers each.
template <class C>
__device__ __forceinline__ void LoadTokens(const char* tokens, int window, int token, int lane,
                                           std::uint32_t (&b)[C::kWide ? 4 : 2]) {
  const char* const row = tokens + token * C::kTokenBytes;
  const int c = lane % 4;
  if constexpr (C::kWide) {
    const uint4 x =
        *reinterpret_cast<const uint4*>(row + TokenChunk<C>(token, 4 * window + c) * 16);
    b[0] = __byte_perm(x.x, x.z, 0x5410), b[1] = __byte_perm(x.x, x.z, 0x7632);
    b[2] = __byte_perm(x.y, x.w, 0x5410), b[3] = __byte_perm(x.y, x.w, 0x7632);
  } else {
    const uint2 x = *reinterpret_cast<const uint2*>(
        row + TokenChunk<C>(token, 2 * window + c / 2) * 16 + c % 2 * 8);
    b[0] = __byte_perm(x.x, x.y, 0x5410), b[1] = __byte_perm(x.x, x.y, 0x7632);
  }
}

/// The codes of one row and window of a lane.
template <class C>
__device__ __forceinline__ std::uint32_t LoadWord(const char* row, int r, int window, int lane) {
  const int c = lane % 4, swizzle = r >> 1 & 3;
  if constexpr (C::kWide || C::kBytes) {
    return *reinterpret_cast<const std::uint32_t*>(row + (window ^ swizzle) * 16 + c * 4);
  } else {
    // Four codes of 16 bits: the third and fourth in the upper half.
    const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(
        row + ((window / 2) ^ swizzle) * 16 + (window % 2 * 2 + c / 2) * 4);
    const std::uint32_t own = word >> (16 * (c % 2)) & 0xFFFF;
    return own | own << 8;
  }
}

/// A lane's sums.
template <class C>
struct CodeSums {
  float sums[C::kSubTiles][C::kOctets][4] = {};
  float parts[C::kSubTiles][C::kOctets][4] = {};            // of the group, not yet scaled
  float tokens[C::Codes::kZeros ? C::kOctets : 1][4] = {};  // sums of a group's tokens

  __device__ __forceinline__ void Multiply(const char* stage, int window, int lane,
                                           const int (&token)[C::kOctets]) {
    using T = typename C::T;
    constexpr int kSteps = C::kWide ? 2 : 1;
    constexpr std::uint32_t kOnes = HalfConstants<T>::kOnes;
    std::uint32_t b[C::kOctets][2 * kSteps];
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      LoadTokens<C>(stage + C::kWeightBytes, window, token[t], lane, b[t]);
    }
    if constexpr (C::Codes::kZeros) {
      const std::uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          MultiplyAdd<T>(tokens[t], ones, b[t][2 * s], b[t][2 * s + 1]);
        }
      }
    }
    const int r = lane / 4;
#pragma unroll
    for (int i = 0; i < C::kSubTiles; ++i) {
      const char* const row = stage + (16 * i + r) * C::kRowBytes;
      const std::uint32_t upper = LoadWord<C>(row, r, window, lane);
      const std::uint32_t lower = LoadWord<C>(row + 8 * C::kRowBytes, r, window, lane);
      MultiplyStep<0>(i, upper, lower, b);
      if constexpr (kSteps == 2) MultiplyStep<1>(i, upper, lower, b);
    }
  }

  template <int kStep, int kRegisters>
  __device__ __forceinline__ void MultiplyStep(int i, std::uint32_t upper, std::uint32_t lower,
                                               const std::uint32_t (&b)[C::kOctets][kRegisters]) {
    using T = typename C::T;
    using Codes = typename C::Codes;
    const std::uint32_t a[4] = {Codes::template Pair<T, 2 * kStep>(upper),
                                Codes::template Pair<T, 2 * kStep>(lower),
                                Codes::template Pair<T, 2 * kStep + 1>(upper),
                                Codes::template Pair<T, 2 * kStep + 1>(lower)};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      MultiplyAdd<T>(parts[i][t], a, b[t][2 * kStep], b[t][2 * kStep + 1]);
    }
  }

  /// The group ends: `scales` are those of its rows, with zero points.
  __device__ __forceinline__ void Promote(const float2* scales, int lane) {
#pragma unroll
    for (int i = 0; i < C::kSubTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 scale = scales[16 * i + 8 * half + lane / 4];
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
          for (int j = 2 * half; j < 2 * half + 2; ++j) {
            float part = parts[i][t][j];
            if constexpr (C::Codes::kZeros) part = fmaf(-scale.y, tokens[t][j], part);
            sums[i][t][j] = fmaf(scale.x, part, sums[i][t][j]);
            parts[i][t][j] = 0;
          }
        }
      }
    }
    if constexpr (C::Codes::kZeros) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (float& token : tokens[t]) token = 0;
      }
    }
  }
};

/// `kCount` scales or zero points at places that are not negative, else 0. All loads are under way
/// at once.
template <int kCount>
__device__ __forceinline__ void LoadScales(const void* scales, DataType type,
                                           const std::int64_t (&at)[kCount], float (&to)[kCount]) {
  const auto load = [&](auto of) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = at[i] >= 0 ? of(at[i]) : 0.0f;
  };
  if (type == DataType::kFloat16) {
    load([&](std::int64_t i) { return ToFloat(static_cast<const __half*>(scales)[i]); });
  } else if (type == DataType::kBfloat16) {
    load([&](std::int64_t i) { return ToFloat(static_cast<const __nv_bfloat16*>(scales)[i]); });
  } else if (type == DataType::kFloat32) {
    load([&](std::int64_t i) { return static_cast<const float*>(scales)[i]; });
  } else {
    load([&](std::int64_t i) { return ScaleOf(scales, type, i); });
  }
}

/// Scales and zero points of groups [first, first + kGroups) of the CTA's rows, on their way to
/// shared memory: a thread's part, in batches.
template <class C>
struct ScaleBatch {
  static constexpr int kAll = C::kGroups * C::kRows / C::kThreads;
  static constexpr int kEach = C::kOctets >= 4 && kAll > 4 ? 4 : kAll;
  static constexpr int kBatches = kAll / kEach;
  float scales[kEach], zeros[C::Codes::kZeros ? kEach : 1];

  // Neighbouring threads read neighbouring scales.
  static __device__ __forceinline__ int2 PlaceOf(const CodeProductParams& p, int i) {
    return p.scale_k_stride == 1 ? make_int2(i % C::kGroups, i / C::kGroups)
                                 : make_int2(i / C::kRows, i % C::kRows);
  }
  static __device__ __forceinline__ int IndexOf(int batch, int i) {
    return static_cast<int>(threadIdx.x) + (batch * kEach + i) * C::kThreads;
  }

  __device__ __forceinline__ void Load(const CodeProductParams& p, int row0, int first, int groups,
                                       int batch) {
    std::int64_t at[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int2 place = PlaceOf(p, IndexOf(batch, i));
      const int group = first + place.x, row = row0 + place.y;
      at[i] =
          group < groups && row < p.n ? row * p.scale_row_stride + group * p.scale_k_stride : -1;
    }
    LoadScales(p.scales, p.scale_type, at, scales);
    if constexpr (C::Codes::kZeros) {
#pragma unroll
      for (float& zero : zeros) zero = 0;
      if (p.zeros != nullptr) LoadScales(p.zeros, p.zero_type, at, zeros);
    }
  }
  __device__ __forceinline__ void Store(const CodeProductParams& p, int batch, float2* to) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int2 place = PlaceOf(p, IndexOf(batch, i));
      to[place.x * C::kPitch + place.y] =
          make_float2(scales[i], C::Codes::kZeros ? zeros[C::Codes::kZeros ? i : 0] : 0.0f);
    }
  }
};

/// One element of D.
__device__ __forceinline__ void StoreSum(const CodeProductParams& p, int token, int row,
                                         float sum) {
  float value = p.alpha * sum;
  if (p.c != nullptr && p.beta != 0.0f) {
    value = fmaf(p.beta, ScaleOf(p.c, p.c_type, token * p.c_row + row * p.c_col), value);
  }
  if (p.bias != nullptr) {
    value += ScaleOf(p.bias, p.bias_type, token * p.bias_row + row * p.bias_col);
  }
  const std::int64_t at = token * p.d_row + row * p.d_col;
  if (p.d_type == DataType::kFloat32) {
    static_cast<float*>(p.d)[at] = value;
  } else if (p.d_type == DataType::kFloat16) {
    Round(value, static_cast<__half*>(p.d) + at);
  } else {
    Round(value, static_cast<__nv_bfloat16*>(p.d) + at);
  }
}

/// The CTA's sums of its part of K, in `smem`; writes D once all parts are there.
template <class C>
__device__ __forceinline__ void FinishCodes(const CodeProductParams& p, const CodeSums<C>& own,
                                            int row0, int token0, int tokens, int split,
                                            float* smem) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  float* const of_warp = smem + warp * C::kTokens * C::kSumPitch;
#pragma unroll
  for (int i = 0; i < C::kSubTiles; ++i) {
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int token = 8 * t + lane % 4 * 2 + j % 2, row = 16 * i + lane / 4 + j / 2 * 8;
        of_warp[token * C::kSumPitch + row] = own.sums[i][t][j];
      }
    }
  }
  __syncthreads();
  const int elements = tokens * C::kRows;
  const auto each = [&](auto function) {
    for (int i = thread; i < elements; i += C::kThreads) function(i, i / C::kRows, i % C::kRows);
  };
  const auto sum_of = [&](int token, int row) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < C::kWarps; ++w) {
      sum += smem[(w * C::kTokens + token) * C::kSumPitch + row];
    }
    return sum;
  };
  if (p.splits == 1) {
    each([&](int, int token, int row) {
      if (row0 + row < p.n) StoreSum(p, token0 + token, row0 + row, sum_of(token, row));
    });
    return;
  }
  // Nothing waits: the CTA that finishes last adds all parts, in their order.
  constexpr int kPart = C::kRows * C::kTokens;
  const std::int64_t tile = std::int64_t{blockIdx.z} * gridDim.x + blockIdx.x;
  float* const parts = p.partials + tile * p.splits * kPart;
  each([&](int i, int token, int row) { parts[split * kPart + i] = sum_of(token, row); });
  __threadfence();
  __syncthreads();
  const bool completes = thread == 0 && atomicAdd(p.arrived + tile, 1) == p.splits - 1;
  if (__syncthreads_or(completes ? 1 : 0) == 0) return;
  __threadfence();
  each([&](int i, int token, int row) {
    float sum = 0;
    for (int s = 0; s < p.splits; ++s) sum += __ldcg(parts + s * kPart + i);
    if (row0 + row < p.n) StoreSum(p, token0 + token, row0 + row, sum);
  });
  if (thread == 0) p.arrived[tile] = 0;
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtas)
    CodeProductKernelOf(const __grid_constant__ CodeProductParams p) {
  char* const shared = DynamicShared();
  auto* const scales = reinterpret_cast<float2*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = static_cast<int>(blockIdx.x) * C::kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int token0 = static_cast<int>(blockIdx.z) * C::kTokens;
  const int tokens = min(C::kTokens, p.m - token0);
  const int stage_bytes = C::kWeightBytes + tokens * C::kTokenBytes;
  const CodeRing<C> ring{p,          shared + C::kScaleBytes + warp * C::kStages * stage_bytes,
                         lane,       row0,
                         token0,     tokens,
                         stage_bytes};
  // Parts of K and the pieces of a part differ by one at most. A warp takes every eighth piece.
  const int blocks = (p.k - 1) / C::kBlockK + 1;
  const int begin = static_cast<int>(std::int64_t{blocks} * split / p.splits);
  const int end = static_cast<int>(std::int64_t{blocks} * (split + 1) / p.splits);
  const int groups = (p.k - 1) / p.group + 1;
  const int own = (end - begin - warp + C::kWarps - 1) / C::kWarps;
  const auto block_k = [&](int i) { return (begin + warp + i * C::kWarps) * C::kBlockK; };

  const auto stage_scales = [&](int first, ScaleBatch<C>& batch, bool loaded) {
    for (int i = 0; i < ScaleBatch<C>::kBatches; ++i) {
      if (!loaded || i > 0) batch.Load(p, row0, first, groups, i);
      batch.Store(p, i, scales);
    }
  };

  // What no kernel writes may come before the wait, the scales first: they are used first.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  int first_group = begin * C::kBlockK / p.group;
  {
    ScaleBatch<C> batch;
    batch.Load(p, row0, first_group, groups, 0);
    if (p.early) {
      for (int stage = 0; stage < C::kStages; ++stage) {
        if (stage < own) ring.CopyCodes(stage, block_k(stage));
      }
      CommitCopies();
      AwaitPrevious();
    }
    if (!p.chain) LetNextBegin();
    for (int stage = 0; stage < C::kStages; ++stage) {
      if (stage < own) {
        if (!p.early) ring.CopyCodes(stage, block_k(stage));
        ring.CopyTokens(stage, block_k(stage));
      }
      CommitCopies();
    }
    stage_scales(first_group, batch, true);
  }
  __syncthreads();

  int token[C::kOctets];  // those beyond the last are the last again: no one reads their sums
#pragma unroll
  for (int t = 0; t < C::kOctets; ++t) token[t] = min(8 * t + lane / 4, tokens - 1);
  CodeSums<C> sums;
  int stage = 0;
  // All warps take part in every round, since a round may need other scales.
  const int rounds = (end - begin + C::kWarps - 1) / C::kWarps;
  for (int i = 0; i < rounds; ++i) {
    const int round_end =
        min((begin + (i + 1) * C::kWarps) * C::kBlockK, p.k) - 1;  // the last element
    if (round_end / p.group >= first_group + C::kGroups) {
      first_group = (begin + i * C::kWarps) * C::kBlockK / p.group;
      __syncthreads();
      ScaleBatch<C> batch;
      stage_scales(first_group, batch, false);
      __syncthreads();
    }
    AwaitCopies<C::kStages - 1>();
    __syncwarp();
    if (i < own) {
      const int k0 = block_k(i);
      const char* const memory = ring.Stage(stage);
      int group = k0 / p.group, in_group = k0 - group * p.group;
#pragma unroll
      for (int window = 0; window < C::kWindows; ++window) {
        sums.Multiply(memory, window, lane, token);
        in_group += C::kWindow;
        if (window == C::kWindows - 1 || in_group == p.group) {
          // What lies beyond K is 0.
          sums.Promote(scales + (min(group, groups - 1) - first_group) * C::kPitch, lane);
          if (in_group == p.group) ++group, in_group = 0;
        }
      }
    }
    __syncwarp();
    if (i + C::kStages < own) {
      const int k0 = block_k(i + C::kStages);
      ring.CopyCodes(stage, k0);
      ring.CopyTokens(stage, k0);
    }
    CommitCopies();
    stage = stage + 1 == C::kStages ? 0 : stage + 1;
  }
  AwaitCopies<0>();
  __syncthreads();
  FinishCodes<C>(p, sums, row0, token0, tokens, split,
                 reinterpret_cast<float*>(shared + C::kScaleBytes));
}

template <class C>
constexpr CodeProductKernel MakeCodeProduct(const char* id, DataType codes, DataType x, int most,
                                            int registers) {
  return {.id = id,
          .function = &CodeProductKernelOf<C>,
          .codes = codes,
          .x = x,
          .group_step = C::kWindow,
          .rows = C::kRows,
          .tokens = C::kTokens,
          .most = most,
          .block_k = C::kBlockK,
          .stages = C::kStages,
          .ctas = C::kCtas,
          .registers = registers,
          .stage_bytes = C::kWeightBytes,
          .scale_bytes = C::kScaleBytes,
          .sum_bytes = C::kSumBytes};
}

}  // namespace culet::cuda_ops
