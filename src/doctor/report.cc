// A Diagnosis as text for people and as JSON for programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "culet/doctor.h"

namespace culet {
namespace {

using Json = nlohmann::ordered_json;

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json Known(double value) { return value > 0 ? Json(value) : Json(nullptr); }
Json Known(int value) { return value >= 0 ? Json(value) : Json(nullptr); }

Json Document(const GpuState& gpu) {
  return {{"name", gpu.name},
          {"pci_bus_id", gpu.pci_bus_id},
          {"arch", gpu.arch},
          {"clock_mhz", Known(gpu.clock_mhz)},
          {"max_clock_mhz", Known(gpu.max_clock_mhz)},
          {"held_clock_mhz", Known(gpu.held_clock_mhz)},
          {"memory_clock_mhz", Known(gpu.memory_clock_mhz)},
          {"power_watts", Known(gpu.power_watts)},
          {"power_limit_watts", Known(gpu.power_limit_watts)},
          {"default_limit_watts", Known(gpu.default_limit_watts)},
          {"temperature", gpu.temperature > 0 ? Json(gpu.temperature) : Json(nullptr)},
          {"throttled", gpu.throttled},
          {"persistence", Known(gpu.persistence)},
          {"mig", Known(gpu.mig)},
          {"busy_percent", Known(gpu.busy_percent)},
          {"processes", Known(gpu.processes)},
          {"memory_bytes", gpu.memory_bytes},
          {"used_bytes", gpu.used_bytes}};
}

Json Document(const DeviceState& device) {
  return {{"device", device.selector},
          {"name", device.info.name},
          {"class", device.info.device_class},
          {"arch", device.info.arch},
          {"units", device.info.units},
          {"cache_bytes", device.info.cache_bytes},
          {"memory_bytes", device.info.memory_bytes},
          {"clock_mhz", Known(device.info.clock_mhz)},
          {"memory_gbps", Known(device.info.memory_gbps)},
          {"power_watts", Known(device.info.power_watts)},
          {"kernel", TextOrNull(device.kernel)},
          {"error", TextOrNull(device.product.message())},
          {"measured_choices", device.measured}};
}

Json Document(const CacheState& cache) {
  return {{"layer", ToString(cache.layer)},
          {"path", TextOrNull(cache.path)},
          {"exists", cache.exists},
          {"writable", cache.writable},
          {"error", TextOrNull(cache.status.message())},
          {"records", cache.records},
          {"damaged", cache.damaged},
          {"other_version", cache.other_version},
          {"device_classes", cache.device_classes}};
}

template <class Parts>
Json List(const Parts& parts) {
  Json list = Json::array();
  for (const auto& part : parts) list.push_back(Document(part));
  return list;
}

// What variables and paths hold must not steer a terminal.
std::string Printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c != '\n' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f); },
      '?');
  return text;
}

double Gib(std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::string Clocks(const GpuState& gpu) {
  std::string text = fmt::format("{:.0f} of {:.0f} MHz", gpu.clock_mhz, gpu.max_clock_mhz);
  if (gpu.power_limit_watts > 0) {
    text += fmt::format(", {:.0f} W of {:.0f} (default {:.0f})", gpu.power_watts,
                        gpu.power_limit_watts, gpu.default_limit_watts);
  }
  if (gpu.temperature > 0) text += fmt::format(", {} C", gpu.temperature);
  return text;
}

std::string Line(const std::string& name, const std::string& text) {
  return fmt::format("  {:<10} {}\n", name, text);
}

std::string CacheLine(const CacheState& cache) {
  if (cache.path.empty()) {
    return cache.status.ok() ? "off" : cache.status.message();
  }
  if (!cache.status.ok()) return cache.status.message();
  if (!cache.exists) return cache.path + " (not there)";
  std::string text =
      fmt::format("{}: {} record{}", cache.path, cache.records, cache.records == 1 ? "" : "s");
  if (cache.damaged > 0) text += fmt::format(", {} damaged", cache.damaged);
  if (cache.other_version > 0) text += fmt::format(", {} of another version", cache.other_version);
  if (!cache.writable) text += ", read-only";
  return text;
}

}  // namespace

