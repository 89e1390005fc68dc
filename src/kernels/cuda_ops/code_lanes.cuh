// How the four lanes that share a row of a weight of codes read it, without shared memory: each
// takes 16 bytes of a block, which are kLaneK neighbouring codes. Tensor cores do not ask which
// elements of K a step holds, as long as both operands have the same ones.
#pragma once

#include <string>

#include "kernels/cuda_ops/code_numbers.cuh"
#include "kernels/cuda_ops/code_product.h"
#include "kernels/cuda_ops/code_rows.cuh"
#include "kernels/cuda_ops/mma.cuh"

namespace culet::cuda_ops {

/// How scales lie, and so where they are multiplied.
enum class CodeScales {
  kBlocks,  ///< float16 or bfloat16 for a multiple of a block: by the sums of
            ///< each block
  kPowers,  ///< UE8M0 for a multiple of what a lane reads: by the codes, which
            ///< stays exact
  kRows,    ///< float32, float16 or bfloat16 for a row: by the sum of the row
};

/// 16 bytes that are read once.
__device__ __forceinline__ uint4 LoadOnce(const char* from) {
#ifdef __CUDACC__
  uint4 to;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "l"(from));
  return to;
#else
  return *reinterpret_cast<const uint4*>(from);
#endif
}

/// A lane's part of the rows that its warp multiplies, from row `row0` on. C says the types (T,
/// Codes), where scales lie (kScales), the warp's rows by 16 and by 8 (kSubTiles, kEights), and
/// what a lane reads of a block (kLaneK elements, kWordSteps steps of the tensor cores a word).
template <class C>
class CodeLanes {
 protected:
  using T = typename C::T;
  using Codes = typename C::Codes;
  using Half = HalfConstants<T>;
  using Words = uint4[C::kEights];
  using Tokens = std::uint32_t[C::kOctets][2 * C::kWordSteps];
  using Sums = float[C::kOctets][4];
  static constexpr std::uint32_t kScaleBytes = C::kScales == CodeScales::kBlocks ? 2 : 1;
  // Elements that may have a scale of their own, at least.
  static constexpr int kScaleK = C::kScales == CodeScales::kPowers ? C::kLaneK : C::kBlockK;
  static constexpr int kPieceWords = 8 / C::kWordK;  // of 8 elements of a token

