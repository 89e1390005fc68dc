#include "model/step_inputs.h"

#include <utility>

namespace culet {

Result<StepInputs> StepInputs::Create(DeviceMemory& memory, int tokens, int sequences,
                                      int table_blocks) {
  constexpr std::size_t kAlignment = 256;
  StepInputs inputs;
  inputs.memory_ = &memory;
  inputs.table_blocks_ = table_blocks;
  std::size_t bytes = 0;
  const auto take = [&](std::int64_t count) {
    const std::size_t offset = bytes;
    bytes += (static_cast<std::size_t>(count) * sizeof(std::int32_t) + kAlignment - 1) /
             kAlignment * kAlignment;
    return offset;
  };
  DecoderInputs& to = inputs.addresses_;
  const std::pair<DevicePtr*, std::int64_t> parts[] = {
      {&to.ids, tokens},        {&to.positions, tokens},
      {&to.slots, tokens},      {&to.q_starts, sequences + 1},
      {&to.lengths, sequences}, {&to.block_table, std::int64_t{sequences} * table_blocks},
      {&to.rows, sequences}};
  for (const auto& [address, count] : parts) *address = take(count);
  auto buffer = DeviceBuffer::Create(memory, bytes);
  if (!buffer) return buffer.status();
  inputs.buffer_ = *std::move(buffer);
  for (const auto& [address, count] : parts) *address += inputs.buffer_.get();
  return inputs;
}

Status StepInputs::Upload(DevicePtr to, const std::vector<std::int32_t>& values,
                          cudaStream_t stream) {
  return memory_->Upload(to, values.data(), values.size() * sizeof(std::int32_t), stream);
}

Status StepInputs::Write(std::span<const SequenceTokens> batch, const BlockTables& tables,
                         bool all_rows, cudaStream_t stream) {
  std::vector<std::int32_t> ids, positions, slots, starts{0}, lengths, table, rows;
  for (const SequenceTokens& part : batch) {
    const int length = tables.length(part.sequence);
    const int first = length - static_cast<int>(part.tokens.size());
    for (int position = first; position < length; ++position) {
      ids.push_back(part.tokens[static_cast<std::size_t>(position - first)]);
      positions.push_back(position);
      slots.push_back(tables.Slot(part.sequence, position));
    }
    starts.push_back(static_cast<std::int32_t>(ids.size()));
    lengths.push_back(length);
    rows.push_back(static_cast<std::int32_t>(ids.size()) - 1);
    const std::vector<std::int32_t>& blocks = tables.blocks(part.sequence);
    table.insert(table.end(), blocks.begin(), blocks.end());
    table.resize(lengths.size() * static_cast<std::size_t>(table_blocks_), -1);
  }
  CULET_RETURN_IF_ERROR(Upload(addresses_.ids, ids, stream));
  CULET_RETURN_IF_ERROR(Upload(addresses_.positions, positions, stream));
  CULET_RETURN_IF_ERROR(Upload(addresses_.slots, slots, stream));
  CULET_RETURN_IF_ERROR(Upload(addresses_.q_starts, starts, stream));
  CULET_RETURN_IF_ERROR(Upload(addresses_.lengths, lengths, stream));
  CULET_RETURN_IF_ERROR(Upload(addresses_.block_table, table, stream));
  return all_rows ? Status() : Upload(addresses_.rows, rows, stream);
}

}  // namespace culet
