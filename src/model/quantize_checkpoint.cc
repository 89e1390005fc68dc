// QuantizeCheckpoint: which tensors are linear layers, and the folder that takes the place of `out`
// once all of it is there.
#include "culet/quantize_checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/caught.h"
#include "base/file_io.h"
#include "culet/decoder.h"
#include "culet/device_memory.h"
#include "culet/printable.h"
#include "culet/safetensors.h"
#include "model/gguf_file.h"
#include "model/plain_types.h"
#include "model/quantization_config.h"
#include "model/quantize_rows.h"
#include "model/text_file.h"
#include "model/weight_source.h"

namespace culet {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::size_t kMostJsonBytes = std::size_t{100} << 20;
constexpr std::string_view kWeight = ".weight";

struct FormatName {
  CheckpointFormat format;
  const char* name;
};
constexpr FormatName kFormats[] = {{CheckpointFormat::kU4, "u4"},
                                   {CheckpointFormat::kFp8Row, "fp8-row"},
                                   {CheckpointFormat::kFp8Block, "fp8-block"},
                                   {CheckpointFormat::kU4Asymmetric, "u4-asymmetric"}};

using Products = std::map<std::string, std::vector<std::int64_t>>;

// Notes which weights a model has, and what for.
class Roles final : public WeightSource {
 public:
  explicit Roles(WeightMemory& memory) : WeightSource(memory) {}
  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols,
             WeightRole role) override {
    Weight weight;
    weight.name = name;
    weight.type = DataType::kBfloat16;
    weight.rows = rows;
    weight.cols = cols;
    if (role == WeightRole::kProduct) products.try_emplace(name);
    return weight;
  }
  Weight GetPart(const WeightRequest& request) override {
    Weight weight = Get(request.name, request.rows, request.cols, request.role);
    if (request.of != 0 && request.role == WeightRole::kProduct) {
      products[request.name].push_back(request.first);
    }
    return weight;
  }
  Weight GetStacked(const StackedRequest& request) override {
    if (request.cols > 0) stacked.insert(request.name);
    return WeightSource::GetStacked(request);
  }
  const Status& status() const noexcept override { return status_; }
  DataType TypeOf(const std::string&, WeightRole) const override { return DataType::kBfloat16; }

  /// Linear layers, and at which output features the weights begin that one holds.
  Products products;
  std::set<std::string> stacked;  ///< tensors of all experts' weights

 private:
  Status status_;
};

// A folder that is removed unless it was moved to its place.
class NewFolder {
 public:
  ~NewFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  NewFolder() = default;
  NewFolder(const NewFolder&) = delete;

  Status Create(const std::string& out) {
    std::error_code error;
    target_ = fs::path(out).lexically_normal();
    if (!target_.has_filename()) target_ = target_.parent_path();
    const bool there = fs::exists(fs::symlink_status(target_, error));
    const bool empty = there && fs::is_directory(fs::symlink_status(target_, error)) &&
                       fs::is_empty(target_, error) && !error;
    if (target_.empty() || (there && !empty)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} exists and is no empty folder; name a new one", out));
    }
    const fs::path made =
        fmt::format("{}.tmp-{}-{}", target_.string(), getpid(), std::random_device()());
    if (!fs::create_directory(made, error)) {
      return Status(StatusCode::kIo,
                    fmt::format("{} cannot be made: {}", made.string(), error.message()));
    }
    path_ = made;
    return {};
  }

  std::string File(const std::string& name) const { return (path_ / name).string(); }

  Status Move() {
    std::error_code error;
    fs::rename(path_, target_, error);
    if (error) {
      return Status(StatusCode::kIo,
                    fmt::format("{} cannot be made: {}", target_.string(), error.message()));
    }
    path_.clear();
    return {};
  }

 private:
  fs::path path_, target_;
};

class Quantizer {
 public:
  Quantizer(const std::string& folder, const QuantizeCheckpointOptions& options)
      : folder_(folder), options_(options) {}