  __device__ __forceinline__ CodeLanes(const CodeProductParams& p, int row0)
      : p_(p), lane_(static_cast<int>(threadIdx.x) % 32), rows_(p, row0) {
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) {
      const auto row = static_cast<std::uint32_t>(rows_.Of(j, lane_ / 4) - rows_.Of(j % 2, 0));
      codes_at_[j] = row * static_cast<std::uint32_t>(p.code_stride);
      scale_at_[j] = row * static_cast<std::uint32_t>(p.scale_row_stride) * kScaleBytes;
    }
    scales_of_part_ =
        p.group >= p.k ? 0.0f : static_cast<float>(kScaleK) / static_cast<float>(p.group);
  }

  // The lane's elements of a block begin here. The last block may end within K; what the lane would
  // read behind that is read elsewhere and multiplied by 0.
  __device__ __forceinline__ int PlaceOf(int block) const {
    return block * C::kBlockK + lane_ % 4 * C::kLaneK;
  }
  __device__ __forceinline__ int Within(int k) const { return k < p_.k ? k : 0; }

  __device__ __forceinline__ void LoadCodes(int block, Words& to) const {
    const auto at = static_cast<std::uint32_t>(Within(PlaceOf(block))) * Codes::kBits / 8;
#pragma unroll
    for (int j = 0; j < C::kEights; ++j) to[j] = LoadOnce(CodesOf(j) + (codes_at_[j] + at));
  }
  // Of rows r and r + 8 of a sub-tile, once more.
  __device__ __forceinline__ const std::uint32_t* WordsOf(int block, int eight) const {
    const auto at = static_cast<std::uint32_t>(Within(PlaceOf(block))) * Codes::kBits / 8;
    return reinterpret_cast<const std::uint32_t*>(CodesOf(eight) + (codes_at_[eight] + at));
  }

  // Eights of rows begin at one of two places, which are the same for all lanes; what follows is
  // less than 4 GiB.
  __device__ __forceinline__ const char* CodesOf(int eight) const {
    return static_cast<const char*>(p_.codes) + rows_.Of(eight % 2, 0) * p_.code_stride;
  }
  __device__ __forceinline__ const char* ScalesOf(const void* scales, int eight) const {
    return static_cast<const char*>(scales) +
           rows_.Of(eight % 2, 0) * p_.scale_row_stride * kScaleBytes;
  }

  // Bytes from a row's first scale to that of the lane's elements of a block.
  __device__ __forceinline__ std::uint32_t ScaleOffset(int block) const {
    const int part = C::kScales == CodeScales::kPowers ? Within(PlaceOf(block)) / C::kLaneK : block;
    const auto column =
        static_cast<std::uint32_t>((static_cast<float>(part) + 0.5f) * scales_of_part_);
    return column * static_cast<std::uint32_t>(p_.scale_k_stride) * kScaleBytes;
  }

  // As they lie in memory.
  __device__ __forceinline__ void LoadScales(int block) {
    if constexpr (C::kScales != CodeScales::kRows) {
      const std::uint32_t along_k = ScaleOffset(block);
#pragma unroll
      for (int j = 0; j < C::kEights; ++j) {
        const char* const from = ScalesOf(p_.scales, j) + (scale_at_[j] + along_k);
        if constexpr (C::kScales == CodeScales::kPowers) {
          scale_[j] = *reinterpret_cast<const std::uint8_t*>(from);
        } else {
          scale_[j] = *reinterpret_cast<const std::uint16_t*>(from);
          if (p_.zeros != nullptr) {
            zero_[j] = *reinterpret_cast<const std::uint16_t*>(ScalesOf(p_.zeros, j) +
                                                               (scale_at_[j] + along_k));
          }
        }
      }
    }
  }
  // Of kBlocks.
  __device__ __forceinline__ float Scale(int eight) const {
    const bool halves = p_.scale_type == DataType::kFloat16;
    return ScaleOfBits(scale_[eight], halves ? DataType::kFloat16 : DataType::kBfloat16, 0);
  }
  __device__ __forceinline__ float Zero(int eight) const {
    return __uint_as_float(zero_[eight] << 16);
  }
  // Of kRows: the scales, which are those of whole sums.
  __device__ __forceinline__ void ScaleRows(float (&sums)[C::kSubTiles][C::kOctets][4]) const {
    if constexpr (C::kScales == CodeScales::kRows) {
#pragma unroll
      for (int j = 0; j < C::kEights; ++j) {
        const float scale =
            ScaleOf(p_.scales, p_.scale_type, rows_.Of(j, lane_ / 4) * p_.scale_row_stride);
#pragma unroll
        for (int t = 0; t < C::kOctets; ++t) {
          sums[j / 2][t][j % 2 * 2] *= scale, sums[j / 2][t][j % 2 * 2 + 1] *= scale;
        }
      }
    }
  }

  // 2^126 of a code's places by the scale: 0 where that is above what bfloat16 holds.
  static constexpr std::uint32_t kMostPower = 128;
  static __device__ __forceinline__ std::uint32_t FactorOf(std::uint32_t power) {
    return power > kMostPower ? 0 : Twice(power + 126);
  }
  // What is left: 2^-126 of the factor, or NaN.
  static __device__ __forceinline__ std::uint32_t LargeFactorOf(std::uint32_t power) {
    constexpr std::uint32_t kNotANumber = 0xFF;
    return power == kNotANumber ? 0x7FC07FC0u : power > kMostPower ? Twice(power) : 0;
  }

  static __device__ __forceinline__ std::uint32_t WordOf(const uint4& words, int word) {
    return word == 0 ? words.x : word == 1 ? words.y : word == 2 ? words.z : words.w;
  }

  // Elements of a token in the pairs that Codes make of a word: those of 4 bits are 4 apart, of 8
  // bits 2.
  static __device__ __forceinline__ void PairTokens(const uint4& x, int word,
                                                    std::uint32_t (&b)[2 * C::kWordSteps]) {
    if constexpr (C::kWordSteps == 2) {
      b[0] = __byte_perm(x.x, x.z, 0x5410), b[1] = __byte_perm(x.x, x.z, 0x7632);
      b[2] = __byte_perm(x.y, x.w, 0x5410), b[3] = __byte_perm(x.y, x.w, 0x7632);
    } else {
      const std::uint32_t low = word % 2 == 0 ? x.x : x.z, high = word % 2 == 0 ? x.y : x.w;
      b[0] = __byte_perm(low, high, 0x5410), b[1] = __byte_perm(low, high, 0x7632);
    }
  }

  // kZeros: `factor` is the zero point of codes that have one, beside the magic number.
  template <bool kZeros, int kFirst>
  static __device__ __forceinline__ std::uint32_t PairOfCodes(std::uint32_t word,
                                                              std::uint32_t factor) {
    if constexpr (C::kScales == CodeScales::kBlocks && !kZeros) {
      return Codes::template Biased<T, kFirst>(word);
    } else if constexpr (C::kScales == CodeScales::kPowers) {
      return Codes::template Scaled<T, kFirst>(word, factor);
    } else {
      return Codes::template Pair<T, kFirst>(word, factor);
    }
  }

  // The weight's fragments of a word, a step each.
  using Fragments = std::uint32_t[C::kWordSteps][4];
  template <bool kZeros>
  static __device__ __forceinline__ void MakeFragments(std::uint32_t upper, std::uint32_t lower,
                                                       std::uint32_t upper_factor,
                                                       std::uint32_t lower_factor, Fragments& a) {
    MakeStep<kZeros, 0>(upper, lower, upper_factor, lower_factor, a[0]);
    if constexpr (C::kWordSteps == 2) {
      MakeStep<kZeros, 1>(upper, lower, upper_factor, lower_factor, a[1]);
    }
  }
  template <bool kZeros, int kStep>
  static __device__ __forceinline__ void MakeStep(std::uint32_t upper, std::uint32_t lower,
                                                  std::uint32_t upper_factor,
                                                  std::uint32_t lower_factor,
                                                  std::uint32_t (&a)[4]) {
    a[0] = PairOfCodes<kZeros, 2 * kStep>(upper, upper_factor);
    a[1] = PairOfCodes<kZeros, 2 * kStep>(lower, lower_factor);
    a[2] = PairOfCodes<kZeros, 2 * kStep + 1>(upper, upper_factor);
    a[3] = PairOfCodes<kZeros, 2 * kStep + 1>(lower, lower_factor);
  }

  template <bool kZeros = false>
  static __device__ __forceinline__ void MultiplyWord(Sums& to, std::uint32_t upper,
                                                      std::uint32_t lower,
                                                      std::uint32_t upper_factor,
                                                      std::uint32_t lower_factor, const Tokens& b) {
    Fragments a;
    MakeFragments<kZeros>(upper, lower, upper_factor, lower_factor, a);
#pragma unroll
    for (int step = 0; step < C::kWordSteps; ++step) {
#pragma unroll
      for (int t = 0; t < C::kOctets; ++t) {
        MultiplyAdd<T>(to[t], a[step], b[t][2 * step], b[t][2 * step + 1]);
      }
    }
  }

  static __device__ __forceinline__ std::uint32_t Twice(std::uint32_t exponent) {
    return exponent << 7 | exponent << 23;
  }

  // The sums of the tokens' elements, which are those of a weight of ones.
  static __device__ __forceinline__ void MultiplyOnes(Sums& to, const Tokens& b) {
    const std::uint32_t a[4] = {Half::kOnes, Half::kOnes, Half::kOnes, Half::kOnes};
#pragma unroll
    for (int t = 0; t < C::kOctets; ++t) {
#pragma unroll
      for (int step = 0; step < C::kWordSteps; ++step) {
        MultiplyAdd<T>(to[t], a, b[t][2 * step], b[t][2 * step + 1]);
      }
    }
  }

  static __device__ __forceinline__ void Clear(Sums& sums) {
#pragma unroll
    for (auto& octet : sums) {
#pragma unroll
      for (float& sum : octet) sum = 0;
    }
  }

  const CodeProductParams& p_;
  const int lane_;
  const StreamRows rows_;
  std::uint32_t codes_at_[C::kEights], scale_at_[C::kEights];  // bytes
  float scales_of_part_;
  std::uint32_t scale_[C::kEights] = {}, zero_[C::kEights] = {};
};

/// What the kernels that read so have in common. `name`: the codes and what is said of their
/// groups, at the beginning of the id; `suffix`: the kind of kernel, at its end.
template <class C>
CodeProductKernel MakeLanesKernel(const char* name, const char* suffix,
                                  void (*function)(CodeProductParams), int stages, int registers) {
  const std::string shape =
      std::to_string(C::kRows) + "x" + std::to_string(C::kTokens) + "x" + std::to_string(stages);
  CodeProductKernel kernel{};
  kernel.id = std::string(name) + HalfConstants<typename C::T>::kName + shape + suffix;
  kernel.function = function;
  kernel.codes = C::Codes::kType;
  kernel.x = HalfConstants<typename C::T>::kType;
  kernel.group_step = C::kScales == CodeScales::kPowers ? C::kLaneK : C::kBlockK;
  kernel.rows = C::kRows;
  kernel.tokens = kernel.most = C::kTokens;
  kernel.block_k = C::kBlockK;
  kernel.stages = stages;
  kernel.ctas = C::kCtas;
  kernel.streams = kernel.direct = true;
  kernel.registers = registers;
  return kernel;
}

}  // namespace culet::cuda_ops
