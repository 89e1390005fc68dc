#include "model/quantization_config.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <regex>
#include <utility>

#include <fmt/format.h>

#include "culet/printable.h"
#include "model/config_keys.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr int kBlock = 128;
constexpr int kBits = 4;
constexpr std::size_t kShownPattern = 60;
constexpr std::size_t kMostPatterns = 100'000, kMostRegexBytes = 200;
// A backtracking search takes up to length^repeats steps, so both are small.
constexpr std::size_t kMostRepeats = 3, kMostNameBytes = 200;

using Form = WeightCoding::Form;

// As it stands in the file, short and printable.
std::string ShownValue(const json& value) {
  return Printable(value.dump(-1, ' ', true, json::error_handler_t::replace), kShownPattern);
}

// What is known, texts without quotation marks.
std::string Known(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The value of a key that may be missing or null.
const json* At(const json& object, const char* key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

bool IsRegex(const std::string& text) {
  if (text.size() > kMostRegexBytes || text.find('\0') != std::string::npos) return false;
  if (std::ranges::count_if(text, [](char c) { return c == '*' || c == '+' || c == '{'; }) >
      static_cast<std::ptrdiff_t>(kMostRepeats)) {
    return false;
  }
  try {
    std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

class Reader {
 public:
  Reader(const json& root, ConfigReader& errors, const std::string& origin,
         std::vector<std::string>& warnings)
      : root_(root),
        errors_(errors),
        where_(origin + ": quantization_config"),
        warnings_(warnings) {}

  WeightCoding Read() {
    if (!root_.is_object() || !root_.contains("quant_method")) {
      Refuse(fmt::format("quantization_config is none that is known; {}", kKnown));
      return {};
    }
    const json& method = root_.at("quant_method");
    if (method == "fp8") {
      Fp8();
    } else if (method == "compressed-tensors") {
      CompressedTensors();
    } else if (method == "awq") {
      Awq();
    } else if (method == "gptq") {
      Gptq();
    } else if (method == "mxfp4") {
      Mxfp4();
    } else if (method == "gguf") {
      coding_.form = Form::kGguf;
    } else {
      Refuse(
          fmt::format("quantization_config has quant_method {}; {}", ShownValue(method), kKnown));
    }
    return std::move(coding_);
  }

 private:
  static constexpr const char* kKnown =
      "known is quant_method fp8 of fmt e4m3 with weight_block_size [128, 128] and "
      "activation_scheme dynamic, compressed-tensors of format float-quantized, pack-quantized or "
      "nvfp4-pack-quantized, awq of version gemm, gptq, and mxfp4";

  void Refuse(const std::string& sentence) { errors_.Supported(false, sentence); }

  // Refuses every value of the key but these; null is as if it were missing.
  void Only(const json& object, const char* path, const char* key,
            std::initializer_list<json> known) {
    const json* value = At(object, key);
    if (value == nullptr || std::ranges::find(known, *value) != known.end()) return;
    std::string list;
    for (const json& one : known) list += (list.empty() ? "" : ", ") + Known(one);
    Refuse(fmt::format("quantization_config has {}{} {}; known is {}", path, key,
                       ShownValue(*value), list));
  }

  // The same, and the key must be there.
  void Needs(const json& object, const char* path, const char* key,
             std::initializer_list<json> known) {
    if (At(object, key) != nullptr) return Only(object, path, key, known);
    Refuse(fmt::format("quantization_config has no {}{}; known is {}", path, key,
                       Known(*known.begin())));
  }

  void Warn(std::initializer_list<const char*> known) {
    for (std::string& unused :
         UnusedKeysOf(root_, std::span(known.begin(), known.size()), where_)) {
      warnings_.push_back(std::move(unused));
    }
  }

  void Modules(const char* key) {
    const json* list = At(root_, key);
    if (list == nullptr) return;
    const bool texts = list->is_array() && list->size() <= kMostPatterns &&
                       std::ranges::all_of(*list, [](const json& one) { return one.is_string(); });
    if (!errors_.Require(texts, fmt::format("quantization_config has {} {}; it must be a list of "
                                            "names of modules",
                                            key, ShownValue(*list)))) {
      return;
    }
    for (const json& one : *list) {
      const std::string pattern = one.get<std::string>();
      if (!IsModulePattern(pattern)) {
        Refuse(
            fmt::format("quantization_config has in {} {}, no regular expression of at most {} "
                        "bytes and {} repeats that can be searched for",
                        key, Printable(pattern, kShownPattern), kMostRegexBytes, kMostRepeats));
        return;
      }
      coding_.plain.push_back(pattern);
    }
  }

  void Fp8() {
    coding_.form = Form::kFp8;
    coding_.weights = {QuantType::kB, kBlock};
    coding_.inputs = {QuantType::kK, kBlock};
    Only(root_, "", "fmt", {"e4m3"});
    Needs(root_, "", "weight_block_size", {json{kBlock, kBlock}});
    Only(root_, "", "activation_scheme", {"dynamic"});
    // Scales that are powers of two: the inputs' are rounded, too, so ignoring it would be wrong.
    Only(root_, "", "scale_fmt", {"float"});
    Only(root_, "", "expert_dtype", {"fp8"});
    Only(root_, "", "dequantize", {false});
    Only(root_, "", "modules_to_convert", {json::array()});
    Modules("modules_to_not_convert");
    Modules("ignored_layers");
    Warn({"quant_method", "fmt", "weight_block_size", "activation_scheme", "scale_fmt",
          "expert_dtype", "dequantize", "modules_to_convert", "modules_to_not_convert",
          "ignored_layers"});
  }

  // The number of elements of a group of 4 bits; -1: the whole row.
  void Group(const json& object, const char* path) {
    const json* value = At(object, "group_size");
    const bool whole = value != nullptr && *value == -1;
    const bool number = value != nullptr && value->is_number_integer() && *value >= 2 &&
                        *value <= (1 << 20) && value->get<int>() % 2 == 0;
    if (!errors_.Require(
            whole || number,
            fmt::format("quantization_config has {}group_size {}; it must be -1, for a "
                        "whole row, or an even number of elements",
                        path, value == nullptr ? "null" : ShownValue(*value)))) {
      return;
    }
    coding_.weights =
        whole ? QuantDesc{QuantType::kRow} : QuantDesc{QuantType::kK, value->get<int>()};
  }

  // Of stacked experts alone; which modules are not converted follows from that.
  void Mxfp4() {
    coding_.form = Form::kMxfp4;
    coding_.weights = {QuantType::kK, 32};
    Only(root_, "", "dequantize", {false});
    Modules("modules_to_not_convert");
    Warn({"quant_method", "dequantize", "modules_to_not_convert"});
  }

  void Awq() {
    coding_.form = Form::kAwq;
    coding_.zeros = true;
    Needs(root_, "", "bits", {kBits});
    Group(root_, "");
    Only(root_, "", "version", {"gemm", "GEMM"});
    Only(root_, "", "zero_point", {true});
    Modules("modules_to_not_convert");
    Warn({"quant_method", "bits", "group_size", "version", "zero_point", "modules_to_not_convert",
          "backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse",
          "quantizer", "meta"});
  }

  void Gptq() {
    coding_.form = Form::kGptq;
    coding_.zeros = true;
    Needs(root_, "", "bits", {kBits});
    Group(root_, "");
    Only(root_, "", "checkpoint_format", {"gptq", "gptq_v2"});
    const json* format = At(root_, "checkpoint_format");
    coding_.zeros_less_one = format == nullptr || *format == "gptq";
    coding_.symmetric = root_.value("sym", json()) == true;
    // Other bits and groups by module.
    Only(root_, "", "dynamic", {json::object()});
    Only(root_, "", "is_marlin_format", {false});
    Only(root_, "", "pack_dtype", {"int32"});
    Modules("modules_to_not_convert");
    Warn({"quant_method",
          "bits",
          "group_size",
          "checkpoint_format",
          "dynamic",
          "lm_head",
          "is_marlin_format",
          "pack_dtype",
          "modules_to_not_convert",
          "sym",
          "desc_act",
          "damp_percent",
          "static_groups",
          "true_sequential",
          "model_name_or_path",
          "model_file_base_name",
          "quantizer",
          "meta",
          "quant_method",
          "batch_size",
          "block_name_to_quantize",
          "cache_block_outputs",
          "dataset",
          "exllama_config",
          "max_input_length",
          "model_seqlen",
          "module_name_preceding_first_block",
          "modules_in_block_to_quantize",
          "pad_token_id",
          "tokenizer",
          "use_cuda_fp16",
          "use_exllama",
          "backend",
          "damp_auto_increment",
          "mse"});
  }

  void CompressedTensors() {
    Only(root_, "", "format", {"float-quantized", "pack-quantized", "nvfp4-pack-quantized"});
    Only(root_, "", "quantization_status", {"compressed"});
    Only(root_, "", "sparsity_config", {json::object()});
    Only(root_, "", "transform_config", {json::object()});
    Modules("ignore");
    const json* cache = At(root_, "kv_cache_scheme");
    if (cache != nullptr) {
      warnings_.push_back(where_ + ": kv_cache_scheme has no effect; cache_type decides");
    }
    const json* groups = At(root_, "config_groups");
    if (!errors_.Require(groups != nullptr && groups->is_object() && !groups->empty(),
                         "quantization_config has no config_groups, an object of one group or "
                         "more")) {
      return;
    }
    const json& first = groups->front();
    for (const auto& [name, group] : groups->items()) {
      const auto same = [&](const char* key) {
        return group.is_object() && first.is_object() &&
               group.value(key, json()) == first.value(key, json());
      };
      if (!same("weights") || !same("input_activations") || !same("format")) {
        Refuse(
            fmt::format("quantization_config has a config_groups.{} that differs from the first; "
                        "known is one scheme for all layers that are quantised",
                        Printable(name, kShownPattern)));
        return;
      }
    }
    OneGroup(first);
    Warn({"quant_method", "format", "quantization_status", "sparsity_config", "transform_config",
          "ignore", "kv_cache_scheme", "config_groups", "global_compression_ratio", "version",
          "moe_sparsity_config"});
  }

  void OneGroup(const json& group) {
    constexpr const char* kWeights = "config_groups' weights.";
    const json* weights = At(group, "weights");
    if (!errors_.Require(weights != nullptr && weights->is_object(),
                         "quantization_config has config_groups without weights")) {
      return;
    }
    if (At(group, "output_activations") != nullptr) {
      Refuse("quantization_config has output_activations; known is null");
    }
    const json* format = At(group, "format");
    if (format == nullptr) format = At(root_, "format");
    Only(*weights, kWeights, "dynamic", {false});
    const json* inputs = At(group, "input_activations");
    if (format != nullptr && *format == "float-quantized") {
      FloatQuantized(*weights, inputs);
    } else if (format != nullptr && *format == "pack-quantized") {
      PackQuantized(*weights, inputs);
    } else if (format != nullptr && *format == "nvfp4-pack-quantized") {
      Nvfp4(*weights, inputs);
    } else {
      Refuse(
          fmt::format("quantization_config has format {}; known is float-quantized, "
                      "pack-quantized, nvfp4-pack-quantized",
                      format == nullptr ? "null" : ShownValue(*format)));
    }
  }

  void FloatQuantized(const json& weights, const json* inputs) {
    constexpr const char* kWeights = "config_groups' weights.";
    constexpr const char* kInputs = "config_groups' input_activations.";
    coding_.form = Form::kFloatQuantized;
    Needs(weights, kWeights, "num_bits", {8});
    Needs(weights, kWeights, "type", {"float"});
    Only(weights, kWeights, "symmetric", {true});
    Needs(weights, kWeights, "strategy", {"channel", "tensor", "block"});
    const json strategy = weights.value("strategy", json());
    const bool blocks = strategy == "block";
    if (blocks) Needs(weights, kWeights, "block_structure", {json{kBlock, kBlock}});
    coding_.weights = blocks                 ? QuantDesc{QuantType::kB, kBlock}
                      : strategy == "tensor" ? QuantDesc{QuantType::kTensor}
                                             : QuantDesc{QuantType::kRow};
    if (inputs == nullptr) return;  // weights alone
    coding_.inputs = blocks ? QuantDesc{QuantType::kK, kBlock} : QuantDesc{QuantType::kRow};
    if (!inputs->is_object()) {
      Refuse(
          "quantization_config has input_activations that are no object; known are null, and "
          "inputs "
          "of 8 bits of type float");
      return;
    }
    Needs(*inputs, kInputs, "num_bits", {8});
    Needs(*inputs, kInputs, "type", {"float"});
    Only(*inputs, kInputs, "symmetric", {true});
    coding_.given_inputs = inputs->value("dynamic", json(false)) == false;
    if (blocks) {
      Needs(*inputs, kInputs, "strategy", {"group"});
      Needs(*inputs, kInputs, "group_size", {kBlock});
      Needs(*inputs, kInputs, "dynamic", {true});
    } else if (coding_.given_inputs) {
      Needs(*inputs, kInputs, "strategy", {"tensor"});
    } else {
      Needs(*inputs, kInputs, "dynamic", {true});
      Needs(*inputs, kInputs, "strategy", {"token"});
    }
  }

  void Nvfp4(const json& weights, const json* inputs) {
    constexpr const char* kWeights = "config_groups' weights.";
    coding_.form = Form::kNvfp4;
    coding_.weights = {QuantType::kK, 16};
    Needs(weights, kWeights, "num_bits", {kBits});
    Needs(weights, kWeights, "type", {"float"});
    Only(weights, kWeights, "symmetric", {true});
    Needs(weights, kWeights, "strategy", {"tensor_group"});
    Needs(weights, kWeights, "group_size", {16});
    if (inputs != nullptr) {
      Refuse(
          "quantization_config has input_activations beside nvfp4-pack-quantized; known is null, "
          "weights alone");
    }
  }

  void PackQuantized(const json& weights, const json* inputs) {
    constexpr const char* kWeights = "config_groups' weights.";
    coding_.form = Form::kPackQuantized;
    Needs(weights, kWeights, "num_bits", {kBits});
    Needs(weights, kWeights, "type", {"int"});
    Needs(weights, kWeights, "symmetric", {true, false});
    Needs(weights, kWeights, "strategy", {"group", "channel"});
    coding_.zeros = weights.value("symmetric", json()) == false;
    if (weights.value("strategy", json()) == "group") {
      Group(weights, kWeights);
    } else {
      coding_.weights = {QuantType::kRow};
    }
    if (inputs != nullptr) {
      Refuse("quantization_config has input_activations beside pack-quantized; known is null");
    }
  }

  const json& root_;
  ConfigReader& errors_;
  std::string where_;
  std::vector<std::string>& warnings_;
  WeightCoding coding_;
};

}  // namespace

WeightCoding ReadWeightCoding(const json& quantization, ConfigReader& reader,
                              const std::string& origin, std::vector<std::string>& warnings) {
  return Reader(quantization, reader, origin, warnings).Read();
}

bool IsModulePattern(const std::string& pattern) {
  return !pattern.starts_with("re:") || IsRegex(pattern.substr(3));
}

bool ListsModule(std::span<const std::string> patterns, std::string_view module) {
  const auto lists = [&](const std::string& pattern) {
    if (pattern.starts_with("re:")) {
      if (module.size() > kMostNameBytes) return false;
      const std::regex expression(pattern.substr(3), std::regex::ECMAScript);
      return std::regex_search(module.begin(), module.end(), expression,
                               std::regex_constants::match_continuous);
    }
    if (!module.starts_with(pattern) && !module.ends_with(pattern)) return false;
    if (module.size() == pattern.size()) return true;
    const bool first = module.starts_with(pattern) && module[pattern.size()] == '.';
    const bool last =
        module.ends_with(pattern) && module[module.size() - pattern.size() - 1] == '.';
    return first || last;
  };
  return std::ranges::any_of(patterns, lists);
}

}  // namespace culet