  Result<QuantizedCheckpoint> Run(const std::string& out) {
    CULET_RETURN_IF_ERROR(ReadConfig());
    CULET_RETURN_IF_ERROR(FindRoles());
    CULET_RETURN_IF_ERROR(OpenFiles());
    CULET_RETURN_IF_ERROR(made_.Create(out));
    for (const auto& [name, file] : files_) CULET_RETURN_IF_ERROR(WriteFile(name, file));
    if (has_index_) CULET_RETURN_IF_ERROR(WriteIndex());
    CULET_RETURN_IF_ERROR(WriteConfig());
    CULET_RETURN_IF_ERROR(CopyOthers());
    CULET_RETURN_IF_ERROR(made_.Move());
    return std::move(result_);
  }

 private:
  Status ReadConfig() {
    const auto gguf = GgufPathOf(folder_);
    if (!gguf || !gguf->empty()) {
      return Status(
          StatusCode::kUnsupported,
          fmt::format("{} is a GGUF file, which has a form of its own; give the folder of "
                      "a checkpoint in safetensors",
                      folder_));
    }
    auto text = ReadTextFile((fs::path(folder_) / "config.json").string(), kMostJsonBytes);
    if (!text) return text.status();
    config_ = OrderedJson::parse(*text, nullptr, /*allow_exceptions=*/false);
    auto decoder = ReadDecoderConfig(folder_);
    if (!decoder) return decoder.status();
    decoder_ = *std::move(decoder);
    if (!config_.is_object()) {  // what ReadDecoderConfig takes all the same: comments, say
      return Status(StatusCode::kDataLoss,
                    fmt::format("{}/config.json is not plain JSON; write it again", folder_));
    }
    const auto it = config_.find("quantization_config");
    if (it != config_.end() && !it->is_null()) {
      const std::string method =
          it->is_object() ? it->value("quant_method", OrderedJson()).dump() : it->dump();
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{} is quantised already (quant_method {}); give the checkpoint "
                                "that it was made from",
                                folder_, Printable(method, 40)));
    }
    if (!decoder_.container.empty()) {
      return Status(StatusCode::kUnsupported,
                    fmt::format("{} is a {}, a model of several parts; give one of text alone",
                                folder_, decoder_.container));
    }
    return {};
  }

  // Everything that loading checks is known before anything is written.
  Status FindRoles() {
    const auto loaded = DecoderModel::Load(folder_, HostMemory());
    if (!loaded) return loaded.status();
    WeightMemory none(HostMemory());
    Roles roles(none);
    const auto bound = BindDecoder(loaded->config(), roles);
    if (!bound) return bound.status();
    for (const std::string& name : roles.stacked) {
      if (ListsModule(options_.keep, name)) continue;
      return Status(StatusCode::kUnsupported,
                    fmt::format("tensor {} holds the weights of all experts, of which no quantised "
                                "form is known; keep it in 16 bits (keep, --keep), or take a model "
                                "with one weight a tensor",
                                name));
    }
    products_ = std::move(roles.products);
    for (const std::string& pattern : options_.keep) {
      const auto names = [&](const std::string& name) {
        return ListsModule({&pattern, 1}, ModuleOf(name));
      };
      const auto of_product = [&](const auto& product) { return names(product.first); };
      if (std::ranges::any_of(products_, of_product) || std::ranges::any_of(roles.stacked, names)) {
        continue;
      }
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("keep has '{}', which names no linear layer; the first is {}",
                                Printable(pattern, 60), ModuleOf(products_.begin()->first)));
    }
    return {};
  }

  static std::string ModuleOf(const std::string& name) {
    return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
  }

  Status OpenFiles() {
    std::set<std::string> names;
    std::error_code ignored;
    if (fs::exists(fs::path(folder_) / kSingle, ignored)) {
      names.insert(kSingle);
    } else {
      auto text = ReadTextFile((fs::path(folder_) / kIndex).string(), kMostJsonBytes);
      if (!text) return text.status();
      index_ = OrderedJson::parse(*text, nullptr, false);
      has_index_ = true;
      for (const auto& [name, file] : index_.at("weight_map").items()) {
        names.insert(file.get<std::string>());
      }
    }
    for (const std::string& name : names) {
      auto file = SafetensorsFile::Open((fs::path(folder_) / name).string());
      if (!file) return file.status();
      for (const SafetensorsTensor& tensor : file->tensors()) {
        result_.bytes_before += static_cast<std::size_t>(tensor.bytes);
      }
      files_.emplace(name, *std::move(file));
    }
    return {};
  }

  // What cannot be quantised stays: readers want whole groups of input features, and groups of
  // output features that belong to one weight.
  bool Quantises(const SafetensorsTensor& tensor) const {
    auto it = products_.find(tensor.name);
    if (it == products_.end()) it = products_.find("model." + tensor.name);  // files of base models
    if (it == products_.end() || tensor.shape.size() != 2 || !IsPlain(tensor.type())) return false;
    if (ListsModule(options_.keep, ModuleOf(it->first))) return false;
    const std::int64_t rows = options_.format == CheckpointFormat::kFp8Block ? kCheckpointGroup
                              : options_.format == CheckpointFormat::kU4Asymmetric ? kZerosOfWord
                                                                                   : 1;
    const auto whole = [rows](std::int64_t first) { return first % rows == 0; };
    if (!std::ranges::all_of(it->second, whole)) return false;
    return options_.format == CheckpointFormat::kFp8Row || tensor.shape[1] % kCheckpointGroup == 0;
  }

  // Modules that readers would take for linear layers.
  void NotePlain(const SafetensorsTensor& tensor) {
    if (!tensor.name.ends_with(kWeight) || tensor.shape.size() != 2) return;
    if (tensor.name.ends_with("embed_tokens.weight")) return;
    result_.plain.push_back(tensor.name.substr(0, tensor.name.size() - kWeight.size()));
  }

  Status Progress(const SafetensorsTensor& tensor, bool whole) {
    if (options_.stop && !CaughtNo([&] { return !options_.stop(); })) {
      return Status(StatusCode::kFailedPrecondition,
                    fmt::format("stopped before {}; nothing was written", tensor.name));
    }
    if (whole) done_ += static_cast<std::size_t>(tensor.bytes);
    if (options_.on_progress) options_.on_progress(done_, result_.bytes_before);
    return {};
  }

  Status WriteFile(const std::string& name, const SafetensorsFile& file) {
    // The format knows no gaps, so wider elements go first.
    std::map<int, std::vector<SafetensorsEntry>, std::greater<>> by_width;
    for (const SafetensorsTensor& tensor : file.tensors()) {
      if (Quantises(tensor)) {
        AddQuantised(tensor, by_width);
        ++result_.quantised;
      } else {
        NotePlain(tensor);
        SafetensorsEntry entry{tensor.name, tensor.type(), tensor.shape};
        if (entry.type == DataType::kNull) {
          return Status(StatusCode::kUnsupported,
                        fmt::format("tensor {} is {}; it must be F32, F16 "
                                    "or BF16",
                                    tensor.name, tensor.dtype));
        }
        entry.make = [this, &tensor](std::span<std::byte> to) {
          CULET_RETURN_IF_ERROR(Progress(tensor, true));
          std::memcpy(to.data(), tensor.data, to.size());
          return Status();
        };
        Add(std::move(entry), static_cast<int>(SizeOf(tensor.type())), tensor.bytes, by_width);
      }
    }
    std::vector<SafetensorsEntry> entries;
    for (auto& [width, some] : by_width) {
      for (SafetensorsEntry& entry : some) entries.push_back(std::move(entry));
    }
    for (const SafetensorsEntry& entry : entries) written_[entry.name] = name;
    return WriteSafetensors(made_.File(name), entries);
  }

  using ByWidth = std::map<int, std::vector<SafetensorsEntry>, std::greater<>>;
  void Add(SafetensorsEntry entry, int width, std::int64_t bytes, ByWidth& to) {
    result_.bytes_after += static_cast<std::size_t>(bytes);
    to[width].push_back(std::move(entry));
  }

  void AddQuantised(const SafetensorsTensor& tensor, ByWidth& to) {
    const CheckpointFormat format = options_.format;
    const bool four = IsU4(format);
    const PlainMatrix matrix{tensor.data, tensor.type(), tensor.shape[0], tensor.shape[1]};
    const ScaleShape shape = ScaleShapeOf(format, matrix.cols);
    const std::int64_t down = (matrix.rows + shape.rows - 1) / shape.rows,
                       across = (matrix.cols + shape.cols - 1) / shape.cols;
    SafetensorsEntry scales{tensor.name + "_scale", matrix.type, {down, across}};
    scales.make = [this, &tensor, matrix, format](std::span<std::byte> bytes) {
      CULET_RETURN_IF_ERROR(Progress(tensor, false));
      if (WriteScales(matrix, format, bytes)) return Status();
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("tensor {} holds an element that is not finite, or too large for a "
                                "scale; take an intact checkpoint",
                                tensor.name));
    };
    Add(std::move(scales), static_cast<int>(SizeOf(matrix.type)),
        down * across * static_cast<std::int64_t>(SizeOf(matrix.type)), to);
    SafetensorsEntry codes;
    codes.name = tensor.name + (four ? "_packed" : "");
    codes.type = four ? DataType::kInt32 : DataType::kFloat8_e4m3;
    codes.shape = {matrix.rows, four ? matrix.cols / 8 : matrix.cols};
    codes.make = [this, &tensor, matrix, format](std::span<std::byte> bytes) {
      CULET_RETURN_IF_ERROR(Progress(tensor, true));
      WriteCodes(matrix, format, bytes);
      return Status();
    };
    Add(std::move(codes), static_cast<int>(SizeOf(codes.type)),
        matrix.rows * matrix.cols / (four ? 2 : 1), to);
    if (!four) return;
    if (format == CheckpointFormat::kU4Asymmetric) {
      SafetensorsEntry zeros{tensor.name + "_zero_point",
                             DataType::kInt32,
                             {(matrix.rows + kZerosOfWord - 1) / kZerosOfWord, across}};
      zeros.make = [this, &tensor, matrix](std::span<std::byte> bytes) {
        CULET_RETURN_IF_ERROR(Progress(tensor, false));
        WriteZeros(matrix, bytes);
        return Status();
      };
      const std::int64_t bytes = zeros.shape[0] * across * 4;
      Add(std::move(zeros), 4, bytes, to);
    }
    SafetensorsEntry stated;
    stated.name = tensor.name + "_shape";
    stated.dtype = "I64";
    stated.shape = {2};
    stated.make = [matrix](std::span<std::byte> bytes) {
      const std::int64_t sizes[2] = {matrix.rows, matrix.cols};
      std::memcpy(bytes.data(), sizes, sizeof sizes);
      return Status();
    };
    Add(std::move(stated), 8, 16, to);
  }

  Status WriteIndex() {
    index_["weight_map"] = OrderedJson::object();
    for (const auto& [name, file] : written_) index_["weight_map"][name] = file;
    index_["metadata"]["total_size"] = result_.bytes_after;
    return WriteText(kIndex, index_.dump(2));
  }

  OrderedJson SchemeOf() const {
    const auto numbers = [](int bits, const char* type, const char* strategy, bool dynamic) {
      return OrderedJson{{"num_bits", bits},
                         {"type", type},
                         {"symmetric", true},
                         {"strategy", strategy},
                         {"group_size", nullptr},
                         {"block_structure", nullptr},
                         {"dynamic", dynamic},
                         {"actorder", nullptr},
                         {"observer_kwargs", OrderedJson::object()}};
    };
    OrderedJson group{{"targets", {"Linear"}},
                      {"weights", nullptr},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr}};
    switch (options_.format) {
      case CheckpointFormat::kU4:
      case CheckpointFormat::kU4Asymmetric:
        group["weights"] = numbers(4, "int", "group", false);
        group["weights"]["group_size"] = kCheckpointGroup;
        group["weights"]["symmetric"] = options_.format == CheckpointFormat::kU4;
        break;
      case CheckpointFormat::kFp8Row:
        group["weights"] = numbers(8, "float", "channel", false);
        group["input_activations"] = numbers(8, "float", "token", true);
        break;
      case CheckpointFormat::kFp8Block:
        group["weights"] = numbers(8, "float", "block", false);
        group["weights"]["block_structure"] = {kCheckpointGroup, kCheckpointGroup};
        group["input_activations"] = numbers(8, "float", "group", true);
        group["input_activations"]["group_size"] = kCheckpointGroup;
        break;
    }
    return group;
  }

  Status WriteConfig() {
    const char* const format = IsU4(options_.format) ? "pack-quantized" : "float-quantized";
    std::ranges::sort(result_.plain);
    OrderedJson ignore = OrderedJson::array();
    for (const std::string& module : result_.plain) ignore.push_back(module);
    // A head that is the embedding has no tensor.
    if (std::ranges::find(result_.plain, "lm_head") == result_.plain.end()) {
      ignore.push_back("lm_head");
    }
    OrderedJson group = SchemeOf();
    group["format"] = format;
    config_["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                      {"format", format},
                                      {"quantization_status", "compressed"},
                                      {"config_groups", {{"group_0", group}}},
                                      {"ignore", ignore},
                                      {"kv_cache_scheme", nullptr},
                                      {"global_compression_ratio", nullptr}};
    return WriteText("config.json", config_.dump(2));
  }

  Status WriteText(const std::string& name, std::string text) const {
    text += '\n';
    return ReplaceFile(made_.File(name), text);
  }

  // The tokenizer, the generation config, a license: all files but weights and what was written.
  Status CopyOthers() const {
    constexpr std::string_view kWeights[] = {".safetensors", ".bin", ".pt",   ".pth",
                                             ".gguf",        ".h5",  ".onnx", ".msgpack"};
    for (const std::string& name : NamesIn(folder_)) {
      const fs::path from = fs::path(folder_) / name;
      std::error_code error;
      if (!fs::is_regular_file(from, error) || name == "config.json" ||
          name.ends_with(".index.json") ||
          std::ranges::find(kWeights, from.extension().string()) != std::end(kWeights)) {
        continue;
      }
      if (!fs::copy_file(from, made_.File(name), error)) {
        return Status(StatusCode::kIo,
                      fmt::format("{} cannot be copied: {}", from.string(), error.message()));
      }
    }
    return {};
  }

  const std::string& folder_;
  const QuantizeCheckpointOptions& options_;
  OrderedJson config_, index_;
  bool has_index_ = false;
  DecoderConfig decoder_;
  Products products_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, std::string> written_;  // tensor -> file
  std::size_t done_ = 0;
  NewFolder made_;
  QuantizedCheckpoint result_;
};

}  // namespace

