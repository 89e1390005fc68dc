#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "culet/decoder.h"
#include "culet/model.h"
#include "model/config_file.h"
#include "model/config_reader.h"
#include "model/decoder_reader.h"
#include "model/find_architecture.h"
#include "model/quantization_config.h"
#include "model/text_kind.h"
#include "model/weight_source.h"

namespace culet {
namespace {

using nlohmann::json;

// How the checkpoint stores its weights.
std::optional<Format> FormatOf(const json& config) {
  const ConfigReader reader(config, "");
  const auto quantization = config.find("quantization_config");
  if (quantization != config.end() && !quantization->is_null()) {
    ConfigReader errors(config, "");
    std::vector<std::string> unused;
    const WeightCoding coding = ReadWeightCoding(*quantization, errors, "", unused);
    const bool alone = coding.inputs == QuantDesc{};  // a product that no Format describes
    if (!errors.status().ok() || !coding.is_e4m3() || alone) return std::nullopt;
    return coding.weights.type == QuantType::kB ? Format::kFp8Block : Format::kFp8Row;
  }
  const std::string type = reader.TextOrEmpty({"dtype", "torch_dtype"});
  if (type == "bfloat16") return Format::kBf16;
  if (type == "float16") return Format::kF16;
  if (type == "float32") return Format::kF32;
  return std::nullopt;
}

// Weights without memory, of which the graph's shapes are.
class NoWeights final : public WeightSource {
 public:
  explicit NoWeights(WeightMemory& memory) : WeightSource(memory) {}
  Weight Get(const std::string& name, std::int64_t rows, std::int64_t cols, WeightRole) override {
    Weight weight;
    weight.name = name;
    weight.type = DataType::kBfloat16;
    weight.rows = rows;
    weight.cols = cols;
    weight.data_ptr = sizeof(float);  // no address, but one
    return weight;
  }
  const Status& status() const noexcept override { return status_; }
  DataType TypeOf(const std::string&, WeightRole) const override { return DataType::kBfloat16; }

 private:
  Status status_;
};

// Nodes of a layer whose products have one input and are computed as one, and what that one is
// called; in the order in which products are listed.
struct JoinedNodes {
  const char* name;
  std::vector<std::string_view> nodes;
};
const std::vector<JoinedNodes>& Listed() {
  static const auto& listed =
      *new std::vector<JoinedNodes>{{"qkv", {"q", "k", "v"}},
                                    {"q_a", {"q_a"}},
                                    {"q_b", {"q_b"}},
                                    {"q_proj", {"q_proj"}},
                                    {"kv_a", {"kv_a"}},
                                    {"linear_in", {"linear_in"}},
                                    {"linear_gates", {"linear_gates"}},
                                    {"o", {"o"}},
                                    {"gate_up", {"gate", "up"}},
                                    {"down", {"down"}},
                                    {"shared.gate_up", {"shared.gate", "shared.up"}},
                                    {"shared.down", {"shared.down"}},
                                    {"shared.router", {"shared.router"}},
                                    {"router", {"router"}},
                                    {"experts.gate_up", {"experts.gate", "experts.up"}},
                                    {"experts.down", {"experts.down"}},
                                    {"lm_head", {"logits"}}};
  return listed;
}

// "experts.gate" of "layers.0.experts.gate"; other names as they are.
std::string_view NameInLayer(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  return name.starts_with(kLayers) ? name.substr(name.find('.', kLayers.size()) + 1) : name;
}

// The products of a step of one token, layer by layer.
class Products {
 public:
  Products(const DecoderConfig& config, const std::string& origin)
      : config_(config), origin_(origin) {}

  void Add(const TensorNode& node) {
    const bool routed = node.op == TensorOp::kExpertMulMat;
    if (!routed && node.op != TensorOp::kMulMat) return;
    const Weight& weight = routed ? node.params.experts->weights.front() : node.params.weight;
    const std::string_view name = NameInLayer(node.name);
    for (const JoinedNodes& joined : Listed()) {
      const auto& nodes = joined.nodes;
      if (std::ranges::find(nodes, name) == nodes.end()) continue;
      rows_ += weight.rows;
      if (name != nodes.back()) continue;
      Put(joined.name, rows_, weight.cols, routed ? config_.experts : 0,
          routed ? config_.routing.active : 0);
    }
  }

