// What one task of attention works on, and the scratch memory that it needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "culet/tensor.h"
#include "kernels/ops/ops.h"

namespace culet::ops {

/// Keys that pass by together.
inline constexpr int kKeyBlock = 32;
/// Queries, rows times query heads, that share a conversion of keys and values.
inline constexpr int kTaskQueries = 32;
/// Key-value heads that a task takes together at most: their parts of a row of the cache lie side
/// by side, and memory is read faster in long pieces.
inline constexpr int kTaskKvHeads = 8;
/// No vector has more floats.
inline constexpr std::size_t kHeadPad = 16;

/// Rows of one sequence, all of which see a key; some key-value heads, and of each some of the
/// query heads that share it. Queries are numbered by key-value head, row, query head.
struct AttentionTile {
  std::int64_t first_row = 0, last_row = 0;
  int first_kv_head = 0, kv_heads = 1;
  int group = 1;                  ///< query heads of a key-value head, in all
  int first_head = 0, heads = 1;  ///< of the group
  float* scratch = nullptr;       ///< AttentionScratch::Floats

  int queries_a_kv_head() const noexcept { return static_cast<int>(last_row - first_row) * heads; }
  std::int64_t RowOf(int query) const noexcept {
    return first_row + query % queries_a_kv_head() / heads;
  }
  int HeadOf(int query) const noexcept {
    return (first_kv_head + query / queries_a_kv_head()) * group + first_head + query % heads;
  }
};

/// The scratch memory of a tile, cut into its parts. A head's vector takes padded_head floats,
/// zeros behind its own.
struct AttentionScratch {
  static std::size_t PaddedHead(const AttentionParams& params) noexcept {
    return (static_cast<std::size_t>(params.head_dim) + kHeadPad - 1) / kHeadPad * kHeadPad;
  }
  static std::size_t Floats(const AttentionParams& params) noexcept {
    return (kTaskKvHeads * kKeyBlock + 2 * kTaskQueries) * PaddedHead(params) +
           kTaskQueries * (kKeyBlock + 2);
  }

  AttentionScratch(const AttentionParams& params, float* memory) noexcept
      : padded_head(PaddedHead(params)),
        lines(memory),
        queries(lines + kTaskKvHeads * kKeyBlock * padded_head),
        sums(queries + kTaskQueries * padded_head),
        scores(sums + kTaskQueries * padded_head),
        most(scores + kTaskQueries * kKeyBlock),
        weights(most + kTaskQueries) {}

  std::size_t padded_head;
  float* lines;  ///< keys or values of a block, converted: key by key, all heads of each
  float* queries;
  float* sums;     ///< of weighed values
  float* scores;   ///< kKeyBlock a query
  float* most;     ///< largest score so far
  float* weights;  ///< sum of the weights so far
};

}  // namespace culet::ops
