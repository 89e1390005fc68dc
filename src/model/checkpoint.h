// Weights out of the safetensors files of a folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "culet/safetensors.h"
#include "model/weight_source.h"

namespace culet {

class Checkpoint final : public WeightSource {
 public:
  /// Opens model.safetensors, or all shards of model.safetensors.index.json, which decides where a
  /// tensor is that lies in several.
  /// Errors: NOT_FOUND when there is neither; as SafetensorsFile::Open; DATA_LOSS for an index that
  /// contradicts its shards.
  static Result<Checkpoint> Open(const std::string& folder, const DecoderConfig& config,
                                 WeightMemory& memory);

  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
             WeightRole role) override;
  Weight GetPart(const WeightRequest& request) override;
  Weight GetIfThere(const std::string& name, std::int64_t cols, ShardRange range) override;
  void Leave(const std::string& name) override;
  void LeaveAll(const std::string& prefix) override;
  Weight GetStacked(const StackedRequest& request) override;
  DataType TypeOfStacked(const StackedRequest& request) const override;
  std::pair<Weight, Weight> GetHeadParts(const std::string& name, std::int64_t heads,
                                         std::int64_t keys, std::int64_t values, std::int64_t k,
                                         ShardRange range) override;
  std::size_t read_bytes() const override { return read_bytes_; }
  const Status& status() const noexcept override { return status_; }
  std::optional<PartBytes> BytesOfCodes(const WeightRequest& request) const override;
  DataType TypeOf(const std::string& name, WeightRole role) const override;
  QuantDesc QuantOfE4m3() const override { return config_->coding.weights; }

  /// Whether there is a head beside the embedding, with other values.
  bool HasOwnHead() const;

  /// Ok when every tensor was asked for, or may be ignored.
  /// Errors: INVALID_ARGUMENT that names the others.
  Status AllRead() const;

  /// Bytes of all tensors that a model may read.
  std::size_t bytes() const;

  /// The mappings, which the weights point into.
  std::vector<SafetensorsFile> TakeFiles() && { return std::move(files_); }

 private:
  Checkpoint(const DecoderConfig& config, WeightMemory& memory)
      : WeightSource(memory), config_(&config) {}
  /// Which shard of the index holds a tensor.
  using Shards = std::unordered_map<std::string, std::string>;
  Status AddFile(const std::string& folder, const std::string& file, const Shards& shards = {});
  Status AddShards(const std::string& folder, const std::string& index);
  /// By its name, or by the one without "model." that files of base models use; null without.
  const SafetensorsTensor* Peek(const std::string& name) const;
  const SafetensorsTensor* Find(const std::string& name);
  // Of the part of a weight that is being read (checkpoint_part.cc).
  /// What a dimension of a tensor counts: `grain` rows or columns of the weight, or one for all.
  struct Dimension {
    enum class Of : std::uint8_t { kOne, kRows, kCols } of = Of::kOne;
    std::int64_t grain = 1;
  };
  static constexpr Dimension Rows(std::int64_t grain = 1) { return {Dimension::Of::kRows, grain}; }
  static constexpr Dimension Cols(std::int64_t grain = 1) { return {Dimension::Of::kCols, grain}; }
  /// As Find: what the part has of the tensor, of which it reads no more.
  const SafetensorsTensor* FindPart(const std::string& name, const std::vector<Dimension>& of);
  bool CutDimension(const SafetensorsTensor& tensor, const Dimension& dimension, std::size_t number,
                    std::int64_t& first, std::int64_t& count);
  bool IsCopy(const std::byte* data) const;
  bool IsLeft(const std::string& name) const;
  void BeginPart(const WeightRequest& request);
  void EndPart();
  bool IsIgnored(const std::string& name) const;
  bool IsAhead(std::string_view name) const;
  bool HasShape(const SafetensorsTensor& tensor, std::int64_t rows, std::int64_t cols,
                WeightRole role);
  DevicePtr Place(const SafetensorsTensor& tensor, DataType type,
                  WeightPart part = WeightPart::kValues);
  DevicePtr Place(const std::byte* data, std::size_t bytes, DataType type,
                  WeightPart part = WeightPart::kValues);
  void AddOne(Weight& weight, const SafetensorsTensor& tensor);
  // Of quantised weights (checkpoint_quantised.cc).
  bool MayBeQuantised(const SafetensorsTensor& tensor, const std::string& name);
  void AddScales(Weight& weight);
  std::pair<Weight, Weight> HeadParts(const std::string& name, std::int64_t heads,
                                      std::int64_t keys, std::int64_t values, std::int64_t k);
  const SafetensorsTensor* ScalesOf(const std::string& name, std::int64_t rows, std::int64_t cols);
  void AddInputScale(Weight& weight);
  DevicePtr Copied(const void* data, std::size_t bytes, WeightPart part = WeightPart::kValues);
  Weight GetPacked(const std::string& name, std::int64_t rows, std::int64_t cols);
  Weight GetNvfp4(const std::string& name, std::int64_t rows, std::int64_t cols);
  Weight GetMxfp4(const StackedRequest& request);
  bool IsPlainOrder(const SafetensorsTensor& order, std::int64_t group);
  bool Has(const SafetensorsTensor* tensor, const char* dtype,
           const std::vector<std::int64_t>& shape);
  void Fail(StatusCode code, std::string message);

  const DecoderConfig* config_;
  std::vector<SafetensorsFile> files_;
  std::unordered_map<std::string, const SafetensorsTensor*> tensors_;
  std::unordered_set<const SafetensorsTensor*> read_;
  std::set<std::string> left_;  ///< how names of other ranks' tensors begin
  std::size_t read_bytes_ = 0;
  WeightRequest part_;  // `of` and `of_cols` 0: all of it
  /// Pieces of tensors, with their bytes where these do not lie together.
  struct Piece {
    SafetensorsTensor tensor;
    std::vector<std::byte> bytes;
  };
  std::deque<Piece> pieces_;
  Status status_;
};

/// All elements of a floating-point tensor, whose bytes may lie anywhere.
std::vector<float> FloatsOf(const SafetensorsTensor& tensor);

}  // namespace culet
