// The runtime inputs of a step: made on the host, copied to fixed addresses on the device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "culet/decoder.h"
#include "culet/kernel_dispatch.h"
#include "model/kv_cache.h"

namespace culet {

class StepInputs {
 public:
  StepInputs() = default;
  /// Memory for steps of up to so many tokens and sequences. Errors: as DeviceMemory::Allocate.
  static Result<StepInputs> Create(DeviceMemory& memory, int tokens, int sequences,
                                   int table_blocks);

  /// Addresses, the same for every step.
  const DecoderInputs& addresses() const noexcept { return addresses_; }

  /// Writes the inputs of a step whose tokens are in the tables already. `all_rows`: no rows of
  /// logits are picked. Errors: as DeviceMemory::Upload.
  Status Write(std::span<const SequenceTokens> batch, const BlockTables& tables, bool all_rows,
               cudaStream_t stream);

 private:
  Status Upload(DevicePtr to, const std::vector<std::int32_t>& values, cudaStream_t stream);

  DeviceMemory* memory_ = nullptr;
  DeviceBuffer buffer_;
  DecoderInputs addresses_;
  int table_blocks_ = 0;
};

}  // namespace culet