std::string Diagnosis::Facts() const {
  std::string text =
      fmt::format("culet {} ({}{}) on {}\n", version, with_cuda ? "with CUDA" : "without CUDA",
                  with_nvtx ? ", NVTX" : "", system);
  text += "\nDriver and GPUs\n";
  if (driver.found) {
    text += Line("driver", fmt::format("{}, for CUDA {}", driver.version, driver.cuda_version));
  } else {
    text += Line("driver", "none: " + driver.note);
  }
  for (std::size_t i = 0; i < driver.gpus.size(); ++i) {
    const GpuState& gpu = driver.gpus[i];
    text += Line(fmt::format("gpu {}", i),
                 fmt::format("{}, {:.0f} GiB; {}", gpu.name, Gib(gpu.memory_bytes), Clocks(gpu)));
  }
  if (!cuda_note.empty()) text += Line("cuda", cuda_note);
  text += "\nDevices\n";
  for (const DeviceState& device : devices) {
    text +=
        Line(device.selector, fmt::format("{} ({})", device.info.name, device.info.device_class));
    text += Line(
        "", fmt::format("{}; {} measured choice{}",
                        !device.product.ok()    ? "a small product FAILS"
                        : device.kernel.empty() ? "not tried"
                                                : "a small product is right, by " + device.kernel,
                        device.measured, device.measured == 1 ? "" : "s"));
  }
  if (sums) text += Line("sums", fmt::format("of {} ranks: {}", gpus(), culet::ToString(*sums)));
  text += Line("simd", fmt::format("{}", fmt::join(simd_levels, ", ")));
  text += "\nLibraries\n";
  for (const LibraryState& library : libraries) {
    text += Line(library.name, library.found ? fmt::format("{} {}", library.version, library.path)
                                             : library.note);
  }
  text += "\nCaches of measured choices, lowest first\n";
  for (const CacheState& cache : caches)
    text += Line(culet::ToString(cache.layer), CacheLine(cache));
  if (!environment.empty()) {
    text += "\nEnvironment\n";
    for (const auto& [name, value] : environment) text += fmt::format("  {}={}\n", name, value);
  }
  return Printable(std::move(text));
}

std::string Diagnosis::ToString() const {
  std::string text = Facts() + '\n';
  for (const Finding& finding : findings) {
    text += fmt::format("{:<7} {}: {}\n", culet::ToString(finding.severity), finding.about,
                        finding.what);
    if (!finding.remedy.empty()) text += fmt::format("        -> {}\n", finding.remedy);
  }
  text += ok() ? "Nothing is broken.\n" : "Something is broken: see above.\n";
  return Printable(std::move(text));
}

std::string JsonOf(const Diagnosis& diagnosis) {
  Json libraries = Json::array(), environment = Json::object(), findings = Json::array();
  for (const LibraryState& library : diagnosis.libraries) {
    libraries.push_back({{"name", library.name},
                         {"found", library.found},
                         {"version", TextOrNull(library.version)},
                         {"path", TextOrNull(library.path)},
                         {"note", TextOrNull(library.note)}});
  }
  for (const auto& [name, value] : diagnosis.environment) environment[name] = value;
  for (const Finding& finding : diagnosis.findings) {
    findings.push_back({{"severity", ToString(finding.severity)},
                        {"about", finding.about},
                        {"what", finding.what},
                        {"remedy", TextOrNull(finding.remedy)}});
  }
  const Json document = {{"kind", "culet doctor"},
                         {"ok", diagnosis.ok()},
                         {"version", diagnosis.version},
                         {"with_cuda", diagnosis.with_cuda},
                         {"with_nvtx", diagnosis.with_nvtx},
                         {"system", diagnosis.system},
                         {"simd_levels", diagnosis.simd_levels},
                         {"driver",
                          {{"found", diagnosis.driver.found},
                           {"version", TextOrNull(diagnosis.driver.version)},
                           {"cuda_version", TextOrNull(diagnosis.driver.cuda_version)},
                           {"note", TextOrNull(diagnosis.driver.note)},
                           {"gpus", List(diagnosis.driver.gpus)}}},
                         {"cuda_note", TextOrNull(diagnosis.cuda_note)},
                         {"devices", List(diagnosis.devices)},
                         {"libraries", std::move(libraries)},
                         {"caches", List(diagnosis.caches)},
                         {"sums", TextOrNull(diagnosis.sums ? ToString(*diagnosis.sums) : "")},
                         {"environment", std::move(environment)},
                         {"findings", std::move(findings)},
                         {"text", diagnosis.Facts()}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace culet
