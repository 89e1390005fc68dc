// Which keys each query of an attention node sees, read from the node's runtime inputs. On the
// host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "culet/kernel_dispatch.h"

namespace culet {

/// The keys of one query: `key(j)` for j in [first, last) is a row of K and V, negative for one
/// that the block table puts outside the cache.
class AttentionRows {
 public:
  /// Requires: a verified Attention node whose inputs lie in host memory.
  explicit AttentionRows(const NodeLaunch& launch)
      : params_(launch.node().params.attention),
        tokens_(launch.node().shape.rows),
        paged_(launch.inputs.size() >= 7) {
    if (launch.inputs.size() > 3) {
      starts_ = FromDevicePtr<const std::int32_t>(launch.input(3));
      sequences_ = launch.input_node(3).shape.rows - 1;
    }
    if (!paged_) return;
    positions_ = FromDevicePtr<const std::int32_t>(launch.input(4));
    lengths_ = FromDevicePtr<const std::int32_t>(launch.input(5));
    table_ = FromDevicePtr<const std::int32_t>(launch.input(6));
    table_cols_ = launch.input_node(6).shape.cols;
    blocks_ = launch.input_node(1).shape.rows / params_.block_size;
  }

  struct Range {
    std::int64_t sequence = -1;  ///< -1: the row belongs to none, padding for instance
    std::int64_t first = 0, last = 0;
  };

  /// The keys that query `row` sees.
  Range Of(std::int64_t row) const {
    Range range;
    std::int64_t begin = 0, end = tokens_;
    if (starts_ == nullptr) {
      range.sequence = 0;
    } else {
      // The last sequence that begins at or before the row.
      const std::int32_t* const after =
          std::upper_bound(starts_, starts_ + sequences_ + 1, static_cast<std::int32_t>(row));
      const std::int64_t sequence = after - starts_ - 1;
      if (sequence < 0 || sequence >= sequences_) return range;
      range.sequence = sequence;
      begin = std::clamp<std::int64_t>(starts_[sequence], 0, tokens_);
      end = std::clamp<std::int64_t>(starts_[sequence + 1], begin, tokens_);
    }
    const std::int64_t position = paged_ ? positions_[row] : row - begin;
    std::int64_t length = end - begin;
    if (paged_) {
      length =
          std::clamp<std::int64_t>(lengths_[range.sequence], 0, table_cols_ * params_.block_size);
    }
    range.last = params_.causal ? std::clamp<std::int64_t>(position + 1, 0, length) : length;
    if (params_.window > 0) {
      range.first = std::clamp<std::int64_t>(position + 1 - params_.window, 0, range.last);
    }
    if (params_.chunk > 0) {
      range.first =
          std::clamp<std::int64_t>(position - position % params_.chunk, range.first, range.last);
    }
    return range;
  }

  /// The row of K and V that holds key `j` of a sequence.
  std::int64_t KeyRow(std::int64_t sequence, std::int64_t j) const {
    if (!paged_) return (starts_ != nullptr ? starts_[sequence] : 0) + j;
    const std::int64_t block = table_[sequence * table_cols_ + j / params_.block_size];
    if (block < 0 || block >= blocks_) return -1;
    return block * params_.block_size + j % params_.block_size;
  }

 private:
  const AttentionParams& params_;
  std::int64_t tokens_;
  bool paged_;
  const std::int32_t* starts_ = nullptr;
  const std::int32_t* positions_ = nullptr;
  const std::int32_t* lengths_ = nullptr;
  const std::int32_t* table_ = nullptr;
  std::int64_t sequences_ = 1, table_cols_ = 0, blocks_ = 0;
};

}  // namespace culet
