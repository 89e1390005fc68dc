// Which blocks of the paged cache belong to which sequence. Numbers alone: the memory is elsewhere.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "culet/status.h"

namespace culet {

class BlockTables {
 public:
  BlockTables(int sequences, int blocks, int block_size, int max_length);

  /// Errors: RESOURCE_EXHAUSTED when all are in use.
  Result<int> Add();
  /// Errors: NOT_FOUND.
  Status Remove(int sequence);
  /// Errors: NOT_FOUND.
  Status Check(int sequence) const;

  int length(int sequence) const { return entries_[static_cast<std::size_t>(sequence)].length; }
  const std::vector<std::int32_t>& blocks(int sequence) const {
    return entries_[static_cast<std::size_t>(sequence)].blocks;
  }
  int block_size() const noexcept { return block_size_; }
  int free_blocks() const noexcept { return static_cast<int>(free_.size()); }

  /// The most tokens that Extend takes now. Requires: a sequence that exists.
  int Room(int sequence) const;
  /// Makes the sequence `tokens` longer. Errors: RESOURCE_EXHAUSTED beyond max_length or without
  /// free blocks; nothing changes then.
  Status Extend(int sequence, int tokens);
  /// Blocks for `tokens` more than the sequence has, which it keeps until it shrinks; its length
  /// stays. Errors: as Extend.
  Status Reserve(int sequence, int tokens);
  /// The most tokens that all of them can reserve now.
  int RoomTogether(std::span<const int> sequences) const;
  /// Takes tokens back, and what was reserved. Requires: at least so many tokens.
  void Shrink(int sequence, int tokens);

  /// The cache's row of a position. Requires: position < length.
  std::int32_t Slot(int sequence, int position) const;

 private:
  struct Entry {
    bool used = false;
    int length = 0;
    std::vector<std::int32_t> blocks;
  };
  int block_size_;
  int max_length_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> free_;  // the last one is taken next
};

}  // namespace culet
