// Quantised checkpoints made from plain ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "culet/status.h"

namespace culet {

/// How linear layers are stored, in the form of compressed-tensors.
enum class CheckpointFormat : std::uint8_t {
  /// pack-quantized: codes of 4 bits, symmetric, a scale for 128 input features. Inputs stay.
  kU4 = 0,
  /// float-quantized: E4M3 with a scale an output feature; inputs are quantised by token.
  kFp8Row,
  /// float-quantized: E4M3 with a scale for 128 x 128; inputs are quantised in groups of 128.
  kFp8Block,
};
/// "u4", "fp8-row", "fp8-block".
const char* ToString(CheckpointFormat) noexcept;
/// Errors: INVALID_ARGUMENT for another text, listing the known ones.
Result<CheckpointFormat> ParseCheckpointFormat(std::string_view text);

struct QuantizeCheckpointOptions {
  CheckpointFormat format = CheckpointFormat::kU4;
  /// Called after each tensor with the bytes read until then and those of all. May be null.
  std::function<void(std::size_t done, std::size_t all)> on_progress = nullptr;
  /// Asked before each tensor; true ends it. May be null; one that throws is a yes.
  std::function<bool()> stop = nullptr;
};

struct QuantizedCheckpoint {
  std::size_t quantised = 0;  ///< linear layers
  /// Modules that stay as they are: lm_head, routers, and what has input features that are no
  /// multiple of the format's groups.
  std::vector<std::string> plain;
  std::size_t bytes_before = 0, bytes_after = 0;  ///< of all tensors
};

/// Writes the folder `out`, which must not exist or be empty: the checkpoint `folder` with its
/// linear layers rounded to the nearest codes, and the files beside it (tokenizer, generation
/// config). Scales have the type of the weight. Embedding, head, routers and norms stay. Tensors go
/// through memory one by one; until all is written `out` does not change.
/// Errors: as DecoderModel::Load of a folder in safetensors; INVALID_ARGUMENT for a checkpoint that
/// is quantised already, a weight that is not finite (named), an `out` that holds something;
/// UNSUPPORTED for GGUF files, models of several parts and tensors that hold several weights;
/// IO; FAILED_PRECONDITION when `stop` ended it.
Result<QuantizedCheckpoint> QuantizeCheckpoint(const std::string& folder, const std::string& out,
                                               const QuantizeCheckpointOptions& options);

}  // namespace culet
