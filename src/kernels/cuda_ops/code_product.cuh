// The kernels of code_product.h. A CTA computes kRows rows of the weight by up to kTokens tokens.
// Its warps take pieces of K in turn, each through a ring in shared memory that no other warp
// touches, and multiply codes, made numbers in registers, by tokens: the weight is the first
// operand of mma.sync. At the end their sums meet in a fixed order.
#pragma once

#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda_ops/code_finish.cuh"
#include "kernels/cuda_ops/code_nans.cuh"
#include "kernels/cuda_ops/code_numbers.cuh"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/codes.cuh"
#include "kernels/cuda_ops/mma.cuh"
#include "kernels/cuda_ops/overlap.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

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
  static constexpr bool kBytes = Codes::kBits == 8;
  static constexpr int kRowBytes = 64;               // of codes, of a warp's piece
  static constexpr int kBlockK = kBytes ? 64 : 128;  // elements of them
  static constexpr int kWindow = kWide ? 32 : 16;    // elements between promotions, at least
  static constexpr int kWindows = kBlockK / kWindow;
  // Of windows: a body of many sub-tiles is long enough, and needs the registers.
  static constexpr int kUnrolled = kSubTiles >= 4 ? 1 : kWindows;
  static constexpr int kTokenBytes = 2 * kBlockK;  // of a token
  static constexpr int kTokenChunks = kTokenBytes / 16;
  static constexpr int kWeightBytes = kRows * kRowBytes;
  // Groups whose scales are in shared memory: those of a piece of each warp.
  static constexpr int kGroups = kWarps * kBlockK / kWindow;
  static constexpr int kPitch = kRows + 1;  // of a group's scales
  static constexpr int kScaleBytes = (kGroups * kPitch * 8 + 15) / 16 * 16;
  static constexpr int kSumPitch = kRows + 4;  // of a token's sums
  static constexpr bool kGates = false;
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
  float parts[C::kSubTiles][C::kOctets][4] = {};  // of the group, not yet scaled
  NanRows<typename C::Codes, C::kSubTiles> nans = {};

  /// `scales`: those of the group. `whole`: its zero points are subtracted from the codes.
  __device__ __forceinline__ void Multiply(const char* stage, int window, int lane,
                                           const int (&token)[C::kOctets], const float2* scales,
                                           bool whole) {
    using T = typename C::T;
    constexpr int kSteps = C::kWide ? 2 : 1;
    std::uint32_t b[C::kOctets][2 * kSteps];
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      LoadTokens<C>(stage + C::kWeightBytes, window, token[t], lane, b[t]);
    }
    const int r = lane / 4;
#pragma unroll
    for (int i = 0; i < C::kSubTiles; ++i) {
      const char* const row = stage + (16 * i + r) * C::kRowBytes;
      const std::uint32_t upper = LoadWord<C>(row, r, window, lane);
      const std::uint32_t lower = LoadWord<C>(row + 8 * C::kRowBytes, r, window, lane);
      nans.Look(i, upper, lower);
      std::uint32_t zeros[2] = {HalfConstants<T>::kMagic, HalfConstants<T>::kMagic};
      if (C::Codes::kZeros && whole) {
        zeros[0] = __float_as_uint(scales[16 * i + r].y);
        zeros[1] = __float_as_uint(scales[16 * i + 8 + r].y);
      }
      MultiplyStep<0>(i, upper, lower, zeros, b);
      if constexpr (kSteps == 2) MultiplyStep<1>(i, upper, lower, zeros, b);
    }
  }

  template <int kStep, int kRegisters>
  __device__ __forceinline__ void MultiplyStep(int i, std::uint32_t upper, std::uint32_t lower,
                                               const std::uint32_t (&zeros)[2],
                                               const std::uint32_t (&b)[C::kOctets][kRegisters]) {
    using T = typename C::T;
    using Codes = typename C::Codes;
    const std::uint32_t a[4] = {Codes::template Pair<T, 2 * kStep>(upper, zeros[0]),
                                Codes::template Pair<T, 2 * kStep>(lower, zeros[1]),
                                Codes::template Pair<T, 2 * kStep + 1>(upper, zeros[0]),
                                Codes::template Pair<T, 2 * kStep + 1>(lower, zeros[1])};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      MultiplyAdd<T>(parts[i][t], a, b[t][2 * kStep], b[t][2 * kStep + 1]);
    }
  }

  /// A group or a stage ends: `scales` are those of its rows. Zero points that are not whole are
  /// multiplied by the sums of the tokens in windows [first, last], which ones find.
  __device__ __forceinline__ void Promote(const float2* scales, int lane, bool whole,
                                          const char* stage, int first, int last,
                                          const int (&token)[C::kOctets]) {
    if (C::Codes::kZeros && !whole) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        float tokens[4] = {};
#pragma unroll 1
        for (int window = first; window <= last; ++window) {
          AddTokens(stage, window, token[t], lane, tokens);
        }
#pragma unroll
        for (int i = 0; i < 4 * C::kSubTiles; ++i) {
          float& part = parts[i / 4][t][i % 4];
          const float zero = scales[16 * (i / 4) + 8 * (i % 4 / 2) + lane / 4].y;
          part = fmaf(-zero, tokens[i % 4], part);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < C::kSubTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = scales[16 * i + 8 * half + lane / 4].x;
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
          for (int j = 2 * half; j < 2 * half + 2; ++j) {
            sums[i][t][j] = fmaf(scale, parts[i][t][j], sums[i][t][j]);
            parts[i][t][j] = 0;
          }
        }
      }
    }
  }

  static __device__ __forceinline__ void AddTokens(const char* stage, int window, int token,
                                                   int lane, float (&tokens)[4]) {
    using T = typename C::T;
    constexpr std::uint32_t kOnes = HalfConstants<T>::kOnes;
    const std::uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
    std::uint32_t b[C::kWide ? 4 : 2];
    LoadTokens<C>(stage + C::kWeightBytes, window, token, lane, b);
#pragma unroll
    for (int s = 0; s < (C::kWide ? 2 : 1); ++s) {
      MultiplyAdd<T>(tokens, ones, b[2 * s], b[2 * s + 1]);
    }
  }
};

