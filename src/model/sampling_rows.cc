#include "model/sampling_rows.h"

#include <algorithm>
#include <utility>

#include "base/sample_row.h"

namespace culet {

Result<SamplingRows> SamplingRows::Create(DeviceMemory& memory, int sequences) {
  SamplingRows made;
  made.memory_ = &memory;
  made.rows_.resize(static_cast<std::size_t>(sequences), PackSampling({}));
  auto buffer = DeviceBuffer::Create(memory, made.rows_.size() * sizeof(SamplingRow));
  if (!buffer) return buffer.status();
  made.buffer_ = *std::move(buffer);
  return made;
}

void SamplingRows::Set(int sequence, const SamplingOptions& options) {
  rows_[static_cast<std::size_t>(sequence)] = PackSampling(options);
}

bool SamplingRows::AnyOf(std::span<const SequenceTokens> batch) const {
  return std::ranges::any_of(
      batch, [&](const SequenceTokens& part) { return row(part.sequence)[0] != 0; });
}

Status SamplingRows::Write(std::span<const SequenceTokens> batch, cudaStream_t stream) {
  // Rows beyond the batch's, of a graph for more sequences, are greedy.
  std::vector<SamplingRow> wanted(rows_.size(), PackSampling({}));
  for (std::size_t i = 0; i < batch.size(); ++i) wanted[i] = row(batch[i].sequence);
  if (wanted == held_) return {};
  held_.clear();
  CULET_RETURN_IF_ERROR(
      memory_->Upload(buffer_.get(), wanted.data(), wanted.size() * sizeof(SamplingRow), stream));
  held_ = std::move(wanted);
  return {};
}

std::int32_t SamplingRows::Draw(int sequence, std::span<const float> logits, int length) const {
  std::vector<std::uint64_t> scratch(logits.size());
  return sampling::SampleRow(logits, row(sequence).data(), static_cast<std::uint32_t>(length),
                             scratch);
}

}  // namespace culet
