#include "model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/gguf.h"
#include "culet/printable.h"
#include "model/gguf_keys.h"
#include "model/shown.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr std::string_view kRopeFactors = "rope_freqs.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight",
                           kLongFactors = "rope_factors_long.weight";

// What frequencies are divided by, one for each pair of elements.
Result<std::vector<double>> RopeFactors(const GgufFile& file, const GgufTensor& tensor,
                                        std::int64_t dims) {
  if (!tensor.is(GgufType::kF32) || tensor.sizes != std::vector<std::int64_t>{dims / 2}) {
    return Status(
        StatusCode::kInvalidArgument,
        fmt::format("{}: tensor {} is {} [{}]; it must be F32 [{}]", file.path(), tensor.name,
                    tensor.type->name, fmt::join(tensor.sizes, ", "), dims / 2));
  }
  std::vector<double> factors;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    float factor = 0;
    std::memcpy(&factor, tensor.data + static_cast<std::size_t>(i) * sizeof factor, sizeof factor);
    if (!(factor > 0) || !std::isfinite(factor)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("{}: tensor {} holds {}; factors of frequencies are above 0",
                                file.path(), tensor.name, factor));
    }
    factors.push_back(factor);
  }
  return factors;
}

Result<json> RopeScalingOf(const GgufFile& file, GgufKeys& keys, std::int64_t dims,
                           std::int64_t context) {
  const std::string type = keys.Text("rope.scaling.type");
  const std::int64_t original = keys.CountOr("rope.scaling.original_context_length", context);
  const GgufTensor *of_short = file.Find(kShortFactors), *of_long = file.Find(kLongFactors);
  if (of_short != nullptr && of_long != nullptr) {  // Phi-3's; rope.scaling.type says nothing more
    const auto shorter = RopeFactors(file, *of_short, dims);
    if (!shorter) return shorter.status();
    const auto longer = RopeFactors(file, *of_long, dims);
    if (!longer) return longer.status();
    json scaling{{"rope_type", "longrope"},
                 {"short_factor", *shorter},
                 {"long_factor", *longer},
                 {"factor", static_cast<double>(context) / static_cast<double>(original)},
                 {"original_max_position_embeddings", original}};
    if (keys.Find("rope.scaling.attn_factor") != nullptr) {
      scaling["attention_factor"] = ShortestDecimal(keys.Number("rope.scaling.attn_factor"));
    }
    return scaling;
  }
  const GgufTensor* tensor = file.Find(kRopeFactors);
  const bool plain = type.empty() || type == "none";
  keys.Supported(plain || type == "linear" || type == "yarn",
                 fmt::format("rope.scaling.type is {}; known are none, linear, yarn",
                             Printable(type, kShownText)));
  if (tensor != nullptr) {
    keys.Supported(plain, fmt::format("tensor {} stands beside rope.scaling.type {}; known is one "
                                      "of the two",
                                      kRopeFactors, Printable(type, kShownText)));
    const auto factors = RopeFactors(file, *tensor, dims);
    if (!factors) return factors.status();
    // The same frequencies at every length.
    return json{{"rope_type", "longrope"}, {"short_factor", *factors},
                {"long_factor", *factors}, {"factor", 1},
                {"attention_factor", 1},   {"original_max_position_embeddings", context}};
  }
  if (plain) return json();
  json scaling{{"rope_type", type},
               {"factor", ShortestDecimal(keys.Number("rope.scaling.factor"))}};
  if (type == "yarn") {
    scaling["original_max_position_embeddings"] = original;
    const auto copy = [&](const char* name, const char* key) {
      if (keys.Find(key) != nullptr) scaling[name] = ShortestDecimal(keys.Number(key));
    };
    copy("beta_fast", "rope.scaling.yarn_beta_fast");
    copy("beta_slow", "rope.scaling.yarn_beta_slow");
    copy("attention_factor", "rope.scaling.yarn_attn_factor");
    const double mix = keys.Number("rope.scaling.yarn_ext_factor", 1.0);
    keys.Supported(mix == 1, fmt::format("metadata {}rope.scaling.yarn_ext_factor is {}; known is "
                                         "1",
                                         keys.prefix(), mix));
  }
  return scaling;
}

std::int64_t BlocksAhead(GgufKeys& keys) { return keys.CountOrZero("nextn_predict_layers"); }

bool IsText(const json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

}  // namespace

