#include "model/step_inputs.h"

#include <algorithm>
#include <utility>

namespace culet {
namespace {

constexpr std::size_t kAlignment = 64 / sizeof(std::int32_t);  // elements

// Offsets of the parts, in elements.
struct Layout {
  Layout(const StepShape& shape, bool rings) {
    const auto take = [this](std::int64_t count) {
      const std::size_t offset = size;
      size += (static_cast<std::size_t>(count) + kAlignment - 1) / kAlignment * kAlignment;
      return offset;
    };
    ids = take(shape.tokens);
    positions = take(shape.tokens);
    slots = take(shape.tokens);
    q_starts = take(shape.sequences + 1);
    lengths = take(shape.sequences);
    state_rows = take(shape.sequences);
    rows = take(shape.logit_rows);
    table = take(std::int64_t{shape.sequences} * shape.table_blocks);
    if (!rings) return;
    ring_slots = take(shape.tokens);
    ring_table = take(std::int64_t{shape.sequences} * shape.table_blocks);
  }
  std::size_t ids, positions, slots, q_starts, lengths, state_rows, rows, table;
  std::size_t ring_slots = 0, ring_table = 0;
  std::size_t size = 0;
};

}  // namespace

Result<StepInputs> StepInputs::Create(DeviceMemory& memory, const StepShape& most,
                                      int ring_blocks) {
  StepInputs inputs;
  inputs.ring_blocks_ = ring_blocks;
  inputs.memory_ = &memory;
  const std::size_t count = Layout(most, ring_blocks > 0).size;
  const std::size_t log_count = std::size_t{kLogRows} * static_cast<std::size_t>(most.sequences);
  const std::size_t all_count = count + log_count;
  auto buffer = DeviceBuffer::Create(memory, count * sizeof(std::int32_t));
  if (!buffer) return buffer.status();
  inputs.buffer_ = *std::move(buffer);
  auto shared = SharedBuffer::Create(memory, all_count * sizeof(std::int32_t));
  if (shared.ok()) {
    inputs.shared_ = *std::move(shared);
    inputs.staging_ = static_cast<std::int32_t*>(inputs.shared_.get());
  } else if (shared.status().code() == StatusCode::kUnsupported) {
    inputs.plain_.resize(all_count);
    inputs.staging_ = inputs.plain_.data();
    auto log = DeviceBuffer::Create(memory, log_count * sizeof(std::int32_t));
    if (!log) return log.status();
    inputs.log_buffer_ = *std::move(log);
  } else {
    return shared.status();
  }
  inputs.log_ = inputs.staging_ + count;
  inputs.log_address_ =
      inputs.log_buffer_.get() != 0 ? inputs.log_buffer_.get() : ToDevicePtr(inputs.log_);
  return inputs;
}

DecoderInputs StepInputs::AddressesOf(const StepShape& shape) const {
  const Layout layout(shape, ring_blocks_ > 0);
  const auto at = [this](std::size_t offset) {
    return buffer_.get() + static_cast<DevicePtr>(offset * sizeof(std::int32_t));
  };
  DecoderInputs to;
  to.ids = at(layout.ids);
  to.positions = at(layout.positions);
  to.slots = at(layout.slots);
  to.q_starts = at(layout.q_starts);
  to.lengths = at(layout.lengths);
  to.state_rows = at(layout.state_rows);
  to.ring_slots = at(layout.ring_slots);
  to.ring_table = at(layout.ring_table);
  to.block_table = at(layout.table);
  to.rows = at(layout.rows);
  to.log = log_address_;
  return to;
}

Status StepInputs::Write(std::span<const SequenceTokens> batch, const BlockTables& tables,
                         const StepShape& shape, cudaStream_t stream, bool reserved) {
  const Layout layout(shape, ring_blocks_ > 0);
  std::int32_t* const to = staging_;
  const auto columns = static_cast<std::size_t>(shape.table_blocks);
  const int block_size = tables.block_size();
  std::size_t row = 0, sequence = 0;
  to[layout.q_starts] = 0;
  const auto end_sequence = [&](int number, int length, std::span<const std::int32_t> blocks) {
    to[layout.q_starts + sequence + 1] = static_cast<std::int32_t>(row);
    to[layout.lengths + sequence] = length;
    to[layout.state_rows + sequence] = number;
    if (shape.logit_rows > 0) {
      to[layout.rows + sequence] = static_cast<std::int32_t>(row) - 1;
    }
    std::int32_t* const table = to + layout.table + sequence * columns;
    std::fill(std::ranges::copy(blocks, table).out, table + columns, -1);
    if (ring_blocks_ > 0) {
      // Rows of padding see the first sequence's.
      const int first = (number >= 0 ? number : batch.front().sequence) * ring_blocks_;
      std::int32_t* const ring = to + layout.ring_table + sequence * columns;
      for (std::size_t i = 0; i < columns; ++i) {
        ring[i] = first + static_cast<int>(i) % ring_blocks_;
      }
    }
    ++sequence;
  };
  // `number`: of the sequence; negative for padding.
  const auto add_row = [&](int number, std::int32_t id, int position, std::int32_t slot) {
    to[layout.ids + row] = id;
    to[layout.positions + row] = position;
    to[layout.slots + row] = slot;
    if (ring_blocks_ > 0) {
      const int block = position / block_size % ring_blocks_;
      to[layout.ring_slots + row] =
          number < 0 ? -1 : (number * ring_blocks_ + block) * block_size + position % block_size;
    }
    ++row;
  };
  for (const SequenceTokens& part : batch) {
    const auto tokens = static_cast<int>(part.tokens.size());
    const int length = tables.length(part.sequence) + (reserved ? tokens : 0);
    const int first = length - tokens;
    for (int position = first; position < length; ++position) {
      add_row(part.sequence, part.tokens[static_cast<std::size_t>(position - first)], position,
              tables.Slot(part.sequence, position));
    }
    const std::vector<std::int32_t>& blocks = tables.blocks(part.sequence);
    end_sequence(part.sequence, length, std::span(blocks).first(std::min(blocks.size(), columns)));
  }
  const auto rows = static_cast<std::size_t>(shape.tokens);
  const auto sequences = static_cast<std::size_t>(shape.sequences);
  const std::span<const std::int32_t> first_block(tables.blocks(batch.front().sequence).data(), 1);
  while (sequence < sequences) {
    const bool last = sequence + 1 == sequences;
    for (std::size_t more = last ? rows - row : std::min<std::size_t>(1, rows - row); more > 0;
         --more) {
      add_row(-1, batch.front().tokens.front(), 0, -1);
    }
    end_sequence(-1, 1, first_block);
  }
  return memory_->StartUpload(buffer_.get(), to, layout.size * sizeof(std::int32_t), stream);
}

Result<StepLog> StepInputs::Log(const StepShape& shape, cudaStream_t stream) {
  const auto sequences = static_cast<std::size_t>(shape.sequences);
  const std::size_t count = kLogRows * sequences;
  if (log_buffer_.get() != 0) {
    CULET_RETURN_IF_ERROR(
        memory_->Download(log_, log_address_, count * sizeof(std::int32_t), stream));
  }
  return StepLog{{log_, count}, sequences, kLogRows};
}

}  // namespace culet
