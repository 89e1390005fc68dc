#include "model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "culet/gguf.h"
#include "culet/printable.h"

namespace culet {
namespace {

using nlohmann::json;

constexpr std::size_t kShown = 40;

constexpr std::string_view kRopeFactors = "rope_freqs.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight",
                           kLongFactors = "rope_factors_long.weight";

std::string ShownValue(const json& value) {
  return Printable(value.dump(-1, ' ', true, json::error_handler_t::replace), kShown);
}

// Keys of one architecture, and what they must hold. The first error sticks.
class Keys {
 public:
  Keys(const GgufFile& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  const Status& status() const noexcept { return status_; }

  const json* Find(const std::string& key) const {
    const auto it = file_.metadata().find(prefix_ + key);
    return it == file_.metadata().end() ? nullptr : &*it;
  }

  // Of layers that all have the same; a list says it for each.
  std::int64_t Count(const std::string& key) {
    const json* value = Find(key);
    if (value == nullptr) {
      Fail(StatusCode::kInvalidArgument, fmt::format("metadata {}{} is missing", prefix_, key));
      return 1;
    }
    if (value->is_array() && !value->empty() &&
        std::ranges::all_of(*value, [&](const json& one) { return one == value->front(); })) {
      value = &value->front();
    }
    const bool fits = value->is_number_integer() && *value >= 1 &&
                      *value <= std::numeric_limits<std::int32_t>::max();
    if (fits) return value->get<std::int64_t>();
    Fail(value->is_array() ? StatusCode::kUnsupported : StatusCode::kInvalidArgument,
         fmt::format("metadata {}{} is {}; it must be a whole number above 0, the same in all "
                     "layers",
                     prefix_, key, ShownValue(*value)));
    return 1;
  }
  std::int64_t CountOr(const std::string& key, std::int64_t fallback) {
    return Find(key) == nullptr ? fallback : Count(key);
  }

  double Number(const std::string& key, std::optional<double> fallback = {}) {
    const json* value = Find(key);
    if (value == nullptr && fallback) return *fallback;
    if (value != nullptr && value->is_number() && std::isfinite(value->get<double>()) &&
        value->get<double>() > 0) {
      return value->get<double>();
    }
    Fail(StatusCode::kInvalidArgument,
         fmt::format("metadata {}{} is {}; it must be a number above 0", prefix_, key,
                     value == nullptr ? "missing" : ShownValue(*value)));
    return 1;
  }

  std::string Text(const std::string& key) {
    const json* value = Find(key);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    Fail(StatusCode::kInvalidArgument,
         fmt::format("metadata {}{} is {}; it must be a text", prefix_, key, ShownValue(*value)));
    return {};
  }

  void Supported(bool condition, const std::string& sentence) {
    if (!condition) Fail(StatusCode::kUnsupported, sentence);
  }

 private:
  void Fail(StatusCode code, const std::string& sentence) {
    if (status_.ok()) status_ = Status(code, fmt::format("{}: {}", file_.path(), sentence));
  }

  const GgufFile& file_;
  std::string prefix_;
  Status status_;
};

// float32 as the shortest decimal number that is it.
double Shortest(double stored) { return std::stod(fmt::format("{}", static_cast<float>(stored))); }

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

Result<json> RopeScalingOf(const GgufFile& file, Keys& keys, std::int64_t dims,
                           std::int64_t context) {
  const std::string type = keys.Text("rope.scaling.type");
  const GgufTensor *of_short = file.Find(kShortFactors), *of_long = file.Find(kLongFactors);
  if (of_short != nullptr && of_long != nullptr) {  // Phi-3's; rope.scaling.type says nothing more
    const auto shorter = RopeFactors(file, *of_short, dims);
    if (!shorter) return shorter.status();
    const auto longer = RopeFactors(file, *of_long, dims);
    if (!longer) return longer.status();
    const std::int64_t original = keys.CountOr("rope.scaling.original_context_length", context);
    json scaling{{"rope_type", "longrope"},
                 {"short_factor", *shorter},
                 {"long_factor", *longer},
                 {"factor", static_cast<double>(context) / static_cast<double>(original)},
                 {"original_max_position_embeddings", original}};
    if (keys.Find("rope.scaling.attn_factor") != nullptr) {
      scaling["attention_factor"] = Shortest(keys.Number("rope.scaling.attn_factor"));
    }
    return scaling;
  }
  const GgufTensor* tensor = file.Find(kRopeFactors);
  const bool plain = type.empty() || type == "none";
  keys.Supported(plain || type == "linear" || type == "yarn",
                 fmt::format("rope.scaling.type is {}; known are none, linear, yarn",
                             Printable(type, kShown)));
  if (tensor != nullptr) {
    keys.Supported(plain, fmt::format("tensor {} stands beside rope.scaling.type {}; known is one "
                                      "of the two",
                                      kRopeFactors, Printable(type, kShown)));
    const auto factors = RopeFactors(file, *tensor, dims);
    if (!factors) return factors.status();
    // The same frequencies at every length.
    return json{{"rope_type", "longrope"}, {"short_factor", *factors},
                {"long_factor", *factors}, {"factor", 1},
                {"attention_factor", 1},   {"original_max_position_embeddings", context}};
  }
  if (plain) return json();
  json scaling{{"rope_type", type}, {"factor", Shortest(keys.Number("rope.scaling.factor"))}};
  if (type == "yarn") {
    scaling["original_max_position_embeddings"] =
        keys.CountOr("rope.scaling.original_context_length", context);
  }
  return scaling;
}

// Their number, how many a token uses, and how wide each is.
void AddExperts(const GgufArchitecture& arch, Keys& keys, json& config) {
  config["num_experts_per_tok"] = keys.Count("expert_used_count");
  if (arch.of == std::string_view("MixtralForCausalLM")) {
    config["num_local_experts"] = keys.Count("expert_count");
    return;
  }
  config["num_experts"] = keys.Count("expert_count");
  config["moe_intermediate_size"] = keys.Count("expert_feed_forward_length");
  // Files do not say whether shares are divided by their sum; the architectures do.
  config["norm_topk_prob"] = arch.of == std::string_view("Qwen3MoeForCausalLM");
  if (arch.of == std::string_view("Qwen2MoeForCausalLM")) {
    config["shared_expert_intermediate_size"] = keys.Count("expert_shared_feed_forward_length");
  }
}

// Files do not say what attention is scaled by: a head's size, but in the models of 27B the share
// of the hidden size that a head has.
void AddGemma(const GgufArchitecture& arch, Keys& keys, json& config) {
  const bool second = arch.name == std::string_view("gemma2");
  const std::int64_t layers = config["num_hidden_layers"], of_27b = second ? 46 : 62;
  const std::int64_t hidden = config["hidden_size"], heads = config["num_attention_heads"];
  if (keys.Find("attention.scale") != nullptr) {
    const double scale = keys.Number("attention.scale");
    config["query_pre_attn_scalar"] = 1 / (scale * scale);
  } else {
    config["query_pre_attn_scalar"] =
        layers == of_27b ? hidden / heads : config["head_dim"].get<std::int64_t>();
  }
  config["hidden_activation"] = "gelu_pytorch_tanh";
  const auto cap = [&](const char* name, const char* key, double usual) {
    config[name] =
        keys.Find(key) == nullptr && usual == 0 ? json() : json(Shortest(keys.Number(key, usual)));
  };
  cap("final_logit_softcapping", "final_logit_softcapping", second ? 30 : 0);
  if (second) cap("attn_logit_softcapping", "attn_logit_softcapping", 50);
  if (second) return;
  config["sliding_window_pattern"] = keys.CountOr("attention.sliding_window_pattern", 6);
  config["rope_local_base_freq"] = Shortest(keys.Number("rope.freq_base_swa", 1e4));
}

bool IsText(const json& value, std::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

}  // namespace

Result<const GgufArchitecture*> GgufArchitectureOf(const GgufFile& file) {
  Keys keys(file, "general.");
  const std::string name = keys.Text("architecture");
  CULET_RETURN_IF_ERROR(keys.status());
  const auto splits = file.metadata().find("split.count");
  if (splits != file.metadata().end() && splits->is_number_integer() && *splits > 1) {
    return Status(StatusCode::kUnsupported,
                  fmt::format("{} is one of {} files of a model; merge them with llama-gguf-split "
                              "--merge",
                              file.path(), ShownValue(*splits)));
  }
  Keys of(file, name + ".");
  const json* experts = of.Find("expert_count");
  const bool routed = experts != nullptr && *experts != 0;
  std::vector<std::string_view> known;
  const GgufArchitecture* same = nullptr;
  for (const GgufArchitecture& each : GgufArchitectures()) {
    if (name == each.name && routed == each.experts) return &each;
    if (name == each.name) same = &each;
    if (known.empty() || known.back() != each.name) known.push_back(each.name);
  }
  if (same != nullptr) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{}: metadata {}.expert_count is {}; known is this architecture {} "
                    "routed experts",
                    file.path(), name, experts == nullptr ? "missing" : ShownValue(*experts),
                    same->experts ? "with" : "without"));
  }
  return Status(name.empty() ? StatusCode::kInvalidArgument : StatusCode::kUnsupported,
                fmt::format("{}: metadata general.architecture is {}; known in GGUF files are {}",
                            file.path(), name.empty() ? "missing" : Printable(name, kShown),
                            fmt::join(known, ", ")));
}

