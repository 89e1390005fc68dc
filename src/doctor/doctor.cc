#include "culet/doctor.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/accelerator.h"
#include "base/trace.h"
#include "culet/gemm.h"
#include "culet/model.h"
#include "culet/scratch.h"
#include "doctor/findings.h"
#include "doctor/libraries.h"
#include "doctor/nvml.h"

extern "C" char** environ;

namespace culet {
namespace {

namespace fs = std::filesystem;

std::string SystemName() {
  utsname system{};
  if (uname(&system) != 0) return "unknown";
  return fmt::format("{} {} {}", system.sysname, system.release, system.machine);
}

// The variables that decide what culet does, sorted.
std::vector<std::pair<std::string, std::string>> Environment() {
  constexpr std::string_view kOthers[] = {"CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING",
                                          "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS"};
  std::vector<std::pair<std::string, std::string>> found;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (name.starts_with("CULET_") || std::ranges::find(kOthers, name) != std::end(kOthers)) {
      found.emplace_back(name, text.substr(equals + 1));
    }
  }
  std::ranges::sort(found);
  return found;
}

// A small product by the default choice, compared with the reference.
Status TryProduct(Gemm& gemm, std::string& kernel) {
  constexpr int kM = 16, kN = 128, kK = 256;
  const Format format = gemm.device().arch == 0 ? Format::kF32 : Format::kBf16;
  const auto desc = MakeDesc(format, kM, kN, kK, gemm.device().arch);
  if (!desc.ok()) return desc.status();
  auto spec = gemm.Choose(*desc);
  if (!spec.ok()) return spec.status();
  kernel = spec->kernel->id();
  auto scratch = ScratchProblem::Create(gemm.device(), *desc);
  if (!scratch.ok()) return scratch.status();
  const auto plan = gemm.Plan(scratch->args(), *spec);
  if (!plan.ok()) return plan.status();
  const auto workspace = scratch->workspace(plan->workspace_size());
  if (!workspace.ok()) return workspace.status();
  CULET_RETURN_IF_ERROR(scratch->PoisonOutput());
  const GemmArgs& args = scratch->args();
  CULET_RETURN_IF_ERROR(plan->Launch(
      {.A = args.A, .U = args.U, .C = args.C, .D = args.D, .alpha = args.alpha, .beta = args.beta},
      **workspace));
  const auto compared = scratch->Compare(0, AccumulatorOf(spec->kernel->desc()));
  if (!compared.ok()) return compared.status();
  return compared->ok() ? Status() : Status(StatusCode::kWrongResult, compared->ToString());
}

DeviceState Examine(const DeviceInfo& info, const std::string& cache_path, bool products) {
  DeviceState state;
  state.info = info;
  state.selector = info.ordinal < 0 ? "cpu" : fmt::format("cuda:{}", info.ordinal);
  auto gemm = Gemm::Create({.device = state.selector, .record = "off"});
  if (!gemm.ok()) {
    state.product = gemm.status();
    return state;
  }
  if (products) state.product = TryProduct(*gemm, state.kernel);
  const auto path = CacheFile::DefaultPath(cache_path);
  if (path.ok() && !path->empty()) {
    LoadLowerLayers(gemm->cache());
    // What is wrong with the file is said where the caches are.
    static_cast<void>(CacheFile(*path).Load(gemm->cache()).ok());
  }
  for (const auto& [desc, spec] : gemm->cache().Entries()) {
    state.measured += spec.origin == Origin::kMeasured;
  }
  return state;
}

// Whether the file, or what would be made of its folder, can be written. Makes nothing.
bool Writable(fs::path path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  if (!error) path = real;
  // Files are replaced, so their folder counts.
  for (path = path.parent_path(); !path.empty(); path = path.parent_path()) {
    if (fs::exists(path, error)) return access(path.c_str(), W_OK | X_OK) == 0;
    if (path == path.parent_path()) break;
  }
  return false;
}

CacheState Look(const LowerLayer& file) {
  CacheState state;
  state.layer = file.layer;
  state.path = file.path;
  state.exists = file.exists;
  state.writable = Writable(file.path);
  if (!file.exists) return state;
  const auto records = CacheFile(file.path).List();
  state.status = records.status();
  if (!records.ok()) return state;
  for (const CacheFile::Record& record : *records) {
    ++state.records;
    if (record.device_class.empty() || !record.damage.empty()) {
      ++(record.damage.starts_with("has no field") || record.damage.starts_with("has fields") ||
                 record.damage.starts_with("has an unknown")
             ? state.other_version
             : state.damaged);
      continue;
    }
    if (std::ranges::find(state.device_classes, record.device_class) ==
        state.device_classes.end()) {
      state.device_classes.push_back(record.device_class);
    }
  }
  return state;
}

std::vector<CacheState> LookAtCaches(const std::vector<DeviceInfo>& devices,
                                     const std::string& cache_path) {
  std::vector<CacheState> states;
  const auto path = CacheFile::DefaultPath(cache_path);
  if (!path.ok() || path->empty()) {
    CacheState off;
    off.status = path.status();
    states.push_back(std::move(off));
    return states;
  }
  const auto add = [&](const LowerLayer& file) {
    if (std::ranges::find(states, file.path, &CacheState::path) == states.end()) {
      states.push_back(Look(file));
    }
  };
  for (const CacheLayer layer : {CacheLayer::kShipped, CacheLayer::kSite}) {
    for (const DeviceInfo& device : devices) {
      for (const LowerLayer& file : LowerLayers(device.device_class)) {
        if (file.layer == layer) add(file);
      }
    }
  }
  std::error_code ignored;
  add({CacheLayer::kUser, *path, fs::exists(*path, ignored)});
  return states;
}

}  // namespace

