#include "model/gguf_checkpoint.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/thread_pool.h"
#include "culet/printable.h"
#include "model/gguf_config.h"
#include "model/gguf_unpack.h"

namespace culet {
namespace {

// Of the config.
constexpr std::string_view kRopeFactors[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                             "rope_factors_long.weight"};

// Vectors are numbers; an embedding may be the head, too.
bool TakesCodes(WeightRole role) noexcept {
  return role != WeightRole::kVector && role != WeightRole::kGammaLessOne;
}

DataType PlainTypeOf(const GgufTensor& tensor) noexcept {
  switch (static_cast<GgufType>(tensor.type->number)) {
    case GgufType::kF32:
      return DataType::kFloat32;
    case GgufType::kF16:
      return DataType::kFloat16;
    case GgufType::kBf16:
      return DataType::kBfloat16;
    default:
      return DataType::kNull;
  }
}

}  // namespace

void GgufCheckpoint::Fail(StatusCode code, std::string message) {
  if (status_.ok()) status_ = Status(code, std::move(message));
}

DevicePtr GgufCheckpoint::Copied(const void* data, std::size_t bytes, WeightPart part) {
  const auto copy = memory().Copy(data, bytes, part);
  if (copy) return *copy;
  Fail(copy.status().code(), copy.status().message());
  return 0;
}

DataType GgufCheckpoint::TypeOf(const std::string& name, WeightRole role) const {
  const GgufTensor* tensor = file_.Find(GgufPlaceOf(architecture_, name).name);
  if (tensor == nullptr) return DataType::kNull;
  const DataType plain = PlainTypeOf(*tensor);
  if (plain != DataType::kNull || !HasCodes(*tensor)) return plain;
  if (!TakesCodes(role)) return DataType::kFloat32;
  return CodesOf(*tensor);
}

Weight GgufCheckpoint::Get(const std::string& name, std::int64_t rows, std::int64_t cols,
                           WeightRole role) {
  return GetPart({name, rows, cols, role});
}

Weight GgufCheckpoint::GetPart(const WeightRequest& request) {
  if (!status_.ok()) return {};
  const auto& [name, rows, cols, role, first, of, first_col, of_cols] = request;
  const GgufPlace place = GgufPlaceOf(architecture_, name);
  const std::string& theirs = place.name;
  const GgufTensor* tensor = file_.Find(theirs);
  if (tensor == nullptr) {
    Fail(StatusCode::kNotFound,
         fmt::format("tensor {} ({}) is missing; {} needs it", theirs.empty() ? name : theirs, name,
                     config_.architecture));
    return {};
  }
  read_.insert(tensor);
  const bool vector = role == WeightRole::kVector || role == WeightRole::kGammaLessOne;
  if (of_cols > 0 || (vector && of > 0)) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is one of a GGUF file, which ranks do not share; run the model on "
                     "one, or take the checkpoint in safetensors",
                     theirs));
    return {};
  }
  const std::int64_t all = of > 0 ? of : rows;
  std::vector<std::int64_t> wanted{cols};
  if (!vector && !(all == 1 && tensor->sizes.size() == 1)) wanted.push_back(all);
  if (place.expert >= 0) wanted.push_back(config_.experts);
  if (tensor->sizes != wanted) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is [{}]; the metadata makes it [{}]", theirs,
                     fmt::join(tensor->sizes, ", "), fmt::join(wanted, ", ")));
    return {};
  }
  if (!tensor->type->known) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; known types are {}; quantise the model to one of them",
                     theirs, tensor->type->name, KnownGgufTypes()));
    return {};
  }
  Weight weight;
  weight.name = theirs;
  weight.rows = rows;
  weight.cols = cols;
  // Rows are whole blocks, so some of them are a tensor, too.
  GgufTensor part = *tensor;
  if (place.expert >= 0 || of > 0) {
    const std::int64_t before = std::max<std::int64_t>(place.expert, 0) * all + first;
    part.data += before * tensor->row_bytes();
    part.bytes = rows * tensor->row_bytes();
    part.sizes = {cols, rows};
  }
  if (HasCodes(part) && TakesCodes(role)) return Codes(part, std::move(weight));
  Numbers(part, weight);
  return status_.ok() ? weight : Weight{};
}

Weight GgufCheckpoint::Codes(const GgufTensor& tensor, Weight weight) {
  const auto codes = UnpackGguf(tensor);
  if (!codes) {
    Fail(codes.status().code(), codes.status().message());
    return {};
  }
  weight.type = codes->type;
  weight.quant = {QuantType::kK, codes->group};
  weight.data_ptr = Copied(codes->codes.data(), codes->codes.size());
  weight.scales_type = codes->scales_type;
  weight.scales_ptr = Copied(codes->scales.data(), codes->scales.size(), WeightPart::kScales);
  if (codes->zeros_type != DataType::kNull) {
    weight.zeros_type = codes->zeros_type;
    weight.zeros_ptr = Copied(codes->zeros.data(), codes->zeros.size(), WeightPart::kZeros);
  }
  return status_.ok() ? weight : Weight{};
}

void GgufCheckpoint::Numbers(const GgufTensor& tensor, Weight& weight) {
  weight.type = PlainTypeOf(tensor);
  if (weight.type != DataType::kNull) {
    const DevicePtr mapped = ToDevicePtr(tensor.data);
    const bool in_place =
        memory().memory().reads_host_memory() && mapped % SizeOf(weight.type) == 0;
    weight.data_ptr =
        in_place ? mapped : Copied(tensor.data, static_cast<std::size_t>(tensor.bytes));
    return;
  }
  weight.type = DataType::kFloat32;
  const auto cols = static_cast<std::size_t>(tensor.cols());
  std::vector<float> numbers(static_cast<std::size_t>(tensor.rows()) * cols);
  HostPool().Run(static_cast<int>(tensor.rows()), [&](int row, int) {
    LoadGgufRow(tensor, row,
                std::span(numbers).subspan(static_cast<std::size_t>(row) * cols, cols));
  });
  weight.data_ptr = Copied(numbers.data(), numbers.size() * sizeof(float));
}

std::size_t GgufCheckpoint::bytes() const {
  std::size_t bytes = 0;
  for (const GgufTensor& tensor : file_.tensors()) {
    bytes += tensor.type->known && HasCodes(tensor) ? CodeBytes(tensor)
                                                    : static_cast<std::size_t>(tensor.bytes);
  }
  return bytes;
}

Status GgufCheckpoint::AllRead() const {
  std::set<std::string> unread;
  for (const GgufTensor& tensor : file_.tensors()) {
    if (!read_.contains(&tensor) &&
        std::ranges::find(kRopeFactors, tensor.name) == std::end(kRopeFactors)) {
      unread.insert(Printable(tensor.name));
    }
  }
  if (unread.empty()) return {};
  constexpr std::size_t kShown = 8;
  const std::vector<std::string> all(unread.begin(), unread.end());
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("the file holds {} tensors that {} does not read: {}{}; the metadata does not "
                  "describe this model",
                  all.size(), config_.architecture,
                  fmt::join(std::span(all).first(std::min(kShown, all.size())), ", "),
                  all.size() > kShown ? ", ..." : ""));
}

}  // namespace culet
