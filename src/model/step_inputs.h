// The runtime inputs of a step: made on the host, copied as one to the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "culet/decoder.h"
#include "culet/kernel_dispatch.h"
#include "model/kv_cache.h"

namespace culet {

/// How large a step's graph is. Rows and sequences beyond the batch's are padding.
struct StepShape {
  int tokens = 0;
  int sequences = 0;
  int table_blocks = 0;
  int logit_rows = 0;  ///< 0: logits of all tokens; else one a sequence
  friend bool operator==(const StepShape&, const StepShape&) = default;
};

/// What the Advances of the last steps logged.
struct StepLog {
  std::span<const std::int32_t> values;
  std::size_t sequences = 0, rows = 0;
  /// The token after `position` of the step's sequence `column`.
  std::int32_t At(int position, std::size_t column) const {
    return values[static_cast<std::size_t>(position) % rows * sequences + column];
  }
};

class StepInputs {
 public:
  /// Steps whose tokens the log holds.
  static constexpr int kLogRows = 16;

  StepInputs() = default;
  /// Memory for steps of up to this shape in every number. `ring_blocks`: of the ring that each
  /// sequence has, 0 for none. Errors: as DeviceMemory::Allocate, and AllocateShared.
  static Result<StepInputs> Create(DeviceMemory& memory, const StepShape& most, int ring_blocks);

  /// Where the inputs of a step of this shape lie, the same for every step.
  DecoderInputs AddressesOf(const StepShape& shape) const;

  /// Writes the inputs of a step whose tokens are in the tables already, in one copy. Rows of
  /// padding see the first key of the first sequence, so that they are finite, and write nothing.
  /// With `reserved` the tables have blocks for the tokens but do not count them yet. Requires: a
  /// shape that holds the batch, and one more sequence if it has more rows; no earlier step is
  /// under way. Errors: as DeviceMemory::StartUpload.
  Status Write(std::span<const SequenceTokens> batch, const BlockTables& tables,
               const StepShape& shape, cudaStream_t stream, bool reserved = false);

  /// What was logged by steps of this shape that are complete. Errors: as DeviceMemory::Download.
  Result<StepLog> Log(const StepShape& shape, cudaStream_t stream);

 private:
  DeviceMemory* memory_ = nullptr;
  int ring_blocks_ = 0;
  DeviceBuffer buffer_;
  SharedBuffer shared_;  // where the device shares memory with the host
  std::vector<std::int32_t> plain_;
  DeviceBuffer log_buffer_;  // where it shares none
  std::int32_t* staging_ = nullptr;
  std::int32_t* log_ = nullptr;  // on the host
  DevicePtr log_address_ = 0;
};

}  // namespace culet
