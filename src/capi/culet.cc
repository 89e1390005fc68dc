// The C interface: each function checks its pointers, calls the engine, and lets nothing escape.
#include "culet/culet.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/accelerator.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/versioned.h"
#include "culet/cache_layers.h"
#include "culet/gemm.h"

using culet::CacheFile;
using culet::Gemm;
using culet::GemmArgs;
using culet::GemmPlan;
using culet::Status;
using culet::StatusCode;
using culet::capi::Guarded;
using culet::capi::Null;
using culet::capi::Read;
using culet::capi::Write;

struct culet_plan {
  GemmPlan plan;
};

struct culet_workspace {
  culet::Workspace parts;
};

namespace culet::capi {
namespace {

// This thread's last error. Not a thread-local std::string: an object with a destructor needs
// memory to begin, and the C library ends a process that has none.
thread_local std::string* last_error = nullptr;
thread_local bool no_memory = false;  // not even for the sentence

void FreeLastError(void*) { delete std::exchange(last_error, nullptr); }

// Frees each thread's at its end; where no key is left, they stay.
class EndOfThreads {
 public:
  EndOfThreads() noexcept : made_(pthread_key_create(&key_, FreeLastError) == 0) {}
  ~EndOfThreads() {
    if (made_) pthread_key_delete(key_);
  }
  EndOfThreads(const EndOfThreads&) = delete;
  EndOfThreads& operator=(const EndOfThreads&) = delete;

  /// Once a thread; `some` is not null.
  void Watch(const void* some) noexcept {
    if (made_) (void)pthread_setspecific(key_, some);
  }

 private:
  pthread_key_t key_ = 0;
  bool made_;
};

EndOfThreads end_of_threads;

void Keep(const char* message) {
  if (last_error == nullptr) {
    last_error = new std::string;
    end_of_threads.Watch(last_error);
  }
  *last_error = message;
}

}  // namespace

culet_status Report(const Status& status) noexcept {
  return Report(status.code(), status.message().c_str());
}

culet_status Report(StatusCode code, const char* message) noexcept {
  try {
    Keep(message);
    no_memory = false;
  } catch (...) {
    no_memory = true;
  }
  return static_cast<culet_status>(code);
}

Status Null(const char* name) {
  return Status(StatusCode::kInvalidArgument, fmt::format("{} is null; give a valid one", name));
}

namespace {

Status Launch(const culet_launch_args& args) {
  if (args.plan == nullptr) return Null("plan");
  Workspace none;
  return args.plan->plan.Launch({args.A, args.U, args.C, args.D, args.alpha, args.beta},
                                args.workspace != nullptr ? args.workspace->parts : none,
                                static_cast<cudaStream_t>(args.stream));
}

culet_device ToDevice(const DeviceInfo& info) {
  culet_device device{};
  CopyText(info.name, device.name);
  CopyText(info.device_class, device.device_class);
  device.arch = info.arch;
  device.ordinal = info.ordinal;
  device.units = info.units;
  device.cache_bytes = info.cache_bytes;
  device.memory_bytes = info.memory_bytes;
  return device;
}

Status ReadSize(const culet_workspace_size* given, WorkspaceSize& size) {
  culet_workspace_size read;
  CULET_RETURN_IF_ERROR(Read("size", given, read));
  size = {read.barriers, read.partials, read.tensormaps};
  return {};
}

// Gemm::Tune that ends when `stop` says so, and then remembers what it found until there.
Result<TuneReport> TuneUntil(const std::int32_t* stop, Gemm& gemm, const GemmDesc& desc,
                             TuneOptions options) {
  if (stop == nullptr) return gemm.Tune(desc, options);
  bool stopped = false;
  options.stop = [&] {
    // Another thread or a signal handler writes it.
    stopped = __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0;
    return stopped;
  };
  auto report = gemm.Tune(desc, options);
  if (report.ok() && !report->complete) gemm.cache().Insert(desc, report->winner);
  if (!report.ok() && stopped) {
    return Status(StatusCode::kResourceExhausted,
                  "the tuning was stopped before any sample; nothing is remembered");
  }
  return report;
}

culet_cache_report ToReport(const ImportReport& report) {
  culet_cache_report out{};
  out.used = report.used;
  out.outdated = report.outdated;
  out.other_device = report.other_device;
  out.unknown_kernel = report.unknown_kernel;
  out.unavailable = report.unavailable;
  out.other_provider = report.other_provider;
  out.infeasible = report.infeasible;
  out.other_version = report.other_version;
  out.damaged = report.damaged;
  return out;
}

// An engine works without its cache file; the note says what it works without.
void LoadCache(culet_engine& engine, const char* path) {
  const auto resolved = CacheFile::DefaultPath(path != nullptr ? path : "");
  if (!resolved.ok()) {
    engine.note = resolved.status().message();
    return;
  }
  if (resolved->empty()) return;
  for (const LoadedLayer& layer : LoadLowerLayers(engine.gemm.cache())) {
    if (!layer.status.ok()) engine.note = layer.status.message();
  }
  engine.file.emplace(*resolved);
  const auto report = engine.file->Load(engine.gemm.cache());
  if (!report.ok()) {
    engine.note = report.status().message();
  } else if (report->unknown_kernel + report->other_provider + report->infeasible +
                 report->other_version + report->damaged !=
             0) {
    engine.note = fmt::format("{}: {}", *resolved, report->ToString());
  }
}

// The file that a caller named, or the engine's own, if it has one.
Status FileOf(const culet_engine* engine, const char* path, std::optional<CacheFile>& file) {
  if (engine == nullptr) return Null("engine");
  if (path != nullptr && *path == '\0') {
    return Status(StatusCode::kInvalidArgument,
                  "path is empty; name a file, or give null for the one that the engine reads");
  }
  file = path != nullptr ? CacheFile(path) : engine->file;
  return {};
}

}  // namespace
}  // namespace culet::capi

