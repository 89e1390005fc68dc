// DecoderModel: config and weights, with the files and buffers that hold them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/scales.h"
#include "culet/decoder.h"
#include "culet/safetensors.h"
#include "model/checkpoint.h"
#include "model/gguf_checkpoint.h"
#include "model/gguf_config.h"
#include "model/gguf_file.h"
#include "model/random_weights.h"
#include "model/weight_source.h"

namespace culet {

struct DecoderModel::Impl {
  explicit Impl(DeviceMemory& device) : memory(device) {}
  DecoderConfig config;
  DecoderWeights weights;
  std::vector<SafetensorsFile> files;
  std::unique_ptr<GgufFile> gguf;
  WeightMemory memory;
  std::size_t read_bytes = 0;

  /// Until SetProgress: `options` must live as long.
  void Watch(const LoadOptions& options, std::size_t all) {
    memory.SetProgress(
        [&options, all](std::size_t done) {
          if (options.on_progress) options.on_progress(std::min(done, all), all);
        },
        options.stop);
  }

  Status ReadSafetensors(const std::string& folder, const LoadOptions& options);
  Status ReadGguf(const std::string& path, const LoadOptions& options);
  /// Binds all weights of a checkpoint of either kind.
  template <class Source>
  Status Bind(Source& source, const std::string& path, const LoadOptions& options);
};

namespace {

// With a share of the weights of experts.
double BytesOf(const LayerWeights& layer, double share) {
  double bytes = 0;
  for (const Weight* weight : {&layer.attention_norm,
                               &layer.q,
                               &layer.k,
                               &layer.v,
                               &layer.o,
                               &layer.q_bias,
                               &layer.k_bias,
                               &layer.v_bias,
                               &layer.o_bias,
                               &layer.q_norm,
                               &layer.k_norm,
                               &layer.sinks,
                               &layer.latent.q_a,
                               &layer.latent.q_a_bias,
                               &layer.latent.q_a_norm,
                               &layer.latent.kv_a,
                               &layer.latent.kv_a_bias,
                               &layer.latent.kv_a_norm,
                               &layer.latent.keys,
                               &layer.latent.values,
                               &layer.linear.in,
                               &layer.linear.gates,
                               &layer.linear.conv,
                               &layer.linear.decay,
                               &layer.linear.step,
                               &layer.linear.norm,
                               &layer.mlp_norm,
                               &layer.attention_post_norm,
                               &layer.mlp_post_norm,
                               &layer.gate,
                               &layer.up,
                               &layer.down,
                               &layer.gate_bias,
                               &layer.up_bias,
                               &layer.down_bias,
                               &layer.router,
                               &layer.router_bias,
                               &layer.router_correction,
                               &layer.shared_gate,
                               &layer.shared_up,
                               &layer.shared_down,
                               &layer.shared_router}) {
    bytes += BytesOf(*weight);
  }
  if (layer.expert_gate == nullptr) return bytes;
  double experts = 0;
  for (const auto& each : {layer.expert_gate, layer.expert_up, layer.expert_down}) {
    for (const auto* weights : {&each->weights, &each->biases}) {
      for (const Weight& weight : *weights) experts += BytesOf(weight);
    }
  }
  return bytes + share * experts;
}

Status CheckRoom(const std::string& model, std::size_t weights, std::size_t reserve,
                 std::optional<std::size_t> free) {
  if (!free || (weights <= *free && reserve <= *free - weights)) return {};
  const std::string beside =
      reserve > 0 ? fmt::format(" and {} beside them", reserve) : std::string();
  return Status(StatusCode::kResourceExhausted,
                fmt::format("{} needs {} bytes of the device's memory for its weights{}; {} are "
                            "free; take a smaller model or context, or a device with more",
                            model, weights, beside, *free));
}

}  // namespace

template <class Source>
Status DecoderModel::Impl::Bind(Source& source, const std::string& path,
                                const LoadOptions& options) {
  DeviceMemory& device = memory.memory();
  if (!device.reads_host_memory()) {
    // Parts of a model differ little in size.
    const std::size_t all = source.bytes() / static_cast<std::size_t>(config.shard.ranks);
    CULET_RETURN_IF_ERROR(CheckRoom(path, all, options.reserve, device.free_bytes()));
    Watch(options, all);
  }
  auto bound = BindDecoder(config, source);
  memory.SetProgress(nullptr, nullptr);
  if (bound) {
    if (const Status all = source.AllRead(); !all.ok()) bound = all;
  }
  if (!bound) {
    return Status(bound.status().code(), fmt::format("{}: {}", path, bound.status().message()));
  }
  weights = *std::move(bound);
  read_bytes = source.read_bytes();
  return {};
}

Status DecoderModel::Impl::ReadSafetensors(const std::string& folder, const LoadOptions& options) {
  auto checkpoint = Checkpoint::Open(folder, config, memory);
  if (!checkpoint) return checkpoint.status();
  if (config.tied_head && checkpoint->HasOwnHead()) {
    config.tied_head = false;
    config.warnings.emplace_back(
        "tie_word_embeddings is true, but lm_head.weight is not the embedding; lm_head.weight is "
        "used (set tie_word_embeddings to false)");
  }
  CULET_RETURN_IF_ERROR(Bind(*checkpoint, folder, options));
  files = (*std::move(checkpoint)).TakeFiles();
  return {};
}

Status DecoderModel::Impl::ReadGguf(const std::string& path, const LoadOptions& options) {
  const auto found = GgufPathOf(path);
  if (!found) return found.status();
  auto opened = GgufFile::Open(*found);
  if (!opened) return opened.status();
  gguf = std::make_unique<GgufFile>(*std::move(opened));
  const auto architecture = GgufArchitectureOf(*gguf);
  if (!architecture) return architecture.status();
  GgufCheckpoint checkpoint(*gguf, **architecture, config, memory);
  return Bind(checkpoint, *found, options);
}

DecoderModel::DecoderModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DecoderModel::~DecoderModel() = default;
DecoderModel::DecoderModel(DecoderModel&&) noexcept = default;
DecoderModel& DecoderModel::operator=(DecoderModel&&) noexcept = default;

Result<DecoderModel> DecoderModel::Load(const std::string& folder, DeviceMemory& memory,
                                        const LoadOptions& options) {
  auto config = ReadDecoderConfig(folder);
  if (!config) return config.status();
  auto part = ShardOf(*config, options.rank, options.ranks, options.experts);
  if (!part) return Status(part.status().code(), folder + ": " + part.status().message());
  auto impl = std::make_unique<Impl>(memory);
  impl->config = *std::move(part);
  if (impl->config.coding.form == WeightCoding::Form::kGguf) {
    CULET_RETURN_IF_ERROR(impl->ReadGguf(folder, options));
  } else {
    CULET_RETURN_IF_ERROR(impl->ReadSafetensors(folder, options));
  }
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // launches may be on any stream
  return DecoderModel(std::move(impl));
}

Result<DecoderModel> DecoderModel::Random(const DecoderConfig& config, DataType weights,
                                          DeviceMemory& memory, std::uint64_t seed,
                                          const LoadOptions& options) {
  if (weights != DataType::kFloat32 && weights != DataType::kFloat16 &&
      weights != DataType::kBfloat16 && weights != DataType::kFloat8_e4m3 && !IsCode(weights)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("weights is {}; use float32, float16, bfloat16, float8_e4m3, uint4, "
                              "float4_e2m1 or int8",
                              ToString(weights)));
  }
  auto part = ShardOf(config, options.rank, options.ranks, options.experts);
  if (!part) return part.status();
  auto impl = std::make_unique<Impl>(memory);
  impl->config = *std::move(part);
  const auto all = RandomWeights::BytesFor(impl->config, weights);
  if (!all) return all.status();
  CULET_RETURN_IF_ERROR(CheckRoom(fmt::format("a {} of random weights", config.architecture), *all,
                                  options.reserve, memory.free_bytes()));
  RandomWeights source(weights, seed, impl->memory);
  impl->Watch(options, *all);
  auto bound = BindDecoder(impl->config, source);
  impl->memory.SetProgress(nullptr, nullptr);
  if (!bound) return bound.status();
  impl->weights = *std::move(bound);
  CULET_RETURN_IF_ERROR(memory.Synchronize(nullptr));  // as in Load
  return DecoderModel(std::move(impl));
}

const DecoderConfig& DecoderModel::config() const noexcept { return impl_->config; }
const DecoderWeights& DecoderModel::weights() const noexcept { return impl_->weights; }

double DecoderModel::weight_bytes() const noexcept {
  const DecoderWeights& w = impl_->weights;
  double bytes = BytesOf(w.embedding) + BytesOf(w.final_norm);
  if (!impl_->config.tied_head) bytes += BytesOf(w.head);
  for (const LayerWeights& layer : w.layers) bytes += BytesOf(layer, 1);
  return bytes;
}

double DecoderModel::read_bytes() const noexcept { return static_cast<double>(impl_->read_bytes); }

double DecoderModel::bytes_a_token() const noexcept {
  const DecoderWeights& w = impl_->weights;
  const double row = BytesOf(w.embedding) / static_cast<double>(w.embedding.rows);
  double bytes = row + BytesOf(w.final_norm) + BytesOf(w.head);
  const DecoderConfig& config = impl_->config;
  const double share = config.experts > 0 ? double{1} * config.routing.active / config.experts : 0;
  for (const LayerWeights& layer : w.layers) bytes += BytesOf(layer, share);
  return bytes;
}

}  // namespace culet
