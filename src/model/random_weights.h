// Random weights, for timing models without their files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "model/weight_source.h"

namespace culet {

class RandomWeights final : public WeightSource {
 public:
  /// `type` as DecoderModel::Random.
  RandomWeights(DataType type, std::uint64_t seed, WeightMemory& memory);

  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
             WeightRole role) override;
  /// Bytes of the weights that a model of `config` gets.
  static Result<std::size_t> BytesFor(const DecoderConfig& config, DataType type);

  const Status& status() const noexcept override { return status_; }
  DataType TypeOf(const std::string& name, WeightRole role) const override;
  DataType TypeOfStacked(const StackedRequest& request) const override {
    return TypeOf(request.name, WeightRole::kPlain);
  }
  std::optional<PartBytes> BytesOfCodes(const WeightRequest& request) const override;

 private:
  // Of one that only counts.
  RandomWeights(DataType type, WeightMemory& memory) : WeightSource(memory), type_(type) {}

  const std::vector<std::byte>& PaletteAs(DataType type, double scale, double mean);
  DevicePtr Fill(DataType type, std::int64_t elements, double scale, double mean,
                 WeightPart part = WeightPart::kValues);
  // Codes of 4 or 8 bits, each as likely as any other.
  DevicePtr FillCodes(std::int64_t bytes);
  DevicePtr FillWith(const std::vector<std::byte>& palette, std::size_t size, std::size_t count,
                     WeightPart part);
  void AddScales(Weight& weight, double deviation);

  DataType type_;
  std::uint64_t state_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::byte> codes_;
  std::vector<float> palette_;  // standard normal; empty: weights are counted, not made
  // As the weights have it: most of them share a type and a scale.
  std::map<std::tuple<DataType, double, double>, std::vector<std::byte>> converted_;
  Status status_;
};

}  // namespace culet
