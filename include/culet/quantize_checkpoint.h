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
  /// pack-quantized: as kU4, with a zero point for 128 input features.
  kU4Asymmetric,
};
constexpr bool IsU4(CheckpointFormat format) noexcept {
  return format == CheckpointFormat::kU4 || format == CheckpointFormat::kU4Asymmetric;
}
/// "u4", "fp8-row", "fp8-block", "u4-asymmetric".
const char* ToString(CheckpointFormat) noexcept;
/// Errors: INVALID_ARGUMENT for another text, listing the known ones.
Result<CheckpointFormat> ParseCheckpointFormat(std::string_view text);

struct QuantizeCheckpointOptions {
  CheckpointFormat format = CheckpointFormat::kU4;
  /// Linear layers that stay as they are, as a config's `ignore` names modules: the whole name, its
  /// first or its last parts, or "re:" and a regular expression that its beginning matches.
  std::vector<std::string> keep;
  /// Called after each tensor with the bytes read until then and those of all. May be null.
  std::function<void(std::size_t done, std::size_t all)> on_progress = nullptr;
  /// Asked before each tensor; true ends it. May be null; one that throws is a yes.
  std::function<bool()> stop = nullptr;
};

struct QuantizedCheckpoint {
  std::size_t quantised = 0;  ///< linear layers
  /// Modules that stay as they are: lm_head, routers, those that `keep` names, what has input
  /// features that are no multiple of the format's groups, and tensors of several weights that the
  /// groups of output features (128 of kFp8Block, 8 of kU4Asymmetric's zero points) do not divide.
  std::vector<std::string> plain;
  std::size_t bytes_before = 0, bytes_after = 0;  ///< of all tensors
};

/// Writes the folder `out`, which must not exist or be empty: the checkpoint `folder` with its
/// linear layers rounded to the nearest codes, and the files beside it (tokenizer, generation
/// config). Scales have the type of the weight. Embedding, head, routers and norms stay. Tensors go
/// through memory one by one; until all is written `out` does not change.
/// Errors: as DecoderModel::Load of a folder in safetensors; INVALID_ARGUMENT for a checkpoint that
/// is quantised already, a weight that is not finite (named), an `out` that holds something, a text
/// of `keep` that names no linear layer; UNSUPPORTED for GGUF files, models of several parts and
/// tensors of all experts' weights (named), unless `keep` names them; IO; FAILED_PRECONDITION when
/// `stop` ended it.
Result<QuantizedCheckpoint> QuantizeCheckpoint(const std::string& folder, const std::string& out,
                                               const QuantizeCheckpointOptions& options);

}  // namespace culet
