// Products by codes for a tile of tokens. A CTA computes kRows rows of the weight by up to kTokens
// tokens. A warp has rows of its own, whose codes go from memory straight to registers and become
// numbers once for all tokens. The tokens lie in a ring in shared memory, which all warps read; two
// groups of warps share a stage along K.
#pragma once

#include "kernels/cuda_ops/code_finish.cuh"
#include "kernels/cuda_ops/code_lanes.cuh"
#include "kernels/cuda_ops/code_nans.cuh"
#include "kernels/cuda_ops/overlap.cuh"

namespace culet::cuda_ops {

/// `kSubTiles`: of 16 rows, of a warp.
template <class T_, class Codes_, CodeScales kScales_, int kSubTiles_, int kOctets_, int kStages_>
struct TileConfig {
  using T = T_;
  using Codes = Codes_;
  static constexpr CodeScales kScales = kScales_;
  static constexpr int kSubTiles = kSubTiles_, kEights = 2 * kSubTiles;
  static constexpr int kOctets = kOctets_, kTokens = 8 * kOctets;
  static constexpr int kStages = kStages_;
  static constexpr int kWarps = kCodeProductWarps, kThreads = 32 * kWarps, kCtas = 1;
  static constexpr int kSlices = 2, kRowWarps = kWarps / kSlices;
  static constexpr int kWarpRows = 16 * kSubTiles, kRows = kRowWarps * kWarpRows;
  static constexpr int kLaneK = 128 / Codes::kBits, kBlockK = 4 * kLaneK;
  static constexpr int kWordK = kLaneK / 4, kWordSteps = kWordK / 4;  // steps of 16 elements of K
  static constexpr int kStageK = kSlices * kBlockK, kTokenBytes = 2 * kStageK;
  static constexpr int kPieces = kTokenBytes / 16;  // of a token, that a lane copies
  static constexpr int kStageBytes = kTokens * kTokenBytes;
  static constexpr int kAhead = 2;  // blocks whose codes are on their way, or multiplied
  static constexpr int kSumPitch = kRows + 4, kSliceFloats = kTokens * kSumPitch;
  static constexpr bool kGates = true;
  static_assert(kTokens * kPieces % kThreads == 0);
};

template <class C>
class TileWarp : private CodeLanes<C> {
 public:
  float sums[C::kSubTiles][C::kOctets][4] = {};

  /// Blocks of K [begin, end) of the CTA, of which the warp takes those of its slice.
  __device__ __forceinline__ TileWarp(const CodeProductParams& p, char* ring, int row0, int token0,
                                      int tokens, int begin, int end)
      : Lanes(p, row0 + static_cast<int>(threadIdx.x) / 32 % C::kRowWarps * C::kWarpRows),
        slice_(static_cast<int>(threadIdx.x) / 32 / C::kRowWarps),
        begin_(begin),
        end_(end),
        token0_(token0),
        tokens_(tokens),
        ring_(ring) {}

  /// What no kernel writes: the first codes and their scales.
  __device__ __forceinline__ void Begin() {
#pragma unroll
    for (int i = 0; i < C::kAhead; ++i) LoadCodes(i, words_[i]);
    if (BlockOf(0) < end_) this->LoadScales(BlockOf(0));
  }

  __device__ __forceinline__ void Multiply() {
    const int stages = (end_ - begin_ + C::kSlices - 1) / C::kSlices;
#pragma unroll 1
    for (int i = 0; i < C::kStages - 1; ++i) CopyTokens(i, i, stages);
    int slot = 0;
#pragma unroll 1
    for (int i = 0; i < stages; i += C::kAhead) {
#pragma unroll
      for (int j = 0; j < C::kAhead; ++j) {
        if (i + j < stages) {
          AwaitCopies<C::kStages - 2>();
          __syncthreads();  // and all have read the stage before
          const int last = slot == 0 ? C::kStages - 1 : slot - 1;
          CopyTokens(i + j + C::kStages - 1, last, stages);
          if (BlockOf(i + j) < end_) MultiplyBlock(i + j, slot, words_[j]);
          slot = slot + 1 == C::kStages ? 0 : slot + 1;
        }
      }
    }
    AwaitCopies<0>();
    this->ScaleRows(sums);
    nans_.Spoil(sums);
  }

 private:
  using Lanes = CodeLanes<C>;
  using typename Lanes::Codes;
  using typename Lanes::Fragments;
  using typename Lanes::T;
  using typename Lanes::Words;
  static constexpr bool kBlocks = C::kScales == CodeScales::kBlocks;
  static constexpr bool kPowers = C::kScales == CodeScales::kPowers;
  static constexpr int kTogether = 4;  // octets

