// Products of heads, each with a weight of its own: the tiles of attention's scores, with rows of
// the weight for keys.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/head_mul_mat.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/ops/attention_math-inl.h"
#include "kernels/ops/head_mul_mat.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

using ops::HeadScratch;
using ops::kHeadRows;

// Sums [first, first + count) of a head for all rows. kInPlace: the weight is read where it lies;
// otherwise it is converted first, which many rows share.
template <class Decoder, bool kInPlace>
void MultiplyHead(const ops::HeadMulMatArgs& args, std::int64_t head, std::int64_t first,
                  std::int64_t count, float* memory) {
  using Line = std::conditional_t<kInPlace, Decoder, DecodeF32>;
  const HeadScratch scratch(args.k, memory);
  const std::size_t padded = scratch.padded;
  const auto k = static_cast<std::size_t>(args.k);
  const typename Line::T* lines[kKeyBlock];
  for (std::int64_t n = 0; n < count; ++n) {
    const auto* const row = static_cast<const typename Decoder::T*>(args.weight) +
                            (head * args.sums + first + n) * args.k;
    if constexpr (kInPlace) {
      lines[n] = row;
    } else {
      float* const line = scratch.lines + static_cast<std::size_t>(n) * padded;
      ConvertLine<Decoder>(row, k, padded, line);
      lines[n] = line;
    }
  }
  const std::int64_t cols = args.heads * args.in, size = args.sums + args.in - args.k;
  for (std::int64_t begin = 0; begin < args.rows; begin += kHeadRows) {
    const std::int64_t rows = std::min<std::int64_t>(kHeadRows, args.rows - begin);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const x = args.x + (begin + r) * cols + head * args.in;
      float* const to = scratch.queries + static_cast<std::size_t>(r) * padded;
      std::fill_n(to, padded, 0.0f);
      ForElements<Decoder>(k, [&](std::size_t i, std::size_t at) { to[at] = x[i]; });
    }
    const auto score = [&](auto tile, std::int64_t r) {
      ScoreQueries<Line, tile>(scratch.queries + static_cast<std::size_t>(r) * padded,
                               {lines, nullptr}, 0, count, padded, 1.0f,
                               scratch.sums + r * kKeyBlock);
    };
    std::int64_t r = 0;
    for (; r + kTileQueries <= rows; r += kTileQueries) {
      score(std::integral_constant<int, kTileQueries>(), r);
    }
    for (; r < rows; ++r) score(std::integral_constant<int, 1>(), r);
    for (r = 0; r < rows; ++r) {
      float* const out = args.out + ((begin + r) * args.heads + head) * size;
      std::copy_n(scratch.sums + r * kKeyBlock, count, out + first);
      if (first > 0) continue;
      std::copy_n(args.x + (begin + r) * cols + head * args.in + args.k, args.in - args.k,
                  out + args.sums);
    }
  }
}

template <class Decoder>
void MultiplyWith(const ops::HeadMulMatArgs& args, std::int64_t head, std::int64_t first,
                  std::int64_t count, float* memory) {
  // Up to so many rows a conversion in registers costs less than one stored and read again.
  constexpr std::int64_t kFewRows = 4;
  const bool in_place = args.k % static_cast<std::int64_t>(ops::kHeadPad) == 0 &&
                        (std::is_same_v<Decoder, DecodeF32> || args.rows <= kFewRows);
  in_place ? MultiplyHead<Decoder, true>(args, head, first, count, memory)
           : MultiplyHead<Decoder, false>(args, head, first, count, memory);
}

void MultiplyHeads(const ops::HeadMulMatArgs& args, std::int64_t head, std::int64_t first,
                   std::int64_t count, float* memory) {
  switch (args.type) {
    case DataType::kFloat16:
      return MultiplyWith<DecodeF16>(args, head, first, count, memory);
    case DataType::kBfloat16:
      return MultiplyWith<DecodeBf16>(args, head, first, count, memory);
    default:
      return MultiplyWith<DecodeF32>(args, head, first, count, memory);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/thread_pool.h"

namespace culet {
HWY_EXPORT(MultiplyHeads);

namespace ops {

std::size_t HeadMulMatWorkspace(std::int64_t k) {
  return static_cast<std::size_t>(HostPool().threads()) * HeadScratch::Floats(k);
}

void HeadMulMat(const HeadMulMatArgs& args) {
  const std::size_t own = HeadScratch::Floats(args.k);
  const std::int64_t pieces = (args.sums + kKeyBlock - 1) / kKeyBlock;
  const auto threads =
      static_cast<int>(std::min<std::size_t>(args.workspace_floats / own, 1 << 16));
  HostPool().Run(
      static_cast<int>(args.heads * pieces),
      [&](int task, int thread) {
        const std::int64_t first = task % pieces * kKeyBlock;
        HWY_DYNAMIC_DISPATCH(MultiplyHeads)
        (args, task / pieces, first, std::min<std::int64_t>(kKeyBlock, args.sums - first),
         args.workspace + static_cast<std::size_t>(thread) * own);
      },
      threads);
}

}  // namespace ops
}  // namespace culet
#endif  // HWY_ONCE