Result<std::string> GgufConfigText(const GgufFile& file) {
  const auto architecture = GgufArchitectureOf(file);
  if (!architecture) return architecture.status();
  const GgufArchitecture& arch = **architecture;
  Keys keys(file, std::string(arch.name) + ".");
  json config;
  config["architectures"] = {arch.of};
  config["model_type"] = arch.model_type;
  const std::int64_t hidden = keys.Count("embedding_length");
  const std::int64_t heads = keys.Count("attention.head_count");
  const std::int64_t context = keys.Count("context_length");
  const std::int64_t head_dim =
      keys.CountOr("attention.key_length", std::max<std::int64_t>(1, hidden / heads));
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = keys.CountOr("attention.head_count_kv", heads);
  config["head_dim"] = head_dim;
  config["num_hidden_layers"] = keys.Count("block_count");
  config["intermediate_size"] = keys.Count("feed_forward_length");
  config["max_position_embeddings"] = context;
  const bool phi3 = arch.of == std::string_view("Phi3ForCausalLM");
  config["rms_norm_eps"] = Shortest(keys.Number("attention.layer_norm_rms_epsilon"));
  config["rope_theta"] = Shortest(keys.Number("rope.freq_base", 10000.0));
  const std::int64_t values = keys.CountOr("attention.value_length", head_dim);
  const std::int64_t turning = keys.CountOr("rope.dimension_count", head_dim);
  keys.Supported(values == head_dim && (turning == head_dim || (phi3 && turning < head_dim)),
                 fmt::format("metadata has attention.key_length {}, attention.value_length {} and "
                             "rope.dimension_count {}; known are heads of one size that turn as a "
                             "whole",
                             head_dim, values, turning));
  if (phi3) {
    config["partial_rotary_factor"] = static_cast<double>(turning) / static_cast<double>(head_dim);
    config["pad_token_id"] = 0;
  }
  if (keys.Find("attention.sliding_window") != nullptr &&
      *keys.Find("attention.sliding_window") != 0) {
    config["sliding_window"] = keys.Count("attention.sliding_window");
  } else if (phi3 || arch.of == std::string_view("MixtralForCausalLM")) {
    config["sliding_window"] = nullptr;
  }
  if (arch.experts) AddExperts(arch, keys, config);
  if (arch.name == std::string_view("gemma2") || arch.name == std::string_view("gemma3")) {
    AddGemma(arch, keys, config);
  }
  const GgufTensor* embedding = file.Find("token_embd.weight");
  if (embedding != nullptr) {
    config["vocab_size"] = embedding->rows();
  } else {
    config["vocab_size"] = keys.Count("vocab_size");
  }
  config["tie_word_embeddings"] = file.Find("output.weight") == nullptr;
  const std::string_view of = arch.of;
  if (of == "LlamaForCausalLM" || of == "Qwen3ForCausalLM" || of == "Qwen3MoeForCausalLM") {
    config["attention_bias"] = file.Find("blk.0.attn_q.bias") != nullptr;
  }
  if (of == "LlamaForCausalLM") {
    config["mlp_bias"] = file.Find("blk.0.ffn_gate.bias") != nullptr;
  }
  auto scaling = RopeScalingOf(file, keys, turning, context);
  if (!scaling) return scaling.status();
  if (!scaling->is_null()) config["rope_scaling"] = *std::move(scaling);
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
  constexpr std::array kEndsOfTurns = {"<|eot_id|>",    "<|im_end|>",    "<|end_of_text|>",
                                       "<|endoftext|>", "<end_of_turn>", "<|end|>"};
  constexpr int kControl = 3;
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  const auto types = metadata.find("tokenizer.ggml.token_type");
  if (tokens == metadata.end() || types == metadata.end() || !tokens->is_array() ||
      !types->is_array() || ends.empty()) {
    return ends;
  }
  for (std::size_t i = 0; i < std::min(tokens->size(), types->size()); ++i) {
    if ((*types)[i] != kControl) continue;
    for (const char* end : kEndsOfTurns) {
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
