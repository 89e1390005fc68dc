// Weights out of a GGUF file.
#pragma once

#include <string>
#include <unordered_set>

#include "model/gguf_file.h"
#include "model/gguf_names.h"
#include "model/weight_source.h"

namespace culet {

class GgufCheckpoint final : public WeightSource {
 public:
  /// Requires: a config that came from this file; both outlive the checkpoint.
  GgufCheckpoint(const GgufFile& file, const GgufArchitecture& architecture,
                 const DecoderConfig& config, WeightMemory& memory)
      : WeightSource(memory), file_(file), architecture_(architecture), config_(config) {}

  /// F32, F16 and BF16 stay in the mapping. Matrices of other types are codes with scales, vectors
  /// float32. Errors beside those of WeightSource: UNSUPPORTED for types that are not
  /// known, and on devices whose products take no codes, with the tensor's name and type.
  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
             WeightRole role) override;
  Weight GetPart(const WeightRequest& request) override;
  const Status& status() const noexcept override { return status_; }
  DataType TypeOf(const std::string& name, WeightRole role) const override;

  /// Ok when every tensor was asked for, or may be ignored.
  /// Errors: INVALID_ARGUMENT that names the others.
  Status AllRead() const;

  /// Bytes of all tensors as they will be in memory.
  std::size_t bytes() const;

 private:
  Weight Codes(const GgufTensor& tensor, Weight weight);
  void Numbers(const GgufTensor& tensor, Weight& weight);
  DevicePtr Copied(const void* data, std::size_t bytes, WeightPart part = WeightPart::kValues);
  void Fail(StatusCode code, std::string message);

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  const DecoderConfig& config_;
  std::unordered_set<const GgufTensor*> read_;
  Status status_;
};

}  // namespace culet
