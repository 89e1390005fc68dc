// The states of sequences that CausalConv and GatedDelta of a graph keep, on the host or a GPU.
#pragma once

#include <algorithm>
#include <cstdint>

namespace culet {

struct StateRows {
  float* states = nullptr;                  ///< (count, cols)
  const std::int32_t* rows = nullptr;       ///< (sequences): a sequence's row of them
  const std::int32_t* starts = nullptr;     ///< (sequences + 1)
  const std::int32_t* positions = nullptr;  ///< (tokens)
  std::int64_t count = 0, cols = 0, sequences = 0, tokens = 0;

  /// The tokens [begin, end) of a sequence.
  std::int64_t begin(std::int64_t sequence) const noexcept {
    return std::clamp<std::int64_t>(starts[sequence], 0, tokens);
  }
  std::int64_t end(std::int64_t sequence) const noexcept {
    return std::clamp<std::int64_t>(starts[sequence + 1], begin(sequence), tokens);
  }
  /// Where its state is stored; null: nowhere.
  float* to(std::int64_t sequence) const noexcept {
    const std::int64_t row = rows[sequence];
    return row >= 0 && row < count ? states + row * cols : nullptr;
  }
  /// The state with which it begins; null: zeros. Requires: tokens.
  const float* from(std::int64_t sequence) const noexcept {
    return positions[begin(sequence)] == 0 ? nullptr : to(sequence);
  }
};

}  // namespace culet