const char* culet_status_name(culet_status status) {
  return culet::ToString(static_cast<StatusCode>(status));
}

const char* culet_last_error(void) {
  using culet::capi::last_error;
  if (culet::capi::no_memory) return culet::capi::kNoMemory;
  return last_error != nullptr ? last_error->c_str() : "";
}

const char* culet_version(void) { return CULET_VERSION; }

culet_status culet_set_threads(int32_t threads) {
  return Guarded([&] { return culet::SetHostThreads(threads); });
}

culet_status culet_threads(int32_t* threads) {
  return Guarded([&]() -> Status {
    if (threads == nullptr) return Null("threads");
    *threads = culet::HostThreads();
    return {};
  });
}

culet_status culet_device_count(int32_t* count) {
  return Guarded([&]() -> Status {
    if (count == nullptr) return Null("count");
    *count = static_cast<int32_t>(culet::Devices().size());
    return {};
  });
}

culet_status culet_device_get(int32_t index, culet_device* device) {
  return Guarded([&]() -> Status {
    const auto devices = culet::Devices();
    if (index < 0 || index >= static_cast<int32_t>(devices.size())) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("index is {}; there are {} devices, counted from 0", index, devices.size()));
    }
    return Write("device", culet::capi::ToDevice(devices[index]), device);
  });
}

culet_status culet_engine_create(const culet_engine_options* options, culet_engine** engine) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    culet_engine_options read{};
    if (options != nullptr) CULET_RETURN_IF_ERROR(Read("options", options, read));
    culet::GemmOptions gemm_options;
    if (read.device != nullptr) gemm_options.device = read.device;
    if (read.providers != nullptr) gemm_options.providers = read.providers;
    if (read.record != nullptr) gemm_options.record = read.record;
    auto gemm = Gemm::Create(gemm_options);
    if (!gemm.ok()) return gemm.status();
    auto made = std::make_unique<culet_engine>(*std::move(gemm));
    culet::capi::LoadCache(*made, read.cache_path);
    *engine = made.release();
    return {};
  });
}

void culet_engine_destroy(culet_engine* engine) { delete engine; }

culet_status culet_engine_device(const culet_engine* engine, culet_device* device) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    return Write("device", culet::capi::ToDevice(engine->gemm.device()), device);
  });
}

const char* culet_engine_cache_note(const culet_engine* engine) {
  return engine != nullptr ? engine->note.c_str() : "";
}

culet_status culet_engine_load(culet_engine* engine, const char* path, culet_cache_report* report) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (path == nullptr) return Null("path");
    const CacheFile file(path);
    CULET_RETURN_IF_ERROR(file.List().status());  // a missing file is not an empty one here
    const auto read = file.Load(engine->gemm.cache());
    if (!read.ok()) return read.status();
    return report != nullptr ? Write("report", culet::capi::ToReport(*read), report) : Status();
  });
}

culet_status culet_engine_save(const culet_engine* engine, const char* path) {
  return Guarded([&]() -> Status {
    std::optional<CacheFile> file;
    CULET_RETURN_IF_ERROR(culet::capi::FileOf(engine, path, file));
    return file ? file->Save(engine->gemm.cache()).status() : Status();
  });
}

culet_status culet_engine_check_save(const culet_engine* engine, const char* path) {
  return Guarded([&]() -> Status {
    std::optional<CacheFile> file;
    CULET_RETURN_IF_ERROR(culet::capi::FileOf(engine, path, file));
    return file ? file->CheckSave({}) : Status();
  });
}

