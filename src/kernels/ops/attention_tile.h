// What one task of attention works on, and the scratch memory that it needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "culet/tensor.h"
#include "kernels/ops/ops.h"

namespace culet::ops {

/// Keys that pass by together.
inline constexpr int kKeyBlock = 32;
/// Keys whose softmax is made apart and added to that of the keys before: what threads share when
/// there are few rows.
inline constexpr int kKeyPart = 128;
/// Queries, rows times query heads, that share a conversion of keys and values.
inline constexpr int kTaskQueries = 32;
/// Key-value heads that a task takes together at most: their parts of a row of the cache lie side
/// by side, and memory is read faster in long pieces.
inline constexpr int kTaskKvHeads = 8;
/// No decoder takes more elements together.
inline constexpr std::size_t kHeadPad = 32;

/// Parts of the softmax of some rows, for a second pass to add: of each row and query head, for
/// each kKeyPart keys, the largest score, the sum of the weights, and the weighed values.
struct AttentionParts {
  float* data = nullptr;
  std::int64_t heads = 0, parts = 0;  ///< query heads of a row, parts of a head
  std::size_t floats = 0;             ///< of a part

  /// Floats for `rows` rows that see up to `keys` keys; 0 with so many rows that keys are not
  /// split.
  static std::size_t Floats(const AttentionParams& params, std::int64_t rows,
                            std::int64_t keys) noexcept;

  float* Of(std::int64_t row, int head, std::int64_t part) const noexcept {
    return data + static_cast<std::size_t>((row * heads + head) * parts + part) * floats;
  }
};

/// Rows of one sequence, all of which see a key; some key-value heads, and of each some of the
/// query heads that share it. Queries are numbered by key-value head, row, query head.
struct AttentionTile {
  std::int64_t first_row = 0, last_row = 0;
  int first_kv_head = 0, kv_heads = 1;
  int group = 1;                  ///< query heads of a key-value head, in all
  int first_head = 0, heads = 1;  ///< of the group
  /// Keys outside [first_key, last_key) are another tile's; multiples of kKeyPart.
  std::int64_t first_key = 0, last_key = std::numeric_limits<std::int64_t>::max();
  const AttentionParts* parts = nullptr;  ///< where parts go; null: all are added here
  float* scratch = nullptr;               ///< AttentionScratch::Floats

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
    return (kTaskKvHeads * kKeyBlock + 3 * kTaskQueries) * PaddedHead(params) +
           kTaskQueries * (kKeyBlock + 4);
  }

  AttentionScratch(const AttentionParams& params, float* memory) noexcept
      : padded_head(PaddedHead(params)),
        lines(memory),
        queries(lines + kTaskKvHeads * kKeyBlock * padded_head),
        sums(queries + kTaskQueries * padded_head),
        totals(sums + kTaskQueries * padded_head),
        scores(totals + kTaskQueries * padded_head),
        most(scores + kTaskQueries * kKeyBlock),
        weights(most + kTaskQueries),
        total_most(weights + kTaskQueries),
        total_weights(total_most + kTaskQueries) {}

  std::size_t padded_head;
  float* lines;  ///< keys or values of a block, converted: key by key, all heads of each
  float* queries;
  float* sums;           ///< of weighed values
  float* totals;         ///< the same of all parts before
  float* scores;         ///< kKeyBlock a query
  float* most;           ///< largest score so far
  float* weights;        ///< sum of the weights so far
  float* total_most;     ///< the same of all parts before
  float* total_weights;  ///< the same of all parts before
};

}  // namespace culet::ops