const char* ToString(CheckpointFormat format) noexcept {
  for (const FormatName& each : kFormats) {
    if (each.format == format) return each.name;
  }
  return "invalid";
}

Result<CheckpointFormat> ParseCheckpointFormat(std::string_view text) {
  std::vector<const char*> names;
  for (const FormatName& each : kFormats) {
    if (text == each.name) return each.format;
    names.push_back(each.name);
  }
  return Status(StatusCode::kInvalidArgument,
                fmt::format("the format '{}' is unknown; known are {}", Printable(text, 40),
                            fmt::join(names, ", ")));
}

Result<QuantizedCheckpoint> QuantizeCheckpoint(const std::string& folder, const std::string& out,
                                               const QuantizeCheckpointOptions& options) {
  if (ToString(options.format) == std::string_view("invalid")) {
    return Status(StatusCode::kInvalidArgument, fmt::format("format is {}, not a CheckpointFormat",
                                                            static_cast<int>(options.format)));
  }
  for (const std::string& pattern : options.keep) {
    if (IsModulePattern(pattern)) continue;
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("keep has '{}', no regular expression that can be searched for; give a "
                    "short one of few repeats",
                    Printable(pattern, 60)));
  }
  return Quantizer(folder, options).Run(out);
}

}  // namespace culet
