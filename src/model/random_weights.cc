#include "model/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "base/float_types.h"

namespace culet {
namespace {

// Too long for any cache, and odd so that rows of usual lengths differ.
constexpr std::size_t kPaletteSize = (std::size_t{1} << 20) + 7;
constexpr int kBlock = 128;
constexpr double kE4m3Spread = 448 / 4.0;  // four standard deviations fill the format

}  // namespace

RandomWeights::RandomWeights(DataType type, std::uint64_t seed, WeightMemory& memory)
    : WeightSource(memory), type_(type), state_(seed), palette_(kPaletteSize) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (float& value : palette_) value = normal(random);
}

const std::vector<std::byte>& RandomWeights::PaletteAs(DataType type, double scale, double mean) {
  std::vector<std::byte>& data = converted_[{type, scale, mean}];
  if (!data.empty()) return data;
  data.resize(kPaletteSize * SizeOf(type));
  for (std::size_t i = 0; i < kPaletteSize; ++i) {
    StoreFromDouble(data.data(), type, static_cast<std::int64_t>(i), mean + scale * palette_[i]);
  }
  return data;
}

DevicePtr RandomWeights::Fill(DataType type, std::int64_t elements, double scale, double mean,
                              bool scales) {
  const std::size_t size = SizeOf(type);
  const auto count = static_cast<std::size_t>(elements);
  bytes_ += count * size;
  if (palette_.empty()) return 1;  // no address, but one
  // Each weight begins elsewhere in the palette.
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  const std::size_t at = static_cast<std::size_t>(state_ >> 33) % kPaletteSize;
  const std::vector<std::byte>& palette = PaletteAs(type, scale, mean);
  const auto place = memory().Place(count * size, scales);
  status_ = place.status();
  for (std::size_t done = 0; done < count && status_.ok();) {
    const std::size_t from = (at + done) % kPaletteSize;
    const std::size_t taken = std::min(count - done, kPaletteSize - from);
    status_ = memory().Put(*place + done * size, palette.data() + from * size, taken * size);
    done += taken;
  }
  return status_.ok() ? *place : 0;
}

Result<std::size_t> RandomWeights::BytesFor(const DecoderConfig& config, DataType type) {
  WeightMemory none(HostMemory());
  RandomWeights counted(type, none);
  const auto bound = BindDecoder(config, counted);
  if (!bound) return bound.status();
  return counted.bytes_;
}

DataType RandomWeights::TypeOf(const std::string&, WeightRole role) const {
  if (type_ != DataType::kFloat8_e4m3 || role == WeightRole::kProduct) return type_;
  return DataType::kBfloat16;
}

Weight RandomWeights::Get(const std::string& name, std::int64_t rows, std::int64_t cols,
                          WeightRole role) {
  Weight weight;
  if (!status_.ok()) return weight;
  weight.name = name;
  weight.rows = rows;
  weight.cols = cols;
  weight.type = TypeOf(name, role);
  const double deviation = 1 / std::sqrt(static_cast<double>(cols));
  if (role == WeightRole::kVector || role == WeightRole::kGammaLessOne) {
    const bool norm = name.ends_with("norm.weight");
    weight.data_ptr = Fill(weight.type, cols, norm ? 0.1 : deviation, norm ? 1 : 0);
  } else if (weight.type != DataType::kFloat8_e4m3) {
    weight.data_ptr = Fill(weight.type, rows * cols, deviation, 0);
  } else {
    weight.data_ptr = Fill(weight.type, rows * cols, kE4m3Spread, 0);
    weight.quant = {QuantType::kB, kBlock};
    weight.input_quant = {QuantType::kK, kBlock};
    weight.scales_type = DataType::kFloat32;
    const std::int64_t blocks = ((rows + kBlock - 1) / kBlock) * ((cols + kBlock - 1) / kBlock);
    const double scale = deviation / kE4m3Spread;
    weight.scales_ptr = Fill(DataType::kFloat32, blocks, scale / 16, scale, true);
  }
  return status_.ok() ? weight : Weight{};
}

}  // namespace culet
