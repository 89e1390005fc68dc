#include "model/random_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <random>

#include "base/float_types.h"
#include "base/scales.h"

namespace culet {
namespace {

// Too long for any cache, and odd so that rows of usual lengths differ.
constexpr std::size_t kPaletteSize = (std::size_t{1} << 20) + 7;
constexpr int kScaleBlock = 128;
constexpr double kE4m3Spread = 448 / 4.0;  // four standard deviations fill the format

// How codes have their scales: as the formats of the same names (culet/model.h).
struct CodesForm {
  int group;
  double spread;  // the standard deviation of a code
  DataType scales, zeros;
};
CodesForm FormOf(DataType type) noexcept {
  if (type == DataType::kUint4) return {128, 4.6, DataType::kFloat16, DataType::kBfloat16};
  if (type == DataType::kInt8) return {32, 74, DataType::kFloat16, DataType::kNull};
  return {32, 2.9, DataType::kFloat8_ue8m0, DataType::kNull};
}

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
                              WeightPart part) {
  const std::size_t size = SizeOf(type);
  const auto count = static_cast<std::size_t>(elements);
  bytes_ += count * size;
  if (palette_.empty()) return 1;  // no address, but one
  return FillWith(PaletteAs(type, scale, mean), size, count, part);
}

DevicePtr RandomWeights::FillCodes(std::int64_t bytes) {
  const auto count = static_cast<std::size_t>(bytes);
  bytes_ += count;
  if (palette_.empty()) return 1;
  if (codes_.empty()) {
    // The last bits of a normal number are as good as random.
    for (const float value : palette_) {
      codes_.push_back(static_cast<std::byte>(std::bit_cast<std::uint32_t>(value) & 0xFF));
    }
  }
  return FillWith(codes_, 1, count, WeightPart::kValues);
}

DevicePtr RandomWeights::FillWith(const std::vector<std::byte>& palette, std::size_t size,
                                  std::size_t count, WeightPart part) {
  // Each weight begins elsewhere in the palette.
  state_ = state_ * 6364136223846793005u + 1442695040888963407u;
  const std::size_t at = static_cast<std::size_t>(state_ >> 33) % kPaletteSize;
  const auto place = memory().Place(count * size, part);
  status_ = place.status();
  for (std::size_t done = 0; done < count && status_.ok();) {
    const std::size_t from = (at + done) % kPaletteSize;
    const std::size_t taken = std::min(count - done, kPaletteSize - from);
    status_ = memory().Put(*place + done * size, palette.data() + from * size, taken * size);
    done += taken;
  }
  return status_.ok() ? *place : 0;
}

void RandomWeights::AddScales(Weight& weight, double deviation) {
  const CodesForm form = FormOf(weight.type);
  weight.quant = {QuantType::kK, form.group};
  const std::int64_t groups = ScalesOf(weight);
  const double scale = deviation / form.spread;
  const bool powers = form.scales == DataType::kFloat8_ue8m0;
  weight.scales_type = form.scales;
  weight.scales_ptr =
      Fill(form.scales, groups, powers ? 0 : scale / 16, scale, WeightPart::kScales);
  if (form.zeros == DataType::kNull) return;
  weight.zeros_type = form.zeros;
  weight.zeros_ptr = Fill(form.zeros, groups, 0, 8, WeightPart::kZeros);
}

std::optional<PartBytes> RandomWeights::BytesOfCodes(const WeightRequest& request) const {
  Weight weight;
  weight.rows = request.rows;
  weight.cols = request.cols;
  const CodesForm form = FormOf(type_);
  weight.quant = {QuantType::kK, form.group};
  const auto groups = static_cast<std::size_t>(ScalesOf(weight));
  const auto values = static_cast<std::size_t>(culet::BytesOf(type_, request.rows * request.cols));
  return PartBytes{values, groups * SizeOf(form.scales), groups * SizeOf(form.zeros)};
}

Result<std::size_t> RandomWeights::BytesFor(const DecoderConfig& config, DataType type) {
  WeightMemory none(HostMemory());
  RandomWeights counted(type, none);
  const auto bound = BindDecoder(config, counted);
  if (!bound) return bound.status();
  return counted.bytes_;
}

DataType RandomWeights::TypeOf(const std::string&, WeightRole role) const {
  const bool quantised = type_ == DataType::kFloat8_e4m3 || IsCode(type_);
  if (!quantised || role == WeightRole::kProduct) return type_;
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
  } else if (IsCode(weight.type)) {
    weight.data_ptr = FillCodes(culet::BytesOf(weight.type, rows * cols));
    AddScales(weight, deviation);
  } else if (weight.type != DataType::kFloat8_e4m3) {
    weight.data_ptr = Fill(weight.type, rows * cols, deviation, 0);
  } else {
    weight.data_ptr = Fill(weight.type, rows * cols, kE4m3Spread, 0);
    weight.quant = {QuantType::kB, kScaleBlock};
    weight.input_quant = {QuantType::kK, kScaleBlock};
    weight.scales_type = DataType::kFloat32;
    const std::int64_t blocks =
        ((rows + kScaleBlock - 1) / kScaleBlock) * ((cols + kScaleBlock - 1) / kScaleBlock);
    const double scale = deviation / kE4m3Spread;
    weight.scales_ptr = Fill(DataType::kFloat32, blocks, scale / 16, scale, WeightPart::kScales);
  }
  return status_.ok() ? weight : Weight{};
}

}  // namespace culet