  __device__ __forceinline__ int BlockOf(int i) const { return begin_ + i * C::kSlices + slice_; }
  __device__ __forceinline__ void LoadCodes(int i, Words& to) const {
    if (BlockOf(i) < end_) Lanes::LoadCodes(BlockOf(i), to);
  }

  // Where a piece of a token lies: those that eight lanes read at once are on different banks.
  static __device__ __forceinline__ int PlaceOfPiece(int token, int piece) {
    if constexpr (C::kWordSteps == 2) return piece ^ (piece >> 3 & 1) ^ (token & 1) << 1;
    return piece ^ (token & 1);
  }

  // Stage `i` of the tokens. What lies beyond them or beyond K is 0.
  __device__ __forceinline__ void CopyTokens(int i, int slot, int stages) {
    if (i < stages) {
      const std::uint32_t to =
          SharedAddress(ring_) + static_cast<std::uint32_t>(slot * C::kStageBytes);
      const int first = (begin_ + i * C::kSlices) * C::kBlockK;
#pragma unroll
      for (int j = 0; j < C::kTokens * C::kPieces / C::kThreads; ++j) {
        const int index = static_cast<int>(threadIdx.x) + j * C::kThreads;
        const int token = index / C::kPieces, piece = index % C::kPieces;
        const int k = first + 8 * piece;
        const bool there = token < tokens_ && k < this->p_.k;
        const std::int64_t at = there ? (token0_ + token) * this->p_.x_stride + k : 0;
        const int place = token * C::kTokenBytes + PlaceOfPiece(token, piece) * 16;
        CopyAsync16(to + static_cast<std::uint32_t>(place),
                    static_cast<const char*>(this->p_.x) + 2 * at, there ? 16 : 0);
      }
    }
    CommitCopies();
  }

  // The lane's elements of a word's tokens in octet `t`, in pairs as the codes'.
  __device__ __forceinline__ void LoadTokens(const char* stage, int t, int word,
                                             std::uint32_t (&b)[2 * C::kWordSteps]) const {
    constexpr int kLanePieces = C::kLaneK / 8;
    const int token = 8 * t + this->lane_ / 4;
    const int piece = (slice_ * 4 + this->lane_ % 4) * kLanePieces + word / Lanes::kPieceWords;
    const uint4 x = *reinterpret_cast<const uint4*>(stage + token * C::kTokenBytes +
                                                    PlaceOfPiece(token, piece) * 16);
    Lanes::PairTokens(x, word, b);
  }

  __device__ __forceinline__ void MultiplyBlock(int i, int slot, Words& words) {
    const char* const stage = ring_ + slot * C::kStageBytes;
    std::uint32_t factors[C::kEights] = {};  // zero points beside the magic number, or of E2M1
    bool usual = true;
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) {
      if constexpr (kBlocks) {
        usual &= Codes::IsWhole(this->Zero(j));
        factors[j] = Codes::template ZeroPair<T>(this->Zero(j));
      } else if constexpr (kPowers) {
        usual &= this->scale_[j] <= Lanes::kMostPower;
        factors[j] = Lanes::FactorOf(this->scale_[j]);
      }
    }
    usual = __all_sync(kAllLanes, usual ? 1 : 0) != 0;
    if (!kBlocks || usual) MultiplyUsual(stage, words, factors);
    if (!usual) MultiplyUnusual(BlockOf(i), stage);
    LoadCodes(i + C::kAhead, words);
    if (BlockOf(i + 1) < end_) this->LoadScales(BlockOf(i + 1));
  }

