#include "model/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/float_types.h"
#include "base/json_text.h"
#include "culet/printable.h"
#include "model/decoder_architecture.h"
#include "model/plain_types.h"
#include "model/text_file.h"
#include "model/text_kind.h"

namespace culet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = std::size_t{100} << 20;
bool IsLinear(WeightRole role) noexcept {
  return role == WeightRole::kProduct || role == WeightRole::kHead;
}

bool IsVector(WeightRole role) noexcept {
  return role == WeightRole::kVector || role == WeightRole::kGammaLessOne;
}

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// A shard's name must not lead out of the folder, nor steer the terminal that shows its path.
bool IsPlainName(const std::string& name) {
  return !name.empty() && Printable(name) == name && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& folder, const DecoderConfig& config,
                                    WeightMemory& memory) {
  Checkpoint checkpoint(config, memory);
  const std::string index = (fs::path(folder) / kIndex).string();
  std::error_code ignored;
  if (fs::exists(fs::path(folder) / kSingle, ignored)) {
    CULET_RETURN_IF_ERROR(checkpoint.AddFile(folder, kSingle));
  } else if (fs::exists(index, ignored)) {
    CULET_RETURN_IF_ERROR(checkpoint.AddShards(folder, index));
  } else {
    return Status(StatusCode::kNotFound,
                  fmt::format("{} holds neither {} nor {}", folder, kSingle, kIndex));
  }
  return checkpoint;
}

Status Checkpoint::AddFile(const std::string& folder, const std::string& name,
                           const Shards& shards) {
  auto file = SafetensorsFile::Open((fs::path(folder) / name).string());
  if (!file) return file.status();
  for (const SafetensorsTensor& tensor : file->tensors()) {
    const auto shard = shards.find(tensor.name);
    if (shard != shards.end() && shard->second != name) continue;
    if (!tensors_.emplace(tensor.name, &tensor).second) {
      return Status(StatusCode::kDataLoss,
                    fmt::format("{}: tensor {} is in another shard too, and the index does not say "
                                "which one counts",
                                file->path(), Printable(tensor.name)));
    }
  }
  files_.push_back(*std::move(file));  // moving keeps the tensors where they are
  return {};
}

Status Checkpoint::AddShards(const std::string& folder, const std::string& index) {
  const auto text = ReadTextFile(index, kMaxIndexBytes);
  if (!text) return text.status();
  const json root = ParseJson(*text);
  const json* map = nullptr;
  if (root.is_object()) {
    const auto it = root.find("weight_map");
    if (it != root.end() && it->is_object()) map = &*it;
  }
  if (map == nullptr) {
    return Status(StatusCode::kDataLoss, fmt::format("{} is no JSON object with a weight_map{}",
                                                     index, ReplacedBy(*text)));
  }
  Shards shards;
  std::map<std::string, std::vector<std::string>> files;  // and their tensors
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string() || !IsPlainName(file.get<std::string>())) {
      return Status(
          StatusCode::kDataLoss,
          fmt::format("{}: tensor {} lies in no file of the folder", index, Printable(name)));
    }
    shards[name] = file.get<std::string>();
    files[file.get<std::string>()].push_back(name);
  }
  for (const auto& [file, names] : files) {
    CULET_RETURN_IF_ERROR(AddFile(folder, file, shards));
    for (const std::string& name : names) {
      if (files_.back().Find(name) == nullptr) {
        return Status(StatusCode::kDataLoss,
                      fmt::format("{} promises tensor {} in {}, which lacks it", index,
                                  Printable(name), Printable(file)));
      }
    }
  }
  return {};
}

void Checkpoint::Fail(StatusCode code, std::string message) {
  if (status_.ok()) status_ = Status(code, std::move(message));
}

const SafetensorsTensor* Checkpoint::Peek(const std::string& name) const {
  constexpr std::string_view kPrefix = "model.";
  auto it = tensors_.find(name);
  if (it == tensors_.end() && name.starts_with(kPrefix)) {
    it = tensors_.find(name.substr(kPrefix.size()));
  }
  if (it == tensors_.end() && !config_->container.empty()) {
    for (const std::string& other : NamesInContainer(name)) {
      if (it == tensors_.end()) it = tensors_.find(other);
    }
  }
  return it == tensors_.end() ? nullptr : it->second;
}

const SafetensorsTensor* Checkpoint::Find(const std::string& name) {
  const SafetensorsTensor* tensor = Peek(name);
  if (tensor == nullptr) {
    Fail(StatusCode::kNotFound,
         fmt::format("tensor {} is missing; {} needs it", name, config_->architecture));
    return nullptr;
  }
  if (read_.insert(tensor).second) read_bytes_ += static_cast<std::size_t>(tensor->bytes);
  return tensor;
}

