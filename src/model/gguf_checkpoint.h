// Weights out of a GGUF file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

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
  /// known, and for columns of a rank that are no whole blocks, with the tensor's name and type.
  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
             WeightRole role) override;
  Weight GetPart(const WeightRequest& request) override;
  Weight GetStacked(const StackedRequest& request) override;
  std::pair<Weight, Weight> GetHeadParts(const std::string& name, std::int64_t heads,
                                         std::int64_t keys, std::int64_t values, std::int64_t k,
                                         ShardRange range) override;
  void Leave(const std::string& name) override;
  const Status& status() const noexcept override { return status_; }
  DataType TypeOf(const std::string& name, WeightRole role) const override;

  /// Ok when every tensor was asked for, or may be ignored.
  /// Errors: INVALID_ARGUMENT that names the others.
  Status AllRead() const;

  /// Bytes of all tensors as they will be in memory.
  std::size_t bytes() const;

 private:
  /// Some rows and columns of a tensor, whose bytes may lie apart from it.
  struct Part {
    GgufTensor tensor;
    std::vector<std::byte> bytes;  ///< empty: in the mapping
  };
  /// Null, and Fail, where there is none of this shape, or its type is not known. `all`: its
  /// columns first.
  const GgufTensor* Found(const std::string& name, std::vector<std::int64_t> all, bool vector);
  bool Cut(const GgufTensor& tensor, std::int64_t first_row, std::int64_t rows,
           std::int64_t first_col, std::int64_t cols, Part& part);
  Weight Codes(const GgufTensor& tensor, Weight weight);
  void Numbers(const Part& part, Weight& weight);
  /// F32, F16 and BF16 as they are, others as BF16: what cannot be codes.
  Weight Widened(const Part& part, Weight weight);
  bool TakesCodes(const GgufTensor& tensor, WeightRole role) const noexcept;
  bool IsAhead(std::string_view name) const;
  DevicePtr Copied(const void* data, std::size_t bytes, WeightPart part = WeightPart::kValues);
  void Fail(StatusCode code, std::string message);

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  const DecoderConfig& config_;
  std::unordered_set<const GgufTensor*> read_;
  Status status_;
};

}  // namespace culet
