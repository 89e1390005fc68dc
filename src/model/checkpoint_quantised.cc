// Quantised weights of a checkpoint: their scales, and what is packed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/ceil_div.h"
#include "base/float_types.h"
#include "model/checkpoint.h"
#include "model/packed_weight.h"
#include "model/plain_types.h"
#include "model/quantization_config.h"

namespace culet {
namespace {

using Form = WeightCoding::Form;

constexpr std::string_view kWeight = ".weight";

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

DevicePtr Checkpoint::Copied(const void* data, std::size_t bytes, WeightPart part) {
  const auto copy = memory().Copy(data, bytes, part);
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
  const std::int64_t block = coding.weights.group_size;
  const bool one = coding.weights.type == QuantType::kTensor;
  const std::string scales = name + (inverse ? "_scale_inv" : "_scale");
  const SafetensorsTensor* tensor = one ? Find(scales)
                                    : coding.weights.type == QuantType::kB
                                        ? FindPart(scales, {Rows(block), Cols(block)})
                                        : FindPart(scales, {Rows(), Dimension{}});
  if (tensor == nullptr) return nullptr;
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
  if (!IsPlain(tensor->type())) {
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
    weight.scales_ptr = Place(*tensor, type, WeightPart::kScales);
  } else {
    // Scales of 16 bits widen exactly.
    std::vector<float> wide = FloatsOf(*tensor);
    if (one) wide.assign(static_cast<std::size_t>(weight.rows), wide.front());
    weight.scales_ptr = Copied(wide.data(), wide.size() * sizeof(float), WeightPart::kScales);
  }
  if (coding.given_inputs) AddInputScale(weight);
}

void Checkpoint::AddInputScale(Weight& weight) {
  const std::string module = weight.name.substr(0, weight.name.size() - kWeight.size());
  const SafetensorsTensor* tensor = Find(module + ".input_scale");
  if (tensor == nullptr) return;
  if (tensor->elements() != 1 || !IsPlain(tensor->type())) {
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

// Whether it is there, of this type and shape.
bool Checkpoint::Has(const SafetensorsTensor* tensor, const char* dtype,
                     const std::vector<std::int64_t>& shape) {
  if (tensor == nullptr) return false;
  if (tensor->dtype == dtype && tensor->shape == shape) return true;
  Fail(StatusCode::kInvalidArgument,
       fmt::format("tensor {} is {} [{}]; the config makes it {} [{}]", tensor->name, tensor->dtype,
                   fmt::join(tensor->shape, ", "), dtype, fmt::join(shape, ", ")));
  return false;
}

// Codes of E2M1 lie as ours do: the even one in a byte's lower half. A scale is that of 16 elements
// over that of the tensor.
Weight Checkpoint::GetNvfp4(const std::string& name, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kGroup = 16;
  const std::string module = name.substr(0, name.size() - kWeight.size());
  const SafetensorsTensor* codes = FindPart(module + ".weight_packed", {Rows(), Cols(2)});
  if (codes == nullptr || !MayBeQuantised(*codes, name)) return {};
  if (cols % kGroup != 0) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is of {} input features, no multiple of {}; leave it in 16 bits",
                     codes->name, cols, kGroup));
    return {};
  }
  const SafetensorsTensor* scales = FindPart(module + ".weight_scale", {Rows(), Cols(kGroup)});
  const SafetensorsTensor* all = Find(module + ".weight_global_scale");
  if (!Has(codes, "U8", {rows, cols / 2}) || !Has(scales, "F8_E4M3", {rows, cols / kGroup}) ||
      !Has(all, "F32", {1})) {
    return {};
  }
  const float divisor = FloatsOf(*all).front();
  if (!(divisor > 0) || !std::isfinite(divisor)) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} holds {}; it must be a positive number; quantise the model again",
                     all->name, divisor));
    return {};
  }
  std::vector<float> quotients = FloatsOf(*scales);
  for (std::size_t i = 0; i < quotients.size(); ++i) {
    if (std::isnan(quotients[i])) {
      const auto across = static_cast<std::size_t>(cols / kGroup);
      Fail(StatusCode::kInvalidArgument,
           fmt::format("tensor {} holds NaN for output feature {}, group {}; quantise the model "
                       "again",
                       scales->name, i / across, i % across));
      return {};
    }
    quotients[i] /= divisor;
  }
  Weight weight;
  weight.name = name;
  weight.type = DataType::kFloat4_e2m1;
  weight.rows = rows;
  weight.cols = cols;
  weight.quant = config_->coding.weights;
  weight.data_ptr =
      Place(codes->data, static_cast<std::size_t>(codes->bytes), DataType::kFloat4_e2m1);
  weight.scales_type = DataType::kFloat32;
  weight.scales_ptr =
      Copied(quotients.data(), quotients.size() * sizeof(float), WeightPart::kScales);
  return status_.ok() ? weight : Weight{};
}

