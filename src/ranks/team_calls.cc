#include "ranks/team_calls.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "culet/cache_layers.h"
#include "culet/device.h"
#include "culet/dispatch.h"
#include "culet/dispatch_cache.h"
#include "model/text_file.h"

namespace culet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::uint64_t HashOf(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

const char* NameOf(ExpertsBy experts) {
  return experts == ExpertsBy::kWidth ? "width" : experts == ExpertsBy::kExpert ? "expert" : "rule";
}

// Both ends are one version of this library, which Meet has compared.
template <class T, class F>
Result<T> FromJson(const std::string& text, F read) {
  const json root = ParseJson(text);
  if (!root.is_object()) return Status(StatusCode::kInternal, "rank 0 sent no JSON object");
  try {
    T value;
    read(root, value);
    return value;
  } catch (const json::exception& error) {
    return Status(StatusCode::kInternal, fmt::format("rank 0 sent: {}", error.what()));
  }
}

}  // namespace

std::string ToJson(const TeamModel& model) {
  return json{{"path", model.path},
              {"random", static_cast<int>(model.random)},
              {"seed", model.seed},
              {"device", model.device},
              {"providers", model.providers},
              {"cache", model.cache},
              {"exchange", static_cast<int>(model.exchange)},
              {"unlimited", model.unlimited},
              {"experts", static_cast<int>(model.experts)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<TeamModel> ModelOfJson(const std::string& text) {
  return FromJson<TeamModel>(text, [](const json& from, TeamModel& model) {
    from.at("path").get_to(model.path);
    model.random = static_cast<DataType>(from.at("random").get<int>());
    from.at("seed").get_to(model.seed);
    from.at("device").get_to(model.device);
    from.at("providers").get_to(model.providers);
    from.at("cache").get_to(model.cache);
    model.exchange = static_cast<DataType>(from.at("exchange").get<int>());
    from.at("unlimited").get_to(model.unlimited);
    model.experts = static_cast<ExpertsBy>(from.at("experts").get<int>());
  });
}

std::string ToJson(const TeamSession& session) {
  const SessionOptions& o = session.options;
  return json{{"max_sequences", o.max_sequences},
              {"max_context", o.max_context},
              {"block_size", o.block_size},
              {"cache_blocks", o.cache_blocks},
              {"max_step_tokens", o.max_step_tokens},
              {"cache_type", static_cast<int>(o.cache_type)},
              {"fusions_none", o.fusions.none},
              {"fusions_off", o.fusions.off},
              {"padding", static_cast<int>(o.padding)},
              {"value_type", static_cast<int>(o.value_type)},
              {"record", o.record},
              {"reference", session.reference},
              {"policy", static_cast<int>(session.policy)},
              {"determinism", static_cast<int>(session.determinism)},
              {"exact", session.exact}}
      .dump();
}

Result<TeamSession> SessionOfJson(const std::string& text) {
  return FromJson<TeamSession>(text, [](const json& from, TeamSession& session) {
    SessionOptions& o = session.options;
    from.at("max_sequences").get_to(o.max_sequences);
    from.at("max_context").get_to(o.max_context);
    from.at("block_size").get_to(o.block_size);
    from.at("cache_blocks").get_to(o.cache_blocks);
    from.at("max_step_tokens").get_to(o.max_step_tokens);
    o.cache_type = static_cast<DataType>(from.at("cache_type").get<int>());
    from.at("fusions_none").get_to(o.fusions.none);
    from.at("fusions_off").get_to(o.fusions.off);
    o.padding = static_cast<StepPadding>(from.at("padding").get<int>());
    o.value_type = static_cast<DataType>(from.at("value_type").get<int>());
    from.at("record").get_to(o.record);
    from.at("reference").get_to(session.reference);
    session.policy = static_cast<DispatchPolicy>(from.at("policy").get<int>());
    session.determinism = static_cast<Determinism>(from.at("determinism").get<int>());
    from.at("exact").get_to(session.exact);
  });
}

Result<std::string> PlanOf(const TeamModel& model) {
  std::error_code error;
  const fs::path path = model.path;
  const fs::path config = fs::is_directory(path, error) ? path / "config.json" : path;
  std::string plan =
      fmt::format("culet {}\ndevice {}\nrandom weights {} {}\nexchange {}\nexperts by {}\n",
                  CULET_VERSION, model.device, static_cast<int>(model.random), model.seed,
                  ToString(model.exchange), NameOf(model.experts));
  constexpr std::size_t kMostBytes = std::size_t{100} << 20;
  const auto text = ReadTextFile(config.string(), kMostBytes);
  if (!text) return text.status();
  plan += fmt::format("config.json {:016x}\n", HashOf(*text));
  if (model.random != DataType::kNull) return plan;
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    files.push_back(fmt::format("{} {} bytes\n", entry.path().filename().string(),
                                fs::file_size(entry.path(), error)));
  }
  std::ranges::sort(files);
  for (const std::string& file : files) {
    if (file.starts_with("model")) plan += file;
  }
  return plan;
}

std::string DeviceOf(const TeamModel& model, const Communicator& ranks) {
  return model.device == "cuda" ? fmt::format("cuda:{}", ranks.options().local_rank) : model.device;
}

Result<Gemm> GemmOf(const TeamModel& model, const Communicator& ranks) {
  GemmOptions options;
  options.device = DeviceOf(model, ranks);
  options.providers = model.providers;
  auto gemm = Gemm::Create(options);
  if (!gemm || model.cache.empty()) return gemm;
  // Rank 0 has said what is wrong with files.
  static_cast<void>(LoadLowerLayers(gemm->cache()));
  static_cast<void>(CacheFile(model.cache).Load(gemm->cache()));
  return gemm;
}

Result<std::shared_ptr<RankExchange>> ExchangeOf(const TeamModel& model, Communicator& ranks,
                                                 DeviceMemory& memory, bool tuning) {
  ExchangeOptions options;
  options.wire = model.exchange;
  options.tuning = tuning;
  if (const auto device = FindDevice(DeviceOf(model, ranks)); device.ok() && ranks.rank() == 0) {
    options.cache = model.cache;
    options.device_class = device->device_class;
  }
  return MakeExchange(ranks, memory, options);
}

Result<ExchangeTuning> TuneSums(const TeamModel& model, Communicator& ranks) {
  auto gemm = GemmOf(model, ranks);
  CULET_RETURN_IF_ERROR(ranks.Agree(gemm.status(), "opened"));
  auto dispatch = DispatchOf(*gemm, {});
  CULET_RETURN_IF_ERROR(ranks.Agree(dispatch.status(), "has kernels"));
  auto exchange = ExchangeOf(model, ranks, (*dispatch)->memory(), true);
  if (!exchange) return exchange.status();
  return TuneExchange(ranks, **dispatch, **exchange);
}

Result<std::unique_ptr<KernelDispatch>> DispatchOf(Gemm& gemm, const TeamSession& session) {
  if (session.reference) return MakeReferenceDispatch();
  if (gemm.device().ordinal >= 0) {
    return MakeCudaDispatch(gemm, {.policy = session.policy,
                                   .determinism = session.determinism,
                                   .round_product_inputs = !session.exact});
  }
  return MakeCpuDispatch(gemm, {.policy = session.policy, .determinism = session.determinism});
}

}  // namespace culet