  __device__ __forceinline__ void MultiplyUsual(const char* stage, const Words& words,
                                                const std::uint32_t (&factors)[C::kEights]) {
    float parts[C::kSubTiles][C::kOctets][4] = {};
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      Fragments a[C::kSubTiles];
#pragma unroll
      for (int s = 0; s < C::kSubTiles; ++s) {
        const std::uint32_t upper = Lanes::WordOf(words[2 * s], word);
        const std::uint32_t lower = Lanes::WordOf(words[2 * s + 1], word);
        nans_.Look(s, upper, lower);
        Lanes::template MakeFragments<true>(upper, lower, factors[2 * s], factors[2 * s + 1], a[s]);
      }
      // Sums that follow each other are different ones, since each waits for its last.
#pragma unroll
      for (int first = 0; first < C::kOctets; first += kTogether) {
        std::uint32_t b[kTogether][2 * C::kWordSteps];
#pragma unroll
        for (int t = 0; t < kTogether; ++t) LoadTokens(stage, first + t, word, b[t]);
#pragma unroll
        for (int step = 0; step < C::kWordSteps; ++step) {
#pragma unroll
          for (int t = 0; t < kTogether; ++t) {
#pragma unroll
            for (int s = 0; s < C::kSubTiles; ++s) {
              MultiplyAdd<T>(kBlocks ? parts[s][first + t] : sums[s][first + t], a[s][step],
                             b[t][2 * step], b[t][2 * step + 1]);
            }
          }
        }
      }
    }
    if constexpr (kBlocks) {
#pragma unroll
      for (int j = 0; j < C::kEights; ++j) {
        const float scale = this->Scale(j);
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
          for (int n = j % 2 * 2; n < j % 2 * 2 + 2; ++n) {
            sums[j / 2][t][n] = fmaf(scale, parts[j / 2][t][n], sums[j / 2][t][n]);
          }
        }
      }
    }
  }

  // Zero points that are no whole numbers are multiplied by the sums of the tokens. Scales above
  // kMostPower, and NaN, have factors 2^-126 as large. The codes are read again: what is seldom
  // needed takes no registers.
  __device__ __forceinline__ void MultiplyUnusual(int block, const char* stage) {
    const std::uint32_t one = Lanes::Half::kOnes, ones[4] = {one, one, one, one};
#pragma unroll
    for (int s = 0; s < C::kSubTiles; ++s) {
      const std::uint32_t* const upper = this->WordsOf(block, 2 * s);
      const std::uint32_t* const lower = this->WordsOf(block, 2 * s + 1);
      std::uint32_t factors[2] = {Lanes::Half::kMagic, Lanes::Half::kMagic};
      if constexpr (kPowers) {
        factors[0] = Lanes::LargeFactorOf(this->scale_[2 * s]);
        factors[1] = Lanes::LargeFactorOf(this->scale_[2 * s + 1]);
      }
#pragma unroll 1
      for (int t = 0; t < C::kOctets; ++t) {
        float part[4] = {}, tokens[4] = {};
#pragma unroll 1
        for (int word = 0; word < 4; ++word) {
          std::uint32_t b[2 * C::kWordSteps];
          LoadTokens(stage, t, word, b);
          Fragments a;
          Lanes::template MakeFragments<true>(upper[word], lower[word], factors[0], factors[1], a);
#pragma unroll
          for (int step = 0; step < C::kWordSteps; ++step) {
            MultiplyAdd<T>(part, a[step], b[2 * step], b[2 * step + 1]);
            if constexpr (kBlocks) MultiplyAdd<T>(tokens, ones, b[2 * step], b[2 * step + 1]);
          }
        }
#pragma unroll
        for (int own = 0; own < C::kOctets; ++own) {  // sums are registers, which have no index
          if (own != t) continue;
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            float& sum = sums[s][own][n];
            if constexpr (kBlocks) {
              const int j = 2 * s + n / 2;
              sum = fmaf(this->Scale(j), fmaf(-this->Zero(j), tokens[n], part[n]), sum);
            } else {
              sum += 0x1p126f * part[n];
            }
          }
        }
      }
    }
  }

  const int slice_, begin_, end_, token0_, tokens_;
  char* const ring_;
  Words words_[C::kAhead] = {};
  NanRows<Codes, C::kSubTiles> nans_ = {};
};

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtas)
    CodeTileKernelOf(const __grid_constant__ CodeProductParams p) {
  char* const shared = DynamicShared();
  const int row0 = static_cast<int>(blockIdx.x) * C::kRows;
  const int split = static_cast<int>(blockIdx.y);
  const int token0 = static_cast<int>(blockIdx.z) * C::kTokens;
  const int tokens = min(C::kTokens, p.m - token0);
  const int blocks = (p.k - 1) / C::kBlockK + 1;
  const int begin = blocks * split / p.splits, end = blocks * (split + 1) / p.splits;

  // What no kernel writes may come before the wait.
  if (p.chain) LetNextBegin();
  if (!p.early) AwaitPrevious();
  TileWarp<C> own(p, shared, row0, token0, tokens, begin, end);
  own.Begin();
  if (p.early) AwaitPrevious();
  if (!p.chain) LetNextBegin();
  own.Multiply();
  __syncthreads();  // sums take the ring's place
  const int warp = static_cast<int>(threadIdx.x) / 32;
  FinishSlices<C, C::kSlices>(p, own.sums, row0, token0, tokens, split,
                              reinterpret_cast<float*>(shared), C::kSliceFloats,
                              warp / C::kRowWarps, warp % C::kRowWarps * C::kWarpRows);
}

template <class C>
CodeProductKernel MakeCodeTile(const char* name, int registers) {
  CodeProductKernel kernel =
      MakeLanesKernel<C>(name, "t", &CodeTileKernelOf<C>, C::kStages, registers);
  kernel.most = kAnyTokens;
  kernel.stage_bytes = C::kStageBytes;
  kernel.sum_bytes = C::kSlices * C::kSliceFloats * 4;
  kernel.rings = 1;
  kernel.tiles = true;
  return kernel;
}

}  // namespace culet::cuda_ops