// gpt-oss: `_blocks` (experts, rows, groups, 16) and `_scales` (experts, rows, groups). 16 bytes
// are 32 elements in order.
Weight Checkpoint::GetMxfp4(const StackedRequest& request) {
  constexpr std::int64_t kGroup = 32;
  constexpr auto kNan = std::byte{255};
  if (!status_.ok()) return {};
  const std::string of_codes = request.name + "_blocks", of_scales = request.name + "_scales";
  const SafetensorsTensor* codes = Peek(of_codes) != nullptr ? Peek(of_codes) : Find(of_codes);
  const SafetensorsTensor* scales = Peek(of_scales) != nullptr ? Peek(of_scales) : Find(of_scales);
  if (codes == nullptr || scales == nullptr) return {};
  Leave(of_codes);
  Leave(of_scales);
  const std::int64_t cols = request.of_cols > 0 ? request.of_cols : request.cols;
  const std::int64_t groups = CeilDiv(cols, kGroup), own = CeilDiv(request.cols, kGroup);
  if (!Has(codes, "U8", {request.count, request.of, groups, kGroup / 2}) ||
      !Has(scales, "U8", {request.count, request.of, groups})) {
    return {};
  }
  if (request.cols % kGroup != 0 || request.first_col % kGroup != 0) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is of {} input features; MXFP4 has groups of {}", codes->name,
                     request.cols, kGroup));
    return {};
  }
  Weight weight;
  weight.name =
      fmt::format("{}[{}, {}::{}]", request.name, request.number, request.first, request.step);
  weight.type = DataType::kFloat4_e2m1;
  weight.rows = request.rows;
  weight.cols = request.cols;
  weight.quant = {QuantType::kK, kGroup};
  weight.scales_type = DataType::kFloat8_ue8m0;
  const std::int64_t first = request.number * request.of + request.first;
  const std::int64_t before = request.first_col / kGroup;
  for (std::int64_t row = 0; row < request.rows; ++row) {
    const std::byte* const of = scales->data + (first + row * request.step) * groups + before;
    if (std::find(of, of + own, kNan) == of + own) continue;
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} holds 255, no number, for expert {}, row {}; fetch the checkpoint "
                     "again",
                     scales->name, request.number, request.first + row * request.step));
    return {};
  }
  // Whole rows one behind the other stay where they are.
  const auto placed = [&](const std::byte* data, std::int64_t group_bytes, WeightPart part) {
    const std::int64_t row_bytes = groups * group_bytes, own_bytes = own * group_bytes;
    data += first * row_bytes + before * group_bytes;
    const auto bytes = static_cast<std::size_t>(request.rows * own_bytes);
    read_bytes_ += bytes;
    if (request.step == 1 && own == groups) {
      return Place(data, bytes, DataType::kFloat8_ue8m0, part);
    }
    std::vector<std::byte> rows(bytes);
    for (std::int64_t row = 0; row < request.rows; ++row) {
      std::memcpy(rows.data() + row * own_bytes, data + row * request.step * row_bytes,
                  static_cast<std::size_t>(own_bytes));
    }
    return Copied(rows.data(), rows.size(), part);
  };
  weight.data_ptr = placed(codes->data, kGroup / 2, WeightPart::kValues);
  weight.scales_ptr = placed(scales->data, 1, WeightPart::kScales);
  return status_.ok() ? weight : Weight{};
}