/// Scales and zero points of groups [first, first + kGroups) of the CTA's rows, on their way to
/// shared memory. A thread has kAll of them, of which it loads kCount at once.
template <class C>
struct StagedScales {
  static constexpr int kAll = C::kGroups * C::kRows / C::kThreads;
  static constexpr bool kZeros = C::Codes::kZeros;
  const CodeProductParams& p;
  int row0, first, groups;

  // Neighbouring threads read neighbouring scales.
  __device__ __forceinline__ int2 PlaceOf(int i) const {
    const int thread = static_cast<int>(threadIdx.x);
    constexpr int kRowStep = C::kThreads / C::kGroups, kGroupStep = C::kThreads / C::kRows;
    return p.scale_k_stride == 1
               ? make_int2(thread % C::kGroups, thread / C::kGroups + i * kRowStep)
               : make_int2(thread / C::kRows + i * kGroupStep, thread % C::kRows);
  }

  template <int kCount>
  __device__ __forceinline__ void Load(int begin, const void* from, DataType type,
                                       float (&to)[kCount]) const {
    const int2 place = PlaceOf(0), next = PlaceOf(1);
    const std::int64_t at =
        (row0 + place.y) * p.scale_row_stride + (first + place.x) * p.scale_k_stride;
    const std::int64_t step =
        (next.y - place.y) * p.scale_row_stride + (next.x - place.x) * p.scale_k_stride;
    const auto load = [&](auto of) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int2 own = PlaceOf(begin + i);
        const bool there = first + own.x < groups && row0 + own.y < p.n;
        std::int64_t index = at + (begin + i) * step;
        if constexpr (C::Codes::kType == DataType::kFloat8_e4m3) {
          index = (row0 + own.y) / p.group_rows * p.scale_row_stride +
                  (first + own.x) * p.scale_k_stride;
        }
        to[i] = there ? of(index) : 0.0f;
      }
    };
    if (type == DataType::kFloat16) {
      load([&](std::int64_t i) { return ToFloat(static_cast<const __half*>(from)[i]); });
    } else if (type == DataType::kBfloat16) {
      load([&](std::int64_t i) { return ToFloat(static_cast<const __nv_bfloat16*>(from)[i]); });
    } else if (type == DataType::kFloat32) {
      load([&](std::int64_t i) { return static_cast<const float*>(from)[i]; });
    } else {
      load([&](std::int64_t i) { return ScaleOf(from, type, i); });
    }
  }
  template <int kCount>
  __device__ __forceinline__ void LoadZeros(int begin, float (&to)[kCount]) const {
#pragma unroll
    for (float& zero : to) zero = 0;
    if (kZeros && p.zeros != nullptr) Load(begin, p.zeros, p.zero_type, to);
  }

  /// Whether one is not subtracted from codes.
  template <int kCount>
  static __device__ __forceinline__ int AreBroken(const float (&zeros)[kCount]) {
    bool broken = false;
    if constexpr (kZeros) {
#pragma unroll
      for (const float zero : zeros) broken |= !C::Codes::IsWhole(zero);
    }
    return broken ? 1 : 0;
  }

  /// `whole`: AreBroken is false in all threads.
  template <int kCount>
  __device__ __forceinline__ void Store(int begin, const float (&scales)[kCount],
                                        const float (&zeros)[kCount], bool whole,
                                        float2* to) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int2 place = PlaceOf(begin + i);
      float zero = zeros[i];
      if constexpr (kZeros) {
        const std::uint32_t pair = C::Codes::template ZeroPair<typename C::T>(zero);
        zero = whole ? __uint_as_float(pair) : zero;
      }
      to[place.x * C::kPitch + place.y] = make_float2(scales[i], zero);
    }
  }

  /// Between products, with few registers: true where the zero points are whole.
  __device__ __forceinline__ bool Restage(float2* to) const {
    constexpr int kMost = C::kOctets >= 4 ? 2 : 4, kCount = kAll < kMost ? kAll : kMost;
    bool whole = false;
    if constexpr (kZeros) {
      int broken = 0;
#pragma unroll 1
      for (int begin = 0; begin < kAll; begin += kCount) {
        float zeros[kCount];
        LoadZeros(begin, zeros);
        broken |= AreBroken(zeros);
      }
      whole = __syncthreads_or(broken) == 0;
    } else {
      __syncthreads();
    }
#pragma unroll 1
    for (int begin = 0; begin < kAll; begin += kCount) {
      float scales[kCount], zeros[kCount];
      Load(begin, p.scales, p.scale_type, scales);
      LoadZeros(begin, zeros);
      Store(begin, scales, zeros, whole, to);
    }
    __syncthreads();
    return whole;
  }
};

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

  // What no kernel writes may come before the wait, the scales first: they are used first.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  int first_group = begin * C::kBlockK / p.group;
  bool whole;  // the zero points that are in shared memory
  {
    const StagedScales<C> staged{p, row0, first_group, groups};
    float own_scales[StagedScales<C>::kAll], own_zeros[StagedScales<C>::kAll];
    staged.Load(0, p.scales, p.scale_type, own_scales);
    staged.LoadZeros(0, own_zeros);
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
    whole = C::Codes::kZeros && __syncthreads_or(staged.AreBroken(own_zeros)) == 0;
    staged.Store(0, own_scales, own_zeros, whole, scales);
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
      whole = StagedScales<C>{p, row0, first_group, groups}.Restage(scales);
    }
    AwaitCopies<C::kStages - 1>();
    __syncwarp();
    if (i < own) {
      const int k0 = block_k(i);
      const char* const memory = ring.Stage(stage);
      int group = k0 / p.group, in_group = k0 - group * p.group, first_window = 0;
#pragma unroll C::kUnrolled
      for (int window = 0; window < C::kWindows; ++window) {
        // What lies beyond K is 0.
        const float2* const of_group = scales + (min(group, groups - 1) - first_group) * C::kPitch;
        sums.Multiply(memory, window, lane, token, of_group, whole);
        in_group += C::kWindow;
        if (window == C::kWindows - 1 || in_group == p.group) {
          sums.Promote(of_group, lane, whole, memory, first_window, window, token);
          first_window = window + 1;
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
  sums.nans.Spoil(sums.sums);
  FinishCodes<C>(p, sums.sums, row0, token0, tokens, split,
                 reinterpret_cast<float*>(shared + C::kScaleBytes), C::kTokens * C::kSumPitch);
}

/// `name`: the codes, at the beginning of the id. `most`: tokens that it is offered.
template <class C>
CodeProductKernel MakeCodeProduct(const char* name, int most, int registers) {
  return {.id = std::string(name) + HalfConstants<typename C::T>::kName + std::to_string(C::kRows) +
                "x" + std::to_string(C::kTokens) + "x" + std::to_string(C::kStages),
          .function = &CodeProductKernelOf<C>,
          .codes = C::Codes::kType,
          .x = HalfConstants<typename C::T>::kType,
          .group_step = C::kWindow,
          .rows = C::kRows,
          .tokens = C::kTokens,
          .most = most,
          .block_k = C::kBlockK,
          .stages = C::kStages,
          .ctas = C::kCtas,
          .streams = false,
          .registers = registers,
          .stage_bytes = C::kWeightBytes,
          .token_bytes = C::kTokenBytes,
          .scale_bytes = C::kScaleBytes,
          .sum_bytes = C::kSumBytes};
}

/// The kernels for tokens of T; `registers` of each, in their order.
template <class T, class Codes, bool kWide>
void AddCodeProducts(const char* name, const std::array<int, 7>& registers,
                     std::vector<CodeProductKernel>& to) {
  const auto add = [&]<class C>(C, int most) {
    to.push_back(MakeCodeProduct<C>(name, most, registers[to.size() % registers.size()]));
  };
  add(CodeConfig<T, Codes, kWide, 1, 1, 8, 2>{}, 4);
  add(CodeConfig<T, Codes, kWide, 2, 1, 4, 2>{}, 8);
  add(CodeConfig<T, Codes, kWide, 4, 1, 2, 2>{}, 8);
  add(CodeConfig<T, Codes, kWide, 4, 1, 4, 1>{}, 8);
  add(CodeConfig<T, Codes, kWide, 4, 2, 2, 1>{}, kAnyTokens);
  add(CodeConfig<T, Codes, kWide, 4, 2, 3, 1>{}, 16);
  add(CodeConfig<T, Codes, kWide, 4, 4, 2, 1>{}, kAnyTokens);
}

/// The kernels of a type of codes.
template <class Codes, bool kWide>
std::vector<CodeProductKernel> CodeProductsOf(const char* name,
                                              const std::array<int, 7>& bf16_registers,
                                              const std::array<int, 7>& f16_registers) {
  std::vector<CodeProductKernel> kernels;
  AddCodeProducts<__nv_bfloat16, Codes, kWide>(name, bf16_registers, kernels);
  AddCodeProducts<__half, Codes, kWide>(name, f16_registers, kernels);
  return kernels;
}

}  // namespace culet::cuda_ops