void Checkpoint::Leave(const std::string& name) {
  if (const SafetensorsTensor* tensor = Peek(name); tensor != nullptr) read_.insert(tensor);
}

void Checkpoint::LeaveAll(const std::string& prefix) {
  constexpr std::string_view kPrefix = "model.";
  std::vector<std::string> names = {prefix};
  if (prefix.starts_with(kPrefix)) names.push_back(prefix.substr(kPrefix.size()));
  if (!config_->container.empty()) {
    for (const std::string& other : NamesInContainer(prefix)) names.push_back(other);
  }
  left_.insert(names.begin(), names.end());
}

// No prefix is one of another.
bool Checkpoint::IsLeft(const std::string& name) const {
  const auto behind = left_.upper_bound(name);
  return behind != left_.begin() && name.starts_with(*std::prev(behind));
}

bool Checkpoint::HasOwnHead() const {
  const SafetensorsTensor* head = Peek(kHead);
  const SafetensorsTensor* embedding = Peek(kEmbedding);
  if (head == nullptr || embedding == nullptr) return false;
  return head->dtype != embedding->dtype || head->shape != embedding->shape ||
         std::memcmp(head->data, embedding->data, static_cast<std::size_t>(head->bytes)) != 0;
}

bool Checkpoint::HasShape(const SafetensorsTensor& tensor, std::int64_t rows, std::int64_t cols,
                          WeightRole role) {
  const bool vector = IsVector(role);
  std::vector<std::int64_t> wanted{rows, cols};
  if (vector) wanted = {cols};
  if (role == WeightRole::kTaps) wanted = {rows, 1, cols};
  if (tensor.shape == wanted || (vector && tensor.shape == std::vector<std::int64_t>{1, cols})) {
    return true;
  }
  Fail(StatusCode::kInvalidArgument,
       fmt::format("tensor {} is [{}]; the config makes it [{}]", tensor.name,
                   fmt::join(tensor.shape, ", "), fmt::join(wanted, ", ")));
  return false;
}

DevicePtr Checkpoint::Place(const SafetensorsTensor& tensor, DataType type, WeightPart part) {
  return Place(tensor.data, static_cast<std::size_t>(tensor.bytes), type, part);
}

DevicePtr Checkpoint::Place(const std::byte* data, std::size_t bytes, DataType type,
                            WeightPart part) {
  const DevicePtr mapped = ToDevicePtr(data);
  const bool in_place = memory().memory().reads_host_memory() && !IsCopy(data);
  if (in_place && mapped % SizeOf(type) == 0) return mapped;
  const auto copy = memory().Copy(data, bytes, part);
  if (copy) return *copy;
  Fail(copy.status().code(), copy.status().message());
  return 0;
}

DataType Checkpoint::TypeOf(const std::string& name, WeightRole role) const {
  const SafetensorsTensor* tensor = Peek(name);
  if (tensor != nullptr) return tensor->type();
  if (!IsLinear(role)) return DataType::kNull;
  if (config_->coding.is_nvfp4()) return DataType::kFloat4_e2m1;
  return config_->coding.is_u4() ? DataType::kUint4 : DataType::kNull;
}

Weight Checkpoint::Get(const std::string& name, std::int64_t rows, std::int64_t cols,
                       WeightRole role) {
  Weight weight;
  if (!status_.ok()) return weight;
  const WeightCoding& coding = config_->coding;
  if (IsLinear(role) && coding.is_u4() && Peek(name) == nullptr) {
    return GetPacked(name, rows, cols);
  }
  if (IsLinear(role) && coding.is_nvfp4() && Peek(name) == nullptr) {
    return GetNvfp4(name, rows, cols);
  }
  const bool vector = role == WeightRole::kVector || role == WeightRole::kGammaLessOne;
  const SafetensorsTensor* tensor = vector                      ? FindPart(name, {Cols()})
                                    : role == WeightRole::kTaps ? Find(name)
                                                                : FindPart(name, {Rows(), Cols()});
  if (tensor == nullptr || !HasShape(*tensor, rows, cols, role)) return weight;
  const DataType type = tensor->type();
  const bool quantised = IsLinear(role) && coding.is_e4m3() && type == DataType::kFloat8_e4m3;
  if (quantised && !MayBeQuantised(*tensor, name)) return weight;
  if (!IsPlain(type) && !quantised) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; it must be F32, F16 or BF16, or F8_E4M3 in a linear layer "
                     "of a checkpoint whose quantization_config says so",
                     name, tensor->dtype));
    return weight;
  }
  weight.name = name;
  weight.type = type;
  weight.rows = rows;
  weight.cols = cols;
  if (role == WeightRole::kGammaLessOne) {
    AddOne(weight, *tensor);
  } else {
    weight.data_ptr = Place(*tensor, type);
  }
  if (quantised) AddScales(weight);
  return status_.ok() ? weight : Weight{};
}

