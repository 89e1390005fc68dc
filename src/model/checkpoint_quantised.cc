// Quantised weights of a checkpoint: their scales, and what is packed.
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/float_types.h"
#include "model/checkpoint.h"
#include "model/packed_weight.h"
#include "model/quantization_config.h"

namespace culet {
namespace {

using Form = WeightCoding::Form;

constexpr std::string_view kWeight = ".weight";

constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

bool IsFloat(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16;
}

}  // namespace

std::vector<float> FloatsOf(const SafetensorsTensor& tensor) {
  std::vector<float> floats;
  const std::size_t size = SizeOf(tensor.type());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    alignas(4) std::byte element[4] = {};
    std::memcpy(element, tensor.data + static_cast<std::size_t>(i) * size, size);
    floats.push_back(static_cast<float>(LoadAsDouble(element, tensor.type(), 0)));
  }
  return floats;
}

bool Checkpoint::MayBeQuantised(const SafetensorsTensor& tensor, const std::string& name) {
  const std::string module = name.substr(0, name.size() - kWeight.size());
  if (!ListsModule(config_->coding.plain, module)) return true;
  Fail(StatusCode::kInvalidArgument,
       fmt::format("tensor {} is {}, but quantization_config lists {} among the modules that are "
                   "not quantised; take it off the list, or store the layer in 16 bits",
                   tensor.name, tensor.dtype, module));
  return false;
}

DevicePtr Checkpoint::Copied(const void* data, std::size_t bytes, bool scales) {
  const auto copy = memory().Copy(data, bytes, scales);
  if (copy) return *copy;
  Fail(copy.status().code(), copy.status().message());
  return 0;
}

// The tensor with the scales of E4M3 weights `name`, of the shape that it must have; null: it has
// not.
const SafetensorsTensor* Checkpoint::ScalesOf(const std::string& name, std::int64_t rows,
                                              std::int64_t cols) {
  const WeightCoding& coding = config_->coding;
  const bool inverse = coding.form == Form::kFp8;
  const SafetensorsTensor* tensor = Find(name + (inverse ? "_scale_inv" : "_scale"));
  if (tensor == nullptr) return nullptr;
  const std::int64_t block = coding.weights.group_size;
  const bool one = coding.weights.type == QuantType::kTensor;
  std::vector<std::int64_t> wanted{rows, 1};
  if (coding.weights.type == QuantType::kB) wanted = {CeilDiv(rows, block), CeilDiv(cols, block)};
  const bool row = coding.weights.type == QuantType::kRow && tensor->shape.size() == 1 &&
                   tensor->shape[0] == rows;
  if (one ? tensor->elements() != 1 : tensor->shape != wanted && !row) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is [{}]; the config makes it [{}]", tensor->name,
                     fmt::join(tensor->shape, ", "),
                     one ? std::string("1") : fmt::format("{}", fmt::join(wanted, ", "))));
    return nullptr;
  }
  if (!IsFloat(tensor->type())) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; scales are F32, F16 or BF16", tensor->name, tensor->dtype));
    return nullptr;
  }
  return tensor;
}

void Checkpoint::AddScales(Weight& weight) {
  const WeightCoding& coding = config_->coding;
  const SafetensorsTensor* tensor = ScalesOf(weight.name, weight.rows, weight.cols);
  if (tensor == nullptr) return;
  const DataType type = tensor->type();
  const bool one = coding.weights.type == QuantType::kTensor;
  // One for the whole weight is one for each row, so that weights can be joined.
  weight.quant = one ? QuantDesc{QuantType::kRow} : coding.weights;
  weight.scales_type = DataType::kFloat32;
  weight.input_quant = coding.inputs;
  if (type == DataType::kFloat32 && !one) {
    weight.scales_ptr = Place(*tensor, type, true);
  } else {
    // Scales of 16 bits widen exactly.
    std::vector<float> wide = FloatsOf(*tensor);
    if (one) wide.assign(static_cast<std::size_t>(weight.rows), wide.front());
    weight.scales_ptr = Copied(wide.data(), wide.size() * sizeof(float), true);
  }
  if (coding.given_inputs) AddInputScale(weight);
}

void Checkpoint::AddInputScale(Weight& weight) {
  const std::string module = weight.name.substr(0, weight.name.size() - kWeight.size());
  const SafetensorsTensor* tensor = Find(module + ".input_scale");
  if (tensor == nullptr) return;
  if (tensor->elements() != 1 || !IsFloat(tensor->type())) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is {} [{}]; the scale of all inputs is one number of F32, F16 or "
                     "BF16",
                     tensor->name, tensor->dtype, fmt::join(tensor->shape, ", ")));
    return;
  }
  weight.input_scale = FloatsOf(*tensor).front();
  if (weight.input_scale > 0 && std::isfinite(weight.input_scale)) return;
  Fail(StatusCode::kInvalidArgument,
       fmt::format("tensor {} holds {}; the scale of inputs must be a positive number; calibrate "
                   "the model again",
                   tensor->name, weight.input_scale));
}

Weight Checkpoint::GetPacked(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const WeightCoding& coding = config_->coding;
  const bool by_words = coding.form != Form::kPackQuantized;
  const std::string module = name.substr(0, name.size() - kWeight.size());
  const auto optional = [&](const std::string& tensor) -> const SafetensorsTensor* {
    return Peek(tensor) == nullptr ? nullptr : Find(tensor);
  };
  PackedTensors tensors;
  tensors.codes = Find(module + (by_words ? ".qweight" : ".weight_packed"));
  if (tensors.codes == nullptr || !MayBeQuantised(*tensors.codes, name)) return {};
  if (!memory().memory().reads_host_memory()) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} has weights of 4 bits, which products of this device do not take "
                     "yet; run the model on the CPU, or take one of 16 or 8 bits",
                     tensors.codes->name));
    return {};
  }
  tensors.scales = Find(module + (by_words ? ".scales" : ".weight_scale"));
  const std::string zeros = module + (by_words ? ".qzeros" : ".weight_zero_point");
  tensors.zeros = coding.zeros ? Find(zeros) : nullptr;
  if (coding.form != Form::kAwq) {
    tensors.order = optional(module + (by_words ? ".g_idx" : ".weight_g_idx"));
  }
  if (!by_words) tensors.shape = optional(module + ".weight_shape");
  if (!status_.ok()) return {};
  const auto unpacked = Unpack(tensors, coding, rows, cols);
  if (!unpacked) {
    Fail(unpacked.status().code(), unpacked.status().message());
    return {};
  }
  Weight weight;
  weight.name = name;
  weight.type = DataType::kUint4;
  weight.rows = rows;
  weight.cols = cols;
  weight.quant = coding.weights;
  weight.data_ptr = Copied(unpacked->codes.data(), unpacked->codes.size());
  weight.scales_type = unpacked->scales_type;
  weight.scales_ptr = Copied(unpacked->scales.data(), unpacked->scales.size());
  weight.zeros_type = DataType::kBfloat16;
  weight.zeros_ptr = Copied(unpacked->zeros.data(), unpacked->zeros.size() * sizeof(std::uint16_t));
  if (!unpacked->order.empty()) {
    weight.order_ptr =
        Copied(unpacked->order.data(), unpacked->order.size() * sizeof(std::int32_t));
  }
  return status_.ok() ? weight : Weight{};
}

}  // namespace culet