  Result<std::vector<ModelProduct>> Finish() {
    CULET_RETURN_IF_ERROR(status_);
    const auto place = [](const ModelProduct& product) {
      const auto named = [&](const JoinedNodes& each) { return product.name == each.name; };
      return std::ranges::find_if(Listed(), named) - Listed().begin();
    };
    std::ranges::stable_sort(products_, std::less(), place);
    return std::move(products_);
  }

 private:
  void Put(const char* name, std::int64_t n, std::int64_t k, int experts, int active) {
    rows_ = 0;
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    if ((n > kMost || k > kMost) && status_.ok()) {
      status_ =
          Status(StatusCode::kInvalidArgument,
                 fmt::format("{}: {} is {}, more than {}", origin_, name, std::max(n, k), kMost));
      return;
    }
    const auto same = [&](const ModelProduct& each) {
      return each.name == name && each.n == n && each.k == k && each.experts == experts;
    };
    const auto found = std::ranges::find_if(products_, same);
    if (found != products_.end()) {
      ++found->layers;
      return;
    }
    products_.push_back({name, static_cast<int>(n), static_cast<int>(k), 1, experts, active});
  }

  const DecoderConfig& config_;
  const std::string& origin_;
  std::int64_t rows_ = 0;  // of the joined nodes so far
  std::vector<ModelProduct> products_;
  Status status_;
};

// From the graph of a step of one token.
Result<std::vector<ModelProduct>> ProductsOf(const DecoderConfig& config,
                                             const std::string& origin) {
  WeightMemory memory(HostMemory());
  NoWeights source(memory);
  const auto weights = BindDecoder(config, source);
  if (!weights) return weights.status();
  const std::vector<DevicePtr> none(static_cast<std::size_t>(config.layers), sizeof(float));
  CacheLayout cache;
  cache.blocks = cache.block_size = 1;
  cache.sequences = 1;
  cache.keys = cache.values = cache.conv_states = cache.delta_states = none;
  const DecoderBatch batch{.tokens = 1, .sequences = 1, .table_blocks = 1};
  const DecoderGraph built = BuildDecoderGraph(config, *weights, {}, cache, batch);
  Products products(config, origin);
  for (const TensorNode& node : built.graph.nodes()) products.Add(node);
  return products.Finish();
}

}  // namespace

int RowsOf(const ModelProduct& product, int tokens) noexcept {
  if (product.experts <= 0) return tokens;
  const std::int64_t routed = std::int64_t{tokens} * product.active_experts;
  return static_cast<int>((routed + product.experts - 1) / product.experts);
}

std::vector<std::string> KnownArchitectures() {
  std::vector<std::string> names;
  for (const ArchitectureName& known : DecoderNamesOfAll()) names.emplace_back(known.name);
  return names;
}

Result<ModelShapes> ParseModelShapes(std::string_view text, const std::string& origin) {
  const json config = ParseJson(text);
  if (!config.is_object()) {
    return Status(StatusCode::kDataLoss,
                  fmt::format("{} is not a JSON object; it must be a model's config.json{}", origin,
                              ReplacedBy(text)));
  }
  const auto decoder = ReadDecoder(config, origin, false);
  if (!decoder) return decoder.status();
  ModelShapes shapes;
  shapes.format = FormatOf(config);
  shapes.architecture = decoder->architecture;
  shapes.model_type = decoder->model_type;
  auto products = ProductsOf(*decoder, origin);
  if (!products) return products.status();
  shapes.products = *std::move(products);
  return shapes;
}

Result<ModelShapes> ReadModelShapes(const std::string& path) {
  const auto file = ReadConfigFile(path);
  if (!file.ok()) return file.status();
  return ParseModelShapes(file->text, file->path);
}

}  // namespace culet
