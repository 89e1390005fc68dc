// A weight whose rows belong to heads in turn, taken apart: kv_b_proj of latent attention.
#include <cstring>

#include <fmt/format.h>

#include "base/float_types.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/plain_types.h"

namespace culet {
namespace {

// E4M3 codes times their scales. `across`: columns of a scale; `down`: rows.
std::vector<std::byte> Widened(const SafetensorsTensor& tensor, const std::vector<float>& scales,
                               std::int64_t down, std::int64_t across) {
  const std::int64_t rows = tensor.shape[0], cols = tensor.shape[1];
  std::vector<std::byte> wide(static_cast<std::size_t>(rows * cols) * sizeof(std::uint16_t));
  const std::int64_t of_row = (cols + across - 1) / across;
  HostPool().Run(static_cast<int>(rows), [&](int row, int) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const auto at = static_cast<std::size_t>(row * cols + col);
      const float code = Float8E4m3ToFloat(static_cast<std::uint8_t>(tensor.data[at]));
      const float scale = scales[static_cast<std::size_t>(row / down * of_row + col / across)];
      const std::uint16_t bits = FloatToBfloat16(code * scale);
      std::memcpy(wide.data() + at * sizeof bits, &bits, sizeof bits);
    }
  });
  return wide;
}

}  // namespace

std::pair<Weight, Weight> Checkpoint::GetHeadParts(const std::string& name, std::int64_t heads,
                                                   std::int64_t keys, std::int64_t values,
                                                   std::int64_t k, ShardRange range) {
  const std::int64_t head = keys + values, rows = heads * head;
  BeginPart({name, rows, k, WeightRole::kProduct, range.first * head, range.of * head});
  auto parts = HeadParts(name, heads, keys, values, k);
  EndPart();
  return parts;
}

std::pair<Weight, Weight> Checkpoint::HeadParts(const std::string& name, std::int64_t heads,
                                                std::int64_t keys, std::int64_t values,
                                                std::int64_t k) {
  std::pair<Weight, Weight> parts;
  if (!status_.ok()) return parts;
  const WeightCoding& coding = config_->coding;
  const std::int64_t rows = heads * (keys + values);
  if (coding.is_u4() && Peek(name) == nullptr) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is missing, whose weights are of 4 bits here; latent attention "
                     "takes them in 16 or 32 bits or E4M3",
                     name));
    return parts;
  }
  const SafetensorsTensor* tensor = FindPart(name, {Rows(), Cols()});
  if (tensor == nullptr || !HasShape(*tensor, rows, k, WeightRole::kPlain)) return parts;
  DataType type = tensor->type();
  const std::byte* data = tensor->data;
  std::vector<std::byte> wide;
  if (type == DataType::kFloat8_e4m3 && coding.is_e4m3()) {
    if (!MayBeQuantised(*tensor, name)) return parts;
    const SafetensorsTensor* const stored = ScalesOf(name, rows, k);
    if (stored == nullptr) return parts;
    const std::string module = name.substr(0, name.rfind('.'));
    if (coding.given_inputs) Find(module + ".input_scale");  // of a product that is not made
    const bool blocks = coding.weights.type == QuantType::kB;
    const std::int64_t block = coding.weights.group_size;
    const bool one = coding.weights.type == QuantType::kTensor;
    wide = Widened(*tensor, FloatsOf(*stored), blocks ? block : one ? rows : 1, blocks ? block : k);
    type = DataType::kBfloat16;
    data = wide.data();
  } else if (!IsPlain(type)) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; it must be F32, F16 or BF16, or F8_E4M3 where "
                     "quantization_config says so",
                     name, tensor->dtype));
    return parts;
  }
  const std::size_t size = SizeOf(type);
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size;
  };
  std::vector<std::byte> of_keys(bytes(heads * k * keys)), of_values(bytes(heads * values * k));
  HostPool().Run(static_cast<int>(heads), [&](int head, int) {
    const std::byte* const from = data + bytes(head * (keys + values) * k);
    std::byte* const to = of_keys.data() + bytes(head * k * keys);
    for (std::int64_t row = 0; row < keys; ++row) {
      for (std::int64_t col = 0; col < k; ++col) {
        std::memcpy(to + bytes(col * keys + row), from + bytes(row * k + col), size);
      }
    }
    std::memcpy(of_values.data() + bytes(head * values * k), from + bytes(keys * k),
                bytes(values * k));
  });
  const auto make = [&](const char* part, std::int64_t part_rows, std::int64_t cols,
                        const std::vector<std::byte>& elements) {
    Weight weight;
    weight.name = fmt::format("{}[{}]", name, part);
    weight.type = type;
    weight.rows = part_rows;
    weight.cols = cols;
    weight.data_ptr = Copied(elements.data(), elements.size());
    return weight;
  };
  parts.first = make("keys", heads * k, keys, of_keys);
  parts.second = make("values", heads * values, k, of_values);
  return status_.ok() ? parts : std::pair<Weight, Weight>{};
}

}  // namespace culet
