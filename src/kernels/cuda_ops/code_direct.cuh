// Products by codes for few tokens, whose weights go from memory straight to registers. A CTA
// computes kRows rows of the weight by up to kTokens tokens. Its warps share these rows and take
// blocks of K in turn; a lane reads of each token the elements that it reads of its rows. So
// nothing passes through shared memory but the sums of the warps, and a weight takes little more
// than the instructions that make a number of its code.
#pragma once

#include "kernels/cuda_ops/code_finish.cuh"
#include "kernels/cuda_ops/code_lanes.cuh"
#include "kernels/cuda_ops/code_nans.cuh"
#include "kernels/cuda_ops/overlap.cuh"

namespace culet::cuda_ops {

/// `kAhead`: blocks whose codes are on their way while one is multiplied, and itself.
template <class T_, class Codes_, CodeScales kScales_, int kSubTiles_, int kOctets_, int kAhead_,
          int kCtas_>
struct DirectConfig {
  using T = T_;
  using Codes = Codes_;
  static constexpr CodeScales kScales = kScales_;
  static constexpr int kSubTiles = kSubTiles_;  // of 16 rows
  static constexpr int kOctets = kOctets_;      // of 8 tokens
  static constexpr int kAhead = kAhead_;
  static constexpr int kCtas = kCtas_;
  static constexpr int kRows = 16 * kSubTiles, kTokens = 8 * kOctets, kEights = kRows / 8;
  static constexpr int kWarps = kCodeProductWarps, kThreads = 32 * kWarps;
  static constexpr int kLaneK = 128 / Codes::kBits, kBlockK = 4 * kLaneK;
  static constexpr int kWordK = kLaneK / 4,
                       kWordSteps = kWordK / 4;  // steps of 16 elements of K
  static constexpr int kPieces = kLaneK / 8;     // of 8 elements of a token
  static constexpr int kSumPitch = kRows + 4;    // of a token's sums
  static constexpr bool kGates = true;
  static_assert(kScales != CodeScales::kPowers || Codes::kType == DataType::kFloat4_e2m1);
  static_assert(kScales != CodeScales::kBlocks || Codes::kZeros);
};

/// One warp's blocks of K: `count` from `first` on, every kWarps-th.
template <class C>
class DirectWarp : private CodeLanes<C> {
 public:
  float sums[C::kSubTiles][C::kOctets][4] = {};

  __device__ __forceinline__ DirectWarp(const CodeProductParams& p, int row0, int token0,
                                        int tokens, int first, int count)
      : Lanes(p, row0), first_(first), count_(count) {
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
      // Those beyond the last are the last again: no one reads their sums.
      const int token = min(8 * t + this->lane_ / 4, tokens - 1);
      x_from_[t] = static_cast<const char*>(p.x) + (token0 + token) * p.x_stride * 2;
    }
  }

  /// What no kernel writes: the first codes and their scales.
  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int i = 0; i < C::kAhead; ++i) LoadCodes(i, words_[i]);
    LoadScales(0);
  }

  __device__ __forceinline__ void Multiply() {
    if (count_ > 0) {
      const int at = TokensAt(0);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int j = 0; j < C::kPieces; ++j) LoadPiece(t, j, at);
      }
    }
