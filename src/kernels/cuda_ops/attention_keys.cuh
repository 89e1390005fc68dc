// Which keys a query of an attention sees, where they lie, and values in and out: what all kernels
// of attention share.
#pragma once

#include "kernels/cuda_ops/ops.h"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// The maximum of no scores.
inline constexpr float kNoKey = -std::numeric_limits<float>::infinity();

/// The keys of one query: those from `first` up to `last`, of a sequence. As AttentionRows, on the
/// device.
struct KeyRange {
  std::int64_t sequence = -1;
  std::int64_t first = 0, last = 0;
  std::int64_t position = 0;  ///< of the query

  KeyRange() = default;
  /// `likely`: a sequence that may be the row's; looked at first.
  __device__ KeyRange(const AttentionArgs& args, std::int64_t row, std::int64_t likely = -1) {
    const auto clamp = [](std::int64_t value, std::int64_t low, std::int64_t high) {
      return value < low ? low : value > high ? high : value;
    };
    // What most rows need does not wait for each other.
    const bool cached = args.table != nullptr;
    const std::int64_t known = args.starts == nullptr ? 0 : likely;
    const bool guessed = args.starts == nullptr || (known >= 0 && known < args.sequences);
    std::int64_t begin = 0, end = args.rows, length = 0;
    if (guessed && args.starts != nullptr) {
      begin = args.starts[known];
      end = args.starts[known + 1];
    }
    if (guessed && cached) length = args.lengths[known];
    if (cached) position = args.positions[row];
    sequence = known;
    if (!guessed || (args.starts != nullptr && (row < begin || row >= end))) {
      // The last sequence that begins at or before the row.
      std::int64_t after = 0;
      for (std::int64_t count = args.sequences + 1; count > 0;) {
        const std::int64_t half = count / 2;
        if (args.starts[after + half] <= row) {
          after += half + 1;
          count -= half + 1;
        } else {
          count = half;
        }
      }
      sequence = after - 1;
      if (sequence < 0 || sequence >= args.sequences) {
        sequence = -1;
        return;
      }
      begin = args.starts[sequence];
      end = args.starts[sequence + 1];
      if (cached) length = args.lengths[sequence];
    }
    begin = clamp(begin, 0, args.rows);
    end = clamp(end, begin, args.rows);
    if (cached) {
      length = clamp(length, 0, args.table_cols * args.params.block_size);
    } else {
      position = row - begin;
      length = end - begin;
    }
    last = args.params.causal ? clamp(position + 1, 0, length) : length;
    if (args.params.window > 0) first = clamp(position + 1 - args.params.window, 0, last);
    if (args.params.chunk > 0) {
      const auto of = static_cast<int>(position);  // below 2^31
      first = clamp(of - of % args.params.chunk, first, last);
    }
  }

  /// Keys from the first one on that no row of the batch makes; of a sequence of one row.
  __device__ std::int64_t OldKeys() const { return position < 0 ? 0 : position; }

  /// The row of K and V that holds key `j`; -1: the block table or the start puts it outside.
  __device__ int RowOf(const AttentionArgs& args, std::int64_t j) const {
    if (args.table == nullptr) {
      const std::int64_t row = (args.starts == nullptr ? 0 : args.starts[sequence]) + j;
      return row < 0 ? -1 : static_cast<int>(row);
    }
    // Positions are below 2^31: the product is at most one short of key / size.
    const auto key = static_cast<unsigned>(j);
    const auto size = static_cast<unsigned>(args.params.block_size);
    unsigned column = __umulhi(key, args.per_block);
    if (key - column * size >= size) ++column;
    const int block = args.table[sequence * args.table_cols + column];
    if (block < 0 || block >= args.blocks) return -1;
    return block * args.params.block_size + static_cast<int>(key - column * size);
  }
};

/// Whether a cache of T holds codes, which are times the scale of their head.
template <class T>
inline constexpr bool kAreCodes = std::is_same_v<T, __nv_fp8_e4m3>;

/// The scale of a head's keys in a cache of T.
template <class T>
__device__ __forceinline__ float KeyScale(const AttentionArgs& args, int kv_head) {
  if constexpr (kAreCodes<T>) return args.k_scales[kv_head];
  return 1;
}
/// The same of its values.
template <class T>
__device__ __forceinline__ float ValueScale(const AttentionArgs& args, int kv_head) {
  if constexpr (kAreCodes<T>) return args.v_scales[kv_head];
  return 1;
}

template <class T>
__device__ __forceinline__ float Element(const void* data, std::int64_t index) {
  return ToFloat(static_cast<const T*>(data)[index]);
}

__device__ __forceinline__ float LoadValue(const void* data, DataType type, std::int64_t index) {
  return type == DataType::kFloat32 ? Element<float>(data, index)
                                    : Element<__nv_bfloat16>(data, index);
}

__device__ __forceinline__ void StoreValue(float value, void* data, DataType type,
                                           std::int64_t index) {
  if (type == DataType::kFloat32) {
    static_cast<float*>(data)[index] = value;
  } else {
    Round(value, static_cast<__nv_bfloat16*>(data) + index);
  }
}

/// A score, times log2 e, under the cap: cap * tanh(score / cap), made of fast operations whose
/// error is some 1e-7 of the cap.
__device__ __forceinline__ float Capped(float score, float log2_cap) {
  constexpr float kTwoLog2E = 2.88539008f;
  const float power = exp2f(score * __fdividef(kTwoLog2E, log2_cap));
  return log2_cap - __fdividef(2 * log2_cap, power + 1);
}

/// The sum of the weights of a query of `head`, with that of the head's sink. `highest`: the
/// maximum of its scores, times log2 e. A query without keys has no sum.
__device__ __forceinline__ float WithSink(const AttentionArgs& args, int head, float highest,
                                          float total) {
  if (args.sinks == nullptr || highest == kNoKey) return total;
  constexpr float kLog2E = 1.44269504f;
  const float sink = args.sinks_type == DataType::kFloat16
                         ? Element<__half>(args.sinks, head)
                         : LoadValue(args.sinks, args.sinks_type, head);
  return total + exp2f(fmaf(sink, kLog2E, -highest));
}

/// What a maximum `from` counts once the maximum is `to`; 1 where nothing changed, so that two
/// absent ones do not make a NaN.
__device__ __forceinline__ float Rescale(float from, float to) {
  return from == to ? 1.0f : exp2f(from - to);
}

}  // namespace culet::cuda_ops