// As GetPacked and GetNvfp4 place them, of a part as of the whole.
std::optional<PartBytes> Checkpoint::BytesOfCodes(const WeightRequest& request) const {
  const WeightCoding& coding = config_->coding;
  if (Peek(request.name) != nullptr) return std::nullopt;
  const std::string module = request.name.substr(0, request.name.size() - kWeight.size());
  const auto elements = static_cast<std::size_t>(request.rows * request.cols);
  const std::int64_t group =
      coding.weights.type == QuantType::kK ? coding.weights.group_size : request.cols;
  const auto groups = static_cast<std::size_t>(request.rows * CeilDiv(request.cols, group));
  if (coding.is_nvfp4()) return PartBytes{elements / 2, groups * sizeof(float), 0};
  if (!coding.is_u4()) return std::nullopt;
  const bool by_words = coding.form != Form::kPackQuantized;
  const SafetensorsTensor* scales = Peek(module + (by_words ? ".scales" : ".weight_scale"));
  if (scales == nullptr) return std::nullopt;
  return PartBytes{elements / 2, groups * SizeOf(scales->type()), groups * sizeof(std::uint16_t)};
}

// Columns of a g_idx that follow their groups can be cut between these.
bool Checkpoint::IsPlainOrder(const SafetensorsTensor& order, std::int64_t group) {
  for (std::int64_t i = 0; i < order.elements() && order.dtype == "I32"; ++i) {
    std::int32_t of = 0;
    std::memcpy(&of, order.data + static_cast<std::size_t>(i) * sizeof of, sizeof of);
    if (of == i / group) continue;
    Fail(StatusCode::kUnsupported,
         fmt::format(
             "tensor {} sorts columns by their importance, which ranks cannot share; run the "
             "model on one, or take one without desc_act",
             order.name));
    return false;
  }
  return true;
}

Weight Checkpoint::GetPacked(const std::string& name, std::int64_t rows, std::int64_t cols) {
  const WeightCoding& coding = config_->coding;
  const bool by_words = coding.form != Form::kPackQuantized;
  const std::string module = name.substr(0, name.size() - kWeight.size());
  const auto optional = [&](const std::string& tensor) -> const SafetensorsTensor* {
    return Peek(tensor) == nullptr ? nullptr : Find(tensor);
  };
  PackedTensors tensors;
  constexpr std::int64_t kWord = 8;  // codes
  const bool awq = coding.form == Form::kAwq, part = part_.of > 0 || part_.of_cols > 0;
  const Dimension group = Cols(coding.weights.type == QuantType::kK ? coding.weights.group_size
                               : part_.of_cols > 0                  ? part_.of_cols
                                                                    : cols);
  using Dimensions = std::vector<Dimension>;
  tensors.codes = FindPart(module + (by_words ? ".qweight" : ".weight_packed"),
                           awq        ? Dimensions{Cols(), Rows(kWord)}
                           : by_words ? Dimensions{Cols(kWord), Rows()}
                                      : Dimensions{Rows(), Cols(kWord)});
  if (tensors.codes == nullptr || !MayBeQuantised(*tensors.codes, name)) return {};
  tensors.scales = FindPart(module + (by_words ? ".scales" : ".weight_scale"),
                            by_words ? Dimensions{group, Rows()} : Dimensions{Rows(), group});
  const std::string zeros = module + (by_words ? ".qzeros" : ".weight_zero_point");
  if (coding.zeros) {
    tensors.zeros =
        FindPart(zeros, by_words ? Dimensions{group, Rows(kWord)} : Dimensions{Rows(kWord), group});
  }
  if (coding.form != Form::kAwq) {
    tensors.order = optional(module + (by_words ? ".g_idx" : ".weight_g_idx"));
  }
  if (part_.of_cols > 0 && tensors.order != nullptr) {
    if (!IsPlainOrder(*tensors.order, group.grain)) return {};
    tensors.order = nullptr;
  }
  if (!by_words && part) Leave(module + ".weight_shape");
  if (!by_words && !part) tensors.shape = optional(module + ".weight_shape");
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
  weight.scales_ptr = Copied(unpacked->scales.data(), unpacked->scales.size(), WeightPart::kScales);
  weight.zeros_type = DataType::kBfloat16;
  weight.zeros_ptr = Copied(unpacked->zeros.data(), unpacked->zeros.size() * sizeof(std::uint16_t),
                            WeightPart::kZeros);
  if (!unpacked->order.empty()) {
    weight.order_ptr = Copied(unpacked->order.data(), unpacked->order.size() * sizeof(std::int32_t),
                              WeightPart::kApart);
  }
  return status_.ok() ? weight : Weight{};
}

}  // namespace culet
