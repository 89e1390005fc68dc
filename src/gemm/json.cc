#include "culet/json.h"

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "culet/packing.h"
#include "gemm/desc_fields.h"

namespace culet {
namespace {

using Json = nlohmann::ordered_json;

// Names of devices and ids of users' kernels may be anything; what is no UTF-8 must not throw.
std::string Text(const Json& document) {
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json TypeOrNull(DataType type) {
  return type == DataType::kNull ? Json(nullptr) : Json(ToString(type));
}

const char* NameOf(Bias::Axis axis) noexcept { return axis == Bias::Axis::kM ? "m" : "n"; }
template <class Enum>
const char* NameOf(Enum value) noexcept {
  return ToString(value);
}

Json Document(const LaunchSpec& spec) {
  return {{"kernel", spec.kernel != nullptr ? Json(spec.kernel->id()) : Json(nullptr)},
          {"swizzle", spec.swizzle},
          {"splits", spec.splits},
          {"serial", spec.serial},
          {"variant", spec.variant},
          {"time_us", Number(spec.time_us)},
          {"spread_us", Number(spec.spread_us)},
          {"noisy", IsNoisy(spec)},
          {"baseline_us", Number(spec.baseline_us)},
          {"origin", ToString(spec.origin)},
          {"when", spec.when}};
}

Json Document(const GemmDesc& problem) {
  Json document = {{"text", ToString(problem)}};
  VisitFields(problem, [&](const char* name, const auto& field, const auto&...) {
    using Field = std::remove_cvref_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      document[name] = NameOf(field);
    } else {
      document[name] = field;
    }
  });
  return document;
}

Json PacksOf(const Kernel& kernel) {
  Json packs = Json::array();
  for (const int number : kernel.packs()) {
    const PackFormat* const format = FindPackFormat(number);
    packs.push_back({{"number", number}, {"name", format != nullptr ? format->name() : ""}});
  }
  return packs;
}

}  // namespace

std::string JsonOf(const DeviceInfo& device) {
  return Text({{"device", device.ordinal < 0 ? "cpu" : fmt::format("cuda:{}", device.ordinal)},
               {"name", device.name},
               {"class", device.device_class},
               {"arch", device.arch},
               {"units", device.units},
               {"cache_bytes", device.cache_bytes},
               {"memory_bytes", device.memory_bytes}});
}

std::string JsonOf(const HardwareRates& rates) {
  return Text({{"read_gbps", Number(rates.read_gbps)},
               {"gflops", Number(rates.gflops)},
               {"launch_us", Number(rates.launch_us)},
               {"measured", rates.measured}});
}

std::string JsonOf(const Kernel& kernel) {
  const KernelDesc& desc = kernel.desc();
  const KernelInfo& info = kernel.info();
  return Text({{"id", kernel.id()},
               {"backend", ToString(desc.backend)},
               {"provider", desc.provider},
               {"provider_version", kernel.available().ok() ? kernel.provider_version() : ""},
               {"unavailable", kernel.available().message()},
               {"arch", desc.arch},
               {"type_a", TypeOrNull(desc.type_a)},
               {"type_b", TypeOrNull(desc.type_b)},
               {"type_d", TypeOrNull(desc.type_d)},
               {"packs", PacksOf(kernel)},
               {"tile", {desc.tile_m, desc.tile_n, desc.tile_k}},
               {"cluster", {desc.cluster_m, desc.cluster_n}},
               {"stages", desc.stages},
               {"split_k", desc.split_k},
               {"determinism", ToString(desc.determinism)},
               {"transpose", desc.transpose},
               {"info",
                {{"registers", info.registers},
                 {"dynamic_smem_size", info.dynamic_smem_size},
                 {"max_active_ctas", info.max_active_ctas},
                 {"chunk_size_k", info.chunk_size_k},
                 {"bandwidth_share", Number(info.bandwidth_share)},
                 {"matrix_share", Number(info.matrix_share)},
                 {"tile_overhead_us", Number(info.tile_overhead_us)},
                 {"launch_us", Number(info.launch_us)}}}});
}

std::string JsonOf(const GemmDesc& problem) { return Text(Document(problem)); }

std::string JsonOf(const LaunchSpec& choice) { return Text(Document(choice)); }

std::string JsonOf(const Explanation& explanation) {
  Json rejected = Json::array();
  for (const Explanation::Rejected& r : explanation.rejected) {
    rejected.push_back({{"kernel", r.kernel_id}, {"feasible", r.feasible}, {"reason", r.reason}});
  }
  return Text(
      {{"problem", Document(explanation.desc)},
       {"choice", Document(explanation.choice)},
       {"source", ToString(explanation.source)},
       {"layer", explanation.source == ChoiceSource::kCacheExact ? Json(ToString(explanation.layer))
                                                                 : Json(nullptr)},
       {"predicted_us", Number(explanation.predicted_us)},
       {"roofline_us", Number(explanation.roofline_us)},
       {"roofline_share", Number(explanation.roofline_share)},
       {"rejected", std::move(rejected)}});
}

std::string JsonOf(const ModelShapes& shapes) {
  Json products = Json::array();
  for (const ModelProduct& product : shapes.products) {
    products.push_back({{"name", product.name},
                        {"n", product.n},
                        {"k", product.k},
                        {"layers", product.layers},
                        {"experts", product.experts},
                        {"active_experts", product.active_experts}});
  }
  return Text({{"architecture", shapes.architecture},
               {"model_type", shapes.model_type},
               {"format", shapes.format ? Json(ToString(*shapes.format)) : Json(nullptr)},
               {"products", std::move(products)}});
}

}  // namespace culet