const char* ToString(Finding::Severity severity) noexcept {
  switch (severity) {
    case Finding::Severity::kNote:
      return "note";
    case Finding::Severity::kSlow:
      return "slow";
    case Finding::Severity::kBroken:
      return "broken";
  }
  return "invalid";
}

bool Diagnosis::ok() const noexcept {
  return std::ranges::none_of(
      findings, [](const Finding& f) { return f.severity == Finding::Severity::kBroken; });
}

int Diagnosis::gpus() const {
  return static_cast<int>(std::ranges::count_if(
      devices, [](const DeviceState& device) { return device.info.ordinal >= 0; }));
}

Diagnosis Diagnose(const DiagnoseOptions& options) {
  Diagnosis diagnosis;
  diagnosis.version = CULET_VERSION;
  diagnosis.with_cuda = HasCudaParts();
  diagnosis.with_nvtx = AcceleratorTraceHooks() != nullptr;
  diagnosis.system = SystemName();
  diagnosis.simd_levels = HostSimdLevels();
  diagnosis.environment = Environment();
  if (options.nvml == "off") {
    diagnosis.driver.note = "not asked";
  } else {
    diagnosis.driver = AskNvml(options.nvml);
  }
  const std::vector<DeviceInfo> devices = Devices(&diagnosis.cuda_note);
  for (const DeviceInfo& device : devices) {
    diagnosis.devices.push_back(Examine(device, options.cache_path, options.products));
  }
  diagnosis.libraries = LookForLibraries(devices);
  diagnosis.caches = LookAtCaches(devices, options.cache_path);
  if (const int gpus = diagnosis.gpus(); gpus > 1) {
    const auto path = CacheFile::DefaultPath(options.cache_path);
    const ExchangeChoice usual = UsualExchange(gpus);
    // The host comes first.
    diagnosis.sums =
        FindExchange(path.ok() ? *path : "", devices.back().device_class, gpus, usual.wire)
            .value_or(usual);
  }
  diagnosis.findings = FindingsOf(diagnosis);
  return diagnosis;
}

}  // namespace culet
