// Weights of no meaning, for timing models without their files.
#pragma once

#include <cstdint>
#include <vector>

#include "model/weight_source.h"

namespace culet {

class RandomWeights final : public WeightSource {
 public:
  /// `type` as DecoderModel::Random.
  RandomWeights(DataType type, std::uint64_t seed, WeightMemory& memory);

  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
             WeightRole role) override;
  const Status& status() const noexcept override { return status_; }

 private:
  DevicePtr Fill(DataType type, std::int64_t elements, double scale, double mean);
  DevicePtr Place(const void* data, std::size_t bytes);

  DataType type_;
  std::uint64_t state_;
  WeightMemory& memory_;
  std::vector<float> palette_;  // standard normal
  Status status_;
};

}  // namespace culet