culet_status culet_tune(culet_engine* engine, const culet_problem* problem,
                        const culet_tune_options* options, culet_choice* choice) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    GemmArgs args;
    CULET_RETURN_IF_ERROR(culet::capi::ReadProblem(problem, args));
    culet_tune_options read{};
    if (options != nullptr) CULET_RETURN_IF_ERROR(Read("options", options, read));
    culet::TuneOptions tune;
    tune.force = read.force != 0;
    tune.tuner.budget_s = read.budget_s;
    if (read.rounds != 0) tune.tuner.rounds = read.rounds;
    tune.stream = static_cast<cudaStream_t>(read.stream);
    if (read.max_candidates != 0) tune.tuner.max_candidates = read.max_candidates;
    const auto desc = culet::Describe(args, engine->gemm.device().arch);
    if (!desc.ok()) return desc.status();
    const auto report = culet::capi::TuneUntil(read.stop, engine->gemm, *desc, std::move(tune));
    if (!report.ok()) return report.status();
    if (choice == nullptr) return {};
    culet_choice found = culet::capi::ToChoice(report->winner);
    found.measurements = report->measurements;
    return Write("choice", found, choice);
  });
}

culet_status culet_plan_create(culet_engine* engine, const culet_problem* problem,
                               culet_plan** plan) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (plan == nullptr) return Null("plan");
    GemmArgs args;
    CULET_RETURN_IF_ERROR(culet::capi::ReadProblem(problem, args));
    // A launch of this interface names no scales of D.
    if (args.operation.epilogue == culet::Epilogue::kGatedSiluQuant &&
        args.operation.quant_d.scales == nullptr) {
      return Null("problem.W");
    }
    auto made = engine->gemm.Plan(args);
    if (!made.ok()) return made.status();
    *plan = new culet_plan{*std::move(made)};
    return {};
  });
}

void culet_plan_destroy(culet_plan* plan) { delete plan; }

culet_status culet_plan_choice(const culet_plan* plan, culet_choice* choice) {
  return Guarded([&]() -> Status {
    if (plan == nullptr) return Null("plan");
    return Write("choice", culet::capi::ToChoice(plan->plan.spec()), choice);
  });
}

culet_status culet_plan_workspace(const culet_plan* plan, culet_workspace_size* size) {
  return Guarded([&]() -> Status {
    if (plan == nullptr) return Null("plan");
    const culet::WorkspaceSize& need = plan->plan.workspace_size();
    culet_workspace_size out{};
    out.barriers = need.barriers;
    out.partials = need.partials;
    out.tensormaps = need.tensormaps;
    return Write("size", out, size);
  });
}

culet_status culet_workspace_bytes(const culet_workspace_size* size, uint64_t* bytes) {
  return Guarded([&]() -> Status {
    if (bytes == nullptr) return Null("bytes");
    culet::WorkspaceSize read;
    CULET_RETURN_IF_ERROR(culet::capi::ReadSize(size, read));
    *bytes = read.total();
    return {};
  });
}

culet_status culet_workspace_create(culet_engine* engine, const culet_workspace_size* size,
                                    void* buffer, uint64_t bytes, void* stream,
                                    culet_workspace** workspace) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (workspace == nullptr) return Null("workspace");
    culet::WorkspaceSize read;
    CULET_RETURN_IF_ERROR(culet::capi::ReadSize(size, read));
    auto parts = culet::InitWorkspace(read, buffer, bytes, static_cast<cudaStream_t>(stream));
    if (!parts.ok()) return parts.status();
    *workspace = new culet_workspace{*parts};
    return {};
  });
}

void culet_workspace_destroy(culet_workspace* workspace) { delete workspace; }

culet_status culet_launch(const culet_plan* plan, const void* A, const void* U, const void* C,
                          void* D, float alpha, float beta, culet_workspace* workspace,
                          void* stream) {
  return Guarded([&] {
    return culet::capi::Launch(
        {sizeof(culet_launch_args), plan, A, U, C, D, alpha, beta, workspace, stream});
  });
}

culet_status culet_launch_with(const culet_launch_args* args) {
  return Guarded([&]() -> Status {
    culet_launch_args read;
    CULET_RETURN_IF_ERROR(Read("args", args, read));
    return culet::capi::Launch(read);
  });
}

culet_status culet_capture_id(const culet_engine* engine, void* stream, uint64_t* id) {
  return Guarded([&]() -> Status {
    if (engine == nullptr) return Null("engine");
    if (id == nullptr) return Null("id");
    *id = 0;
    if (engine->gemm.device().arch != 0) {
      *id = culet::CaptureId(static_cast<cudaStream_t>(stream));
    }
    return {};
  });
}
