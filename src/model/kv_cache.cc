#include "model/kv_cache.h"

#include <algorithm>

#include <fmt/format.h>

namespace culet {

BlockTables::BlockTables(int sequences, int blocks, int block_size, int max_length)
    : block_size_(block_size),
      max_length_(max_length),
      entries_(static_cast<std::size_t>(sequences)) {
  for (int block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

Result<int> BlockTables::Add() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].used) continue;
    entries_[i].used = true;
    return static_cast<int>(i);
  }
  return Status(StatusCode::kResourceExhausted,
                fmt::format("all {} sequences are in use; remove one, or raise max_sequences",
                            entries_.size()));
}

Status BlockTables::Check(int sequence) const {
  if (sequence >= 0 && static_cast<std::size_t>(sequence) < entries_.size() &&
      entries_[static_cast<std::size_t>(sequence)].used) {
    return {};
  }
  return Status(StatusCode::kNotFound,
                fmt::format("there is no sequence {}; AddSequence gives numbers", sequence));
}

Status BlockTables::Remove(int sequence) {
  CULET_RETURN_IF_ERROR(Check(sequence));
  Shrink(sequence, length(sequence));
  entries_[static_cast<std::size_t>(sequence)].used = false;
  return {};
}

Status BlockTables::Extend(int sequence, int tokens) {
  CULET_RETURN_IF_ERROR(Reserve(sequence, tokens));
  entries_[static_cast<std::size_t>(sequence)].length += tokens;
  return {};
}

Status BlockTables::Reserve(int sequence, int tokens) {
  Entry& entry = entries_[static_cast<std::size_t>(sequence)];
  if (tokens > max_length_ - entry.length) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("sequence {} has {} positions and cannot take {} more; max_context "
                              "is {}",
                              sequence, entry.length, tokens, max_length_));
  }
  const int needed = (entry.length + tokens + block_size_ - 1) / block_size_;
  const int more = needed - static_cast<int>(entry.blocks.size());
  if (more > free_blocks()) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("sequence {} needs {} more blocks of the cache, {} are free; remove "
                              "a sequence, or raise cache_blocks",
                              sequence, more, free_blocks()));
  }
  for (int i = 0; i < more; ++i) {
    entry.blocks.push_back(free_.back());
    free_.pop_back();
  }
  return {};
}

int BlockTables::Room(int sequence) const {
  const Entry& entry = entries_[static_cast<std::size_t>(sequence)];
  const std::int64_t blocks = static_cast<std::int64_t>(entry.blocks.size()) + free_blocks();
  return static_cast<int>(std::min<std::int64_t>(max_length_, blocks * block_size_) - entry.length);
}

int BlockTables::RoomTogether(std::span<const int> sequences) const {
  int least = max_length_;
  for (const int sequence : sequences) least = std::min(least, max_length_ - length(sequence));
  const auto fits = [&](int tokens) {
    std::int64_t needed = 0;
    for (const int sequence : sequences) {
      const auto has = static_cast<std::int64_t>(blocks(sequence).size());
      const std::int64_t all =
          (std::int64_t{length(sequence)} + tokens + block_size_ - 1) / block_size_;
      needed += std::max<std::int64_t>(0, all - has);
    }
    return needed <= free_blocks();
  };
  int room = 0;
  for (int beyond = least + 1; beyond - room > 1;) {
    const int middle = room + (beyond - room) / 2;
    (fits(middle) ? room : beyond) = middle;
  }
  return room;
}

void BlockTables::Shrink(int sequence, int tokens) {
  Entry& entry = entries_[static_cast<std::size_t>(sequence)];
  entry.length -= tokens;
  const int needed = (entry.length + block_size_ - 1) / block_size_;
  while (static_cast<int>(entry.blocks.size()) > needed) {
    free_.push_back(entry.blocks.back());
    entry.blocks.pop_back();
  }
}

std::int32_t BlockTables::Slot(int sequence, int position) const {
  const Entry& entry = entries_[static_cast<std::size_t>(sequence)];
  return entry.blocks[static_cast<std::size_t>(position / block_size_)] * block_size_ +
         position % block_size_;
}

}  // namespace culet
