// Sampling options of a session's sequences, as a step's graph reads them on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "culet/decoder.h"
#include "culet/kernel_dispatch.h"
#include "culet/sampling.h"

namespace culet {

class SamplingRows {
 public:
  SamplingRows() = default;
  /// For steps of up to so many rows. All are greedy. Errors: as DeviceMemory::Allocate.
  static Result<SamplingRows> Create(DeviceMemory& memory, int sequences);

  /// Requires: CheckSampling(options).ok(), a sequence of the session.
  void Set(int sequence, const SamplingOptions& options);

  /// Whether a sequence of the batch draws its tokens.
  bool AnyOf(std::span<const SequenceTokens> batch) const;

  /// The device address of a step's rows, the same for every step: row i is the batch's sequence i.
  DevicePtr address() const noexcept { return buffer_.get(); }

  /// Copies the rows of a step to the device unless they lie there already.
  /// Errors: as DeviceMemory::Upload.
  Status Write(std::span<const SequenceTokens> batch, cudaStream_t stream);

  /// Draws the token after the first `length` of a sequence, on the host.
  std::int32_t Draw(int sequence, std::span<const float> logits, int length) const;

 private:
  const SamplingRow& row(int sequence) const { return rows_[static_cast<std::size_t>(sequence)]; }

  DeviceMemory* memory_ = nullptr;
  DeviceBuffer buffer_;
  std::vector<SamplingRow> rows_;  // of each sequence
  std::vector<SamplingRow> held_;  // on the device
};

}  // namespace culet