#pragma unroll 1
    for (int i = 0; i < count_; i += C::kAhead) {
#pragma unroll
      for (int j = 0; j < C::kAhead; ++j) {
        if (i + j < count_) MultiplyBlock(i + j, words_[j]);
      }
    }
    if constexpr (C::kScales == CodeScales::kBlocks) {
      if (__any_sync(kAllLanes, Finite() ? 0 : 1) != 0) MultiplyWithoutBias();
    }
    this->ScaleRows(sums);
    nans_.Spoil(sums);
  }

 private:
  using Lanes = CodeLanes<C>;
  using typename Lanes::Codes;
  using typename Lanes::Sums;
  using typename Lanes::T;
  using typename Lanes::Tokens;
  using typename Lanes::Words;

  __device__ __forceinline__ int BlockOf(int i) const { return first_ + i * C::kWarps; }
  __device__ __forceinline__ bool Beyond(int i) const {
    return this->PlaceOf(BlockOf(i)) >= this->p_.k;
  }
  // Bytes of a token to the lane's elements.
  __device__ __forceinline__ int TokensAt(int i) const {
    return this->Within(this->PlaceOf(BlockOf(i))) * 2;
  }
  __device__ __forceinline__ void LoadPiece(int t, int j, int at) {
    x_[t][j] = *reinterpret_cast<const uint4*>(x_from_[t] + at + 16 * j);
  }
  __device__ __forceinline__ void LoadCodes(int i, Words& to) const {
    if (i < count_) Lanes::LoadCodes(BlockOf(i), to);
  }
  __device__ __forceinline__ void LoadScales(int i) {
    if (i < count_) Lanes::LoadScales(BlockOf(i));
  }

  __device__ __forceinline__ void MultiplyBlock(int i, Words& words) {
    constexpr bool kBlocks = C::kScales == CodeScales::kBlocks;
    float parts[C::kSubTiles][C::kOctets][4] = {}, ones[C::kOctets][4] = {};
    std::uint32_t factors[C::kEights] = {};  // of E2M1
    bool large = false;
    if constexpr (C::kScales == CodeScales::kPowers) {
#pragma unroll
      for (int j = 0; j < C::kEights; ++j) {
        large |= this->scale_[j] > Lanes::kMostPower;
        factors[j] = Lanes::FactorOf(this->scale_[j]);
      }
      LoadScales(i + 1);
    }
    if ((BlockOf(i) + 1) * C::kBlockK > this->p_.k && Beyond(i)) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (uint4& x : x_[t]) x = make_uint4(0, 0, 0, 0);
      }
    }
    const bool more = i + 1 < count_;
    const int next = TokensAt(i + 1);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      Tokens b;
      constexpr int kPieceWords = Lanes::kPieceWords;
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        Lanes::PairTokens(x_[t][word / kPieceWords], word, b[t]);
        if ((word + 1) % kPieceWords == 0 && more) LoadPiece(t, word / kPieceWords, next);
      }
      if constexpr (kBlocks) Lanes::MultiplyOnes(ones, b);
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s) {
        const std::uint32_t upper = Lanes::WordOf(words[2 * s], word);
        const std::uint32_t lower = Lanes::WordOf(words[2 * s + 1], word);
        nans_.Look(s, upper, lower);
        Lanes::MultiplyWord(kBlocks ? parts[s] : sums[s], upper, lower, factors[2 * s],
                            factors[2 * s + 1], b);
      }
    }
    if constexpr (C::kScales == CodeScales::kPowers) {
      if (__any_sync(kAllLanes, large ? 1 : 0) != 0) AddLarge(i);
    }
    LoadCodes(i + C::kAhead, words);
    if constexpr (kBlocks) {
      AddParts(parts, ones);
      LoadScales(i + 1);
    }
  }

  // The sums of a block have codes that are kBias too large, and so the zero point is: it is
  // multiplied by the sums of the tokens, which ones have found.
  __device__ __forceinline__ void AddParts(const float (&parts)[C::kSubTiles][C::kOctets][4],
                                           const float (&ones)[C::kOctets][4]) {
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) {
      const float scale = this->Scale(j), zero = Codes::template kBias<T> + this->Zero(j);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& sum = sums[j / 2][t][j % 2 * 2 + i];
          sum = fmaf(scale, fmaf(-zero, ones[t][i], parts[j / 2][t][j % 2 * 2 + i]), sum);
        }
      }
    }
  }

  __device__ __forceinline__ bool Finite() const {
    bool finite = true;
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (const float sum : sums[s][t]) finite &= fabsf(sum) < __uint_as_float(0x7F800000u);
      }
    }
    return finite;
  }

  // Everything once more, from codes less their zero points. So an infinite activation has the sign
  // of the weight, and large ones do not overflow for the bias alone. Zero points that are no whole
  // numbers are multiplied by the sums of the tokens here, too.
  __device__ __forceinline__ void MultiplyWithoutBias() {
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
      Lanes::Clear(sums[s]);
#pragma unroll 1
      for (int i = 0; i < count_; ++i) {
        float scale[2], rest[2];
        std::uint32_t zeros[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t at =
              (this->scale_at_[2 * s + j] + this->ScaleOffset(BlockOf(i))) / Lanes::kScaleBytes;
          const CodeProductParams& p = this->p_;
          const float zero =
              p.zeros != nullptr ? ScaleOf(this->ScalesOf(p.zeros, j), p.zero_type, at) : 0.0f;
          const bool whole = Codes::IsWhole(zero);
          scale[j] = ScaleOf(this->ScalesOf(p.scales, j), p.scale_type, at);
          zeros[j] = Codes::template ZeroPair<T>(whole ? zero : 0.0f);
          rest[j] = whole ? 0.0f : zero;
        }
        float parts[C::kOctets][4] = {}, ones[C::kOctets][4] = {};
        MultiplyFromMemory(i, s, zeros, parts, ones);
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float part = parts[t][j];
            if (rest[j / 2] != 0.0f) part = fmaf(-rest[j / 2], ones[t][j], part);
            sums[s][t][j] = fmaf(scale[j / 2], part, sums[s][t][j]);
          }
        }
      }
    }
  }

  // Sub-tile `s` of block `i`, which is read again: what is seldom needed takes no registers.
  __device__ __forceinline__ void MultiplyFromMemory(int i, int s,
                                                     const std::uint32_t (&factors)[2], Sums& parts,
                                                     Sums& ones) const {
    const std::uint32_t* const upper = this->WordsOf(BlockOf(i), 2 * s);
    const std::uint32_t* const lower = this->WordsOf(BlockOf(i), 2 * s + 1);
#pragma unroll 1
    for (int word = 0; word < 4; ++word) {
      Tokens b;
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        uint4 x = *reinterpret_cast<const uint4*>(x_from_[t] + TokensAt(i) + 16 * word);
        if (Beyond(i)) x = make_uint4(0, 0, 0, 0);
        Lanes::PairTokens(x, word, b[t]);
      }
      if constexpr (C::kScales == CodeScales::kBlocks) Lanes::MultiplyOnes(ones, b);
      Lanes::template MultiplyWord<true>(parts, upper[word], lower[word], factors[0], factors[1],
                                         b);
    }
  }

  // Adds block `i` of the lanes whose scale is above kMostPower, or NaN: by factors 2^-126 as
  // large.
  __device__ __forceinline__ void AddLarge(int i) {
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
      std::uint32_t factors[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        factors[j] = Lanes::LargeFactorOf(*reinterpret_cast<const std::uint8_t*>(
            this->ScalesOf(this->p_.scales, j) +
            (this->scale_at_[2 * s + j] + this->ScaleOffset(BlockOf(i)))));
      }
      float parts[C::kOctets][4] = {}, ones[C::kOctets][4];
      MultiplyFromMemory(i, s, factors, parts, ones);
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[s][t][j] += 0x1p126f * parts[t][j];
      }
    }
  }

  const int first_, count_;
  const char* x_from_[C::kOctets];
  Words words_[C::kAhead] = {};
  uint4 x_[C::kOctets][C::kPieces] = {};
  NanRows<Codes, C::kSubTiles> nans_ = {};
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtas)
    CodeDirectKernelOf(const __grid_constant__ CodeProductParams p) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row0 = static_cast<int>(blockIdx.x) * C::kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int token0 = static_cast<int>(blockIdx.z) * C::kTokens;
  const int tokens = min(C::kTokens, p.m - token0);
  // Blocks of K of a part, and of a warp, differ by one at most.
  const int blocks = (p.k - 1) / C::kBlockK + 1;
  const int begin = blocks * split / p.splits, end = blocks * (split + 1) / p.splits;
  const int first = begin + warp;
  const int count = (end - first + C::kWarps - 1) / C::kWarps;  // 0, or less, behind the end

  // What no kernel writes may come before the wait.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  DirectWarp<C> own(p, row0, token0, tokens, first, count);
  own.Begin();
  if (p.early) AwaitPrevious();
  if (!p.chain) LetNextBegin();
  own.Multiply();
  FinishCodes<C>(p, own.sums, row0, token0, tokens, split,
                 reinterpret_cast<float*>(DynamicShared()), C::kTokens * C::kSumPitch);
}

template <class C>
CodeProductKernel MakeCodeDirect(const char* name, int registers) {
  CodeProductKernel kernel =
      MakeLanesKernel<C>(name, "r", &CodeDirectKernelOf<C>, C::kAhead, registers);
  kernel.sum_bytes = C::kWarps * C::kTokens * C::kSumPitch * 4;
  return kernel;
}

}  // namespace culet::cuda_ops