Result<const GgufArchitecture*> GgufArchitectureOf(const GgufFile& file) {
  GgufKeys keys(file, "general.");
  const std::string name = keys.Text("architecture");
  CULET_RETURN_IF_ERROR(keys.status());
  const auto splits = file.metadata().find("split.count");
  if (file.parts() == 1 && splits != file.metadata().end() && splits->is_number_integer() &&
      *splits > 1) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{} is one of {} files of a model; merge them with llama-gguf-split "
                              "--merge",
                              file.path(), ShownGgufValue(*splits)));
  }
  GgufKeys of(file, name + ".");
  const json* experts = of.Find("expert_count");
  const bool routed = experts != nullptr && *experts != 0;
  const json* gating = of.Find("expert_gating_func");
  const bool any_gating = gating == nullptr || *gating == 0;
  std::vector<std::string_view> known;
  std::vector<std::int64_t> gatings;
  const GgufArchitecture* same = nullptr;
  for (const GgufArchitecture& each : GgufArchitectures()) {
    if (known.empty() || known.back() != each.name) known.push_back(each.name);
    if (name != each.name) continue;
    same = &each;
    if (routed != each.experts || (each.is != nullptr && !each.is(file))) continue;
    if (each.gating == 0 || any_gating || *gating == each.gating) return &each;
    gatings.push_back(each.gating);
  }
  if (!gatings.empty()) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{}: metadata {}.expert_gating_func is {}; known is {}", file.path(),
                              name, ShownGgufValue(*gating), fmt::join(gatings, ", ")));
  }
  if (same != nullptr) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: metadata {}.expert_count is {}; known is this architecture {} "
                    "routed experts",
                    file.path(), name, experts == nullptr ? "missing" : ShownGgufValue(*experts),
                    same->experts ? "with" : "without"));
  }
  return Status(name.empty() ? StatusCode::kInvalidArgument : StatusCode::kUnsupported,
                fmt::format("{}: metadata general.architecture is {}; known in GGUF files are {}",
                            file.path(), name.empty() ? "missing" : Printable(name, kShownText),
                            fmt::join(known, ", ")));
}

namespace {

// Heads, of which all or a first part turns.
void AddHeads(const GgufArchitecture& arch, GgufKeys& keys, json& config) {
  const std::int64_t hidden = config["hidden_size"], heads = config["num_attention_heads"];
  const std::int64_t head_dim =
      keys.CountOr("attention.key_length", std::max<std::int64_t>(1, hidden / heads));
  const std::int64_t values = keys.CountOr("attention.value_length", head_dim);
  const std::int64_t turning = keys.CountOr("rope.dimension_count", head_dim);
  config["num_key_value_heads"] = keys.CountOr("attention.head_count_kv", heads);
  config["head_dim"] = head_dim;
  keys.Supported(
      values == head_dim &&
          (turning == head_dim || (arch.partial != nullptr && turning < head_dim)),
      fmt::format("metadata has attention.key_length {}, attention.value_length {} and "
                  "rope.dimension_count {}; known are heads of one size that turn as a whole",
                  head_dim, values, turning));
  if (arch.partial == nullptr) return;
  if (arch.partial == std::string_view("rotary_dim")) {
    config[arch.partial] = turning;
  } else {
    config[arch.partial] = static_cast<double>(turning) / static_cast<double>(head_dim);
  }
}

}  // namespace

Result<std::string> GgufConfigText(const GgufFile& file) {
  const auto architecture = GgufArchitectureOf(file);
  if (!architecture) return architecture.status();
  const GgufArchitecture& arch = **architecture;
  GgufKeys keys(file, std::string(arch.name) + ".");
  json config;
  config["architectures"] = {arch.of};
  config["model_type"] = arch.model_type;
  const std::int64_t context = keys.Count("context_length");
  config["hidden_size"] = keys.Count("embedding_length");
  config["num_attention_heads"] = keys.Count("attention.head_count");
  const std::int64_t blocks = keys.Count("block_count"), ahead = BlocksAhead(keys);
  keys.Supported(ahead < blocks, fmt::format("metadata {}nextn_predict_layers is {}, of {} blocks",
                                             keys.prefix(), ahead, blocks));
  config["num_hidden_layers"] = std::max<std::int64_t>(1, blocks - ahead);
  config["intermediate_size"] = keys.Count("feed_forward_length");
  config["max_position_embeddings"] = context;
  if (!arch.layer_norm) {
    config["rms_norm_eps"] = ShortestDecimal(keys.Number("attention.layer_norm_rms_epsilon"));
  }
  config["rope_theta"] = ShortestDecimal(keys.Number("rope.freq_base", 10000.0));
  if (!arch.latent) AddHeads(arch, keys, config);
  if (keys.CountOrZero("attention.sliding_window") > 0) {
    config["sliding_window"] = keys.Count("attention.sliding_window");
  }
  const GgufTensor* embedding = file.Find("token_embd.weight");
  config["vocab_size"] = embedding != nullptr ? embedding->rows() : keys.Count("vocab_size");
  config["tie_word_embeddings"] = file.Find("output.weight") == nullptr;
  const std::int64_t dims = arch.latent ? keys.Count("rope.dimension_count")
                                        : keys.CountOr("rope.dimension_count", config["head_dim"]);
  auto scaling = RopeScalingOf(file, keys, dims, context);
  if (!scaling) return scaling.status();
  if (!scaling->is_null()) config["rope_scaling"] = *std::move(scaling);
  if (arch.add != nullptr) arch.add(file, keys, config);
  CULET_RETURN_IF_ERROR(keys.status());
  if (const std::vector<int> ends = GgufEndTokens(file); !ends.empty()) {
    config["eos_token_id"] = ends;
  }
  config["quantization_config"] = {{"quant_method", "gguf"}};
  return config.dump();
}