// The sum is exact in float32 as long as the stored gamma is no smaller than 2^-16 of it, and
// rounded as the models' own library rounds it otherwise.
void Checkpoint::AddOne(Weight& weight, const SafetensorsTensor& tensor) {
  std::vector<std::byte> stored(static_cast<std::size_t>(tensor.bytes));  // aligned
  std::memcpy(stored.data(), tensor.data, stored.size());
  std::vector<float> sums(static_cast<std::size_t>(weight.cols));
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i] = 1.0f + static_cast<float>(
                         LoadAsDouble(stored.data(), weight.type, static_cast<std::int64_t>(i)));
  }
  weight.type = DataType::kFloat32;
  const auto copy = memory().Copy(sums.data(), sums.size() * sizeof(float));
  if (copy) {
    weight.data_ptr = *copy;
  } else {
    Fail(copy.status().code(), copy.status().message());
  }
}

Weight Checkpoint::GetIfThere(const std::string& name, std::int64_t cols, ShardRange range) {
  const SafetensorsTensor* found = Peek(name);
  if (!status_.ok() || found == nullptr) return {};
  if (range.of > 0 && found->elements() == range.of && found->shape.size() == 1) {
    return GetPart({name, 1, cols, WeightRole::kVector, range.first, range.of});
  }
  // One for all has no dimension, or one.
  const SafetensorsTensor& tensor = *found;
  if (tensor.shape != std::vector<std::int64_t>{cols} && tensor.elements() != 1) {
    Fail(StatusCode::kInvalidArgument,
         fmt::format("tensor {} is [{}]; it must have one element or {}", name,
                     fmt::join(tensor.shape, ", "), cols));
    return {};
  }
  static_cast<void>(Find(name));
  const DataType type = tensor.type();
  if (!IsPlain(type)) {
    Fail(StatusCode::kUnsupported,
         fmt::format("tensor {} is {}; it must be F32, F16 or BF16", name, tensor.dtype));
    return {};
  }
  Weight weight;
  weight.name = name;
  weight.type = type;
  weight.rows = 1;
  weight.cols = tensor.elements();
  weight.data_ptr = Place(tensor, type);
  return status_.ok() ? weight : Weight{};
}

// Whether the tensor belongs to what predicts tokens further ahead.
bool Checkpoint::IsAhead(std::string_view name) const {
  const char* const part = DecoderArchitectureOf(config_->architecture).names.ahead;
  if (part != nullptr && name.find(part) != std::string_view::npos) return true;
  constexpr std::string_view kLayers = "layers.";
  const std::size_t at = name.find(kLayers);
  if (config_->ahead_layers == 0 || at == std::string_view::npos) return false;
  const std::string_view number = name.substr(at + kLayers.size());
  int layer = -1;
  std::from_chars(number.data(), number.data() + number.size(), layer);
  return layer >= config_->layers && layer - config_->layers < config_->ahead_layers;
}

bool Checkpoint::IsIgnored(const std::string& name) const {
  constexpr std::string_view kFrequencies = "rotary_emb.inv_freq";  // older files store them
  const bool head = name == kHead ||
                    (!config_->container.empty() && name == std::string("language_model.") + kHead);
  if (!config_->container.empty() && IsOfOtherPart(name)) return true;
  if (IsAhead(name)) return true;
  return name.ends_with(kFrequencies) || (config_->tied_head && head);
}

std::size_t Checkpoint::bytes() const {
  std::size_t bytes = 0;
  for (const auto& [name, tensor] : tensors_) {
    if (IsIgnored(name)) continue;
    // What GetHeadParts takes apart becomes twice as long.
    const bool widens =
        tensor->type() == DataType::kFloat8_e4m3 && name.ends_with("kv_b_proj.weight");
    bytes += static_cast<std::size_t>(tensor->bytes) * (widens ? 2 : 1);
  }
  return bytes;
}

Status Checkpoint::AllRead() const {
  std::set<std::string> unread;
  for (const auto& [name, tensor] : tensors_) {
    if (!read_.contains(tensor) && !IsIgnored(name) && !IsLeft(name))
      unread.insert(Printable(name));
  }
  if (unread.empty()) return {};
  constexpr std::size_t kShown = 8;
  std::vector<std::string> shown(
      unread.begin(),
      std::next(unread.begin(), static_cast<std::ptrdiff_t>(std::min(unread.size(), kShown))));
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the checkpoint holds {} tensors that {} does not read: {}{}; the "
                            "config does not describe this model",
                            unread.size(), config_->architecture, fmt::join(shown, ", "),
                            unread.size() > kShown ? ", ..." : ""));
}

}  // namespace culet