void FinishGgufConfig(const GgufFile& file, DecoderConfig& config) {
  const auto architecture = GgufArchitectureOf(file);
  if (architecture && (*architecture)->interleaved) {
    config.rope.layout = config.local_rope.layout = RopeLayout::kNorm;
  }
  // No length has other frequencies.
  if (file.Find(kRopeFactors) != nullptr) {
    config.rope.original_context = config.local_rope.original_context = 0;
  }
  // Ranks cut the columns of these alone.
  int largest = 1;
  for (const GgufTensor& tensor : file.tensors()) {
    const bool cut = tensor.name.find(".attn_output.") != std::string::npos ||
                     tensor.name.find(".ffn_down") != std::string::npos;
    if (cut) largest = std::max(largest, tensor.type->block_elements);
  }
  config.coding.weights = {QuantType::kK, largest};
}

std::int64_t GgufBlocksAhead(const GgufFile& file) {
  const auto architecture = GgufArchitectureOf(file);
  if (!architecture) return 0;
  GgufKeys keys(file, std::string((*architecture)->name) + ".");
  return BlocksAhead(keys);
}

std::vector<int> GgufEndTokens(const GgufFile& file) {
  const json& metadata = file.metadata();
  std::vector<int> ends;
  const auto add = [&](std::int64_t id) {
    if (id < 0 || id > std::numeric_limits<int>::max()) return;
    if (std::ranges::find(ends, static_cast<int>(id)) == ends.end()) {
      ends.push_back(static_cast<int>(id));
    }
  };
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const auto it = metadata.find(std::string("tokenizer.ggml.") + key);
    if (it != metadata.end() && it->is_number_integer()) add(it->get<std::int64_t>());
  }
  // Files name one end token; chat templates end a turn with another.
  constexpr std::array kEndsOfTurns = {"<|eot_id|>",    "<|im_end|>",     "<|end_of_text|>",
                                       "<|endoftext|>", "<end_of_turn>",  "<|end|>",
                                       "<|return|>",    "<|call|>",       "<|END_OF_TURN_TOKEN|>",
                                       "<|eot|>",       "<|observation|>"};
  constexpr int kControl = 3;
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  const auto types = metadata.find("tokenizer.ggml.token_type");
  if (tokens == metadata.end() || types == metadata.end() || !tokens->is_array() ||
      !types->is_array() || ends.empty()) {
    return ends;
  }
  const std::size_t count = std::min(tokens->size(), types->size());
  // Harmony's <|end|> ends a message, of which a turn has several.
  bool harmony = false;
  for (std::size_t i = 0; i < count; ++i) harmony |= IsText((*tokens)[i], "<|return|>");
  for (std::size_t i = 0; i < count; ++i) {
    if ((*types)[i] != kControl) continue;
    for (const char* end : kEndsOfTurns) {
      if (harmony && end == std::string_view("<|end|>")) continue;
      if (IsText((*tokens)[i], end)) add(static_cast<std::int64_t>(i));
    }
  }
  return ends;
}

std::string GgufMetadataText(const GgufFile& file) {
  return file.metadata().dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

Result<std::string> GgufMetadataJson(const std::string& path) {
  const auto file = GgufPathOf(path);
  if (!file) return file.status();
  if (file->empty()) return std::string("null");
  const auto opened = GgufFile::Open(*file);
  if (!opened) return opened.status();
  return GgufMetadataText(*opened);
}

}  // namespace culet
