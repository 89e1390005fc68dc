// Gemm: the engine of one device.
#include "culet/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "base/device_scope.h"
#include "base/log.h"
#include "base/trace.h"
#include "gemm/chooser.h"
#include "gemm/cost_model.h"
#include "gemm/explain.h"
#include "gemm/grouped_host.h"
#include "gemm/plan_state.h"
#include "gemm/time_limit.h"
#include "gemm/tune.h"
#include "gemm/usage.h"

namespace culet {
namespace {

constexpr int kDataTypes = static_cast<int>(DataType::kInt8) + 1;

Status MissingPointer(const char* name) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} is null; the product reads or writes it", name));
}

Status CheckFixedPointers(const GemmArgs& args) {
  if (args.B == nullptr) return MissingPointer("B");
  if (args.operation.quant_b.type != QuantType::kNone && args.V == nullptr) {
    return MissingPointer("V");
  }
  return {};
}

Status CheckAllPointers(const GemmArgs& args) {
  CULET_RETURN_IF_ERROR(CheckFixedPointers(args));
  if (args.A == nullptr) return MissingPointer("A");
  if (args.D == nullptr) return MissingPointer("D");
  if (args.operation.quant_a.type != QuantType::kNone && args.U == nullptr) {
    return MissingPointer("U");
  }
  if (args.beta != 0.0f && args.C == nullptr) return MissingPointer("C");
  if (args.operation.epilogue == Epilogue::kGatedSiluQuant &&
      args.operation.quant_d.scales == nullptr) {
    return MissingPointer("W (operation.quant_d.scales)");
  }
  return {};
}

Status CheckWorkspace(const WorkspaceSize& need, const Workspace& given) {
  const auto check = [](const char* part, std::size_t needed, const void* pointer,
                        std::size_t size) -> Status {
    if (needed == 0 || (pointer != nullptr && size >= needed)) return {};
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("workspace.{} holds {} bytes, the choice needs {}; see "
                              "Gemm::RunWorkspaceSize and InitWorkspace",
                              part, pointer != nullptr ? size : 0, needed));
  };
  CULET_RETURN_IF_ERROR(check("barriers", need.barriers, given.barriers, given.barriers_size));
  CULET_RETURN_IF_ERROR(check("partials", need.partials, given.partials, given.partials_size));
  return check("tensormaps", need.tensormaps, given.tensormaps, given.tensormaps_size);
}

Status RefuseCapture(const DeviceInfo& device, cudaStream_t stream, const GemmDesc& desc) {
  if (device.arch != 0 && IsCapturing(stream)) {
    return Status(StatusCode::kFailedPrecondition,
                  fmt::format("the stream records a graph, in which nothing can be measured; tune "
                              "{} before, or plan with DispatchPolicy::kDefault",
                              ToString(desc)));
  }
  return {};
}

}  // namespace

const char* ToString(ChoiceSource source) noexcept {
  switch (source) {
    case ChoiceSource::kCacheExact:
      return "measured";
    case ChoiceSource::kCacheReused:
      return "measured at a smaller batch";
    case ChoiceSource::kNeighbours:
      return "predicted from measured neighbours";
    case ChoiceSource::kCostModel:
      return "predicted";
    case ChoiceSource::kTuned:
      return "measured just now";
  }
  return "invalid";
}

namespace {

// The arguments as `spec` launches them.
GemmArgs AsLaunched(GemmArgs args, const LaunchSpec& spec) {
  args.operation = AsLaunched(args.operation, spec);
  return args;
}

}  // namespace

namespace {

std::string RecordFile(const std::string& option) {
  const char* const set = option.empty() ? std::getenv("CULET_RECORD") : nullptr;
  const std::string file = set != nullptr ? set : option;
  return file == "off" ? std::string() : file;
}

}  // namespace

struct Gemm::Impl {
  Impl(DeviceInfo device_info, Registry builtin, const HardwareRates& measured, std::string record)
      : device(std::move(device_info)),
        registry(std::move(builtin)),
        cache(registry.kernels(), device.device_class),
        chooser(device, rates.data(), registry, cache),
        usage(std::move(record), device.device_class) {
    for (int i = 0; i < kDataTypes; ++i) {
      rates[i] = measured.measured ? measured : TypicalRates(device, static_cast<DataType>(i));
    }
  }

  DeviceInfo device;
  std::array<HardwareRates, kDataTypes> rates;
  Registry registry;
  DispatchCache cache;
  Chooser chooser;
  Usage usage;
  std::function<bool()> stop;  // of what kMeasure tunes
};

Gemm::Gemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

Result<Gemm> Gemm::Create(const GemmOptions& options) {
  TraceAsEnvironmentSays();
  auto device = FindDevice(options.device);
  if (!device) return device.status();
  auto registry = Registry::Builtin(*device, options.providers);
  if (!registry) return registry.status();
  if (device->arch == 0) CULET_RETURN_IF_ERROR(registry->Add(MakeHostGrouped()));
  return Gemm(std::make_unique<Impl>(*std::move(device), *std::move(registry), options.rates,
                                     RecordFile(options.record)));
}

Result<LaunchSpec> Gemm::Choose(const GemmDesc& desc, DispatchPolicy policy, cudaStream_t stream) {
  auto spec = ChooseNow(desc, policy, stream);
  if (spec.ok()) {
    // That of a smaller batch was measured, too, but not for this problem.
    const bool measured = spec->origin == Origin::kMeasured &&
                          (policy != DispatchPolicy::kReuse || impl_->cache.Find(desc).has_value());
    impl_->usage.Note(desc, measured);
  }
  return spec;
}

Coverage Gemm::coverage() const { return impl_->usage.coverage(); }

Result<LaunchSpec> Gemm::ChooseNow(const GemmDesc& desc, DispatchPolicy policy,
                                   cudaStream_t stream) {
  if (policy == DispatchPolicy::kMeasure) {
    // A noisy entry will do: on a machine that is busy the next one would be no better.
    if (LaunchSpec known; impl_->chooser.FindMeasured(desc, known)) return known;
    TuneOptions options;
    options.stream = stream;
    bool stopped = false;
    if (impl_->stop) {
      options.stop = [&] {
        stopped = true;  // also where the question throws
        return stopped = impl_->stop();
      };
    }
    auto report = Tune(desc, options);
    if (!report && stopped) {
      return Status(StatusCode::kResourceExhausted,
                    fmt::format("the tuning of {} was stopped before any sample", ToString(desc)));
    }
    if (!report) return report.status();
    // Nothing that was measured is lost: the next tuning of the problem replaces it when forced.
    if (!report->complete) impl_->cache.Insert(desc, report->winner);
    return report->winner;
  }
  auto choice = impl_->chooser.Choose(desc, policy == DispatchPolicy::kReuse);
  if (!choice) return choice.status();
  return choice->spec;
}

Status Gemm::Run(const GemmArgs& args, Workspace& workspace, cudaStream_t stream) {
  const auto desc = Describe(args, impl_->device.arch);
  if (!desc) return desc.status();
  CULET_RETURN_IF_ERROR(CheckAllPointers(args));
  if (!IsStreamOf(stream, impl_->device.ordinal)) return StreamOfAnother(impl_->device.ordinal);
  const auto spec = Choose(*desc, args.operation.dispatch, stream);
  if (!spec) return spec.status();
  const DeviceScope scope(impl_->device.ordinal);
  Kernel& kernel = *spec->kernel;
  CULET_RETURN_IF_ERROR(
      CheckWorkspace(kernel.workspace_size(*desc, spec->swizzle, spec->splits), workspace));
  const TraceRange range([&] { return RangeName(kernel, *desc); });
  return LaunchKernel(kernel, AsLaunched(args, *spec), spec->swizzle, spec->splits, workspace,
                      stream);
}

Result<WorkspaceSize> Gemm::RunWorkspaceSize(const GemmArgs& args, cudaStream_t stream) {
  const auto desc = Describe(args, impl_->device.arch);
  if (!desc) return desc.status();
  const auto spec = Choose(*desc, args.operation.dispatch, stream);
  if (!spec) return spec.status();
  return spec->kernel->workspace_size(*desc, spec->swizzle, spec->splits);
}

Result<GemmPlan> Gemm::Plan(const GemmArgs& args, cudaStream_t stream) {
  const auto desc = Describe(args, impl_->device.arch);
  if (!desc) return desc.status();
  CULET_RETURN_IF_ERROR(CheckFixedPointers(args));
  const auto spec = Choose(*desc, args.operation.dispatch, stream);
  if (!spec) return spec.status();
  auto plan = Bind(args, *desc, *spec);
  if (plan.ok()) return plan;
  for (const LaunchSpec& next : impl_->chooser.Candidates(*desc)) {
    if (SameLaunch(next, *spec)) continue;
    if (auto other = Bind(args, *desc, next); other.ok()) return other;
  }
  return plan;
}

Result<GemmPlan> Gemm::Plan(const GemmArgs& args, const LaunchSpec& spec) {
  const auto desc = Describe(args, impl_->device.arch);
  if (!desc) return desc.status();
  CULET_RETURN_IF_ERROR(CheckFixedPointers(args));
  if (spec.kernel == nullptr) {
    return Status(StatusCode::kInvalidArgument, "spec.kernel is null; take a spec from Choose");
  }
  if (const std::string refusal = WhyNot(*spec.kernel, *desc); !refusal.empty()) {
    return Status(
        StatusCode::kUnsupported,
        fmt::format("{} does not take {}: {}", spec.kernel->id(), ToString(*desc), refusal));
  }
  return Bind(args, *desc, spec);
}

Result<GemmPlan> Gemm::Bind(const GemmArgs& args, const GemmDesc& desc, const LaunchSpec& spec) {
  const DeviceScope scope(impl_->device.ordinal);  // on which functions are loaded
  auto prepared = PrepareKernel(*spec.kernel, AsLaunched(args, spec), spec.swizzle, spec.splits);
  impl_->chooser.NotePrepared(desc, spec, prepared.status());
  if (!prepared) {
    Log(LogLevel::kWarning, "{} cannot be prepared for {}, another kernel takes its place: {}",
        spec.kernel->id(), ToString(desc), prepared.status().message());
    return prepared.status();
  }
  Log(LogLevel::kDebug, "plan {}: {} ({})", ToString(desc), spec.kernel->id(),
      ToString(spec.origin));
  auto state = std::make_unique<PlanState>();
  state->ordinal = impl_->device.ordinal;
  state->desc = desc;
  state->spec = spec;
  state->workspace_size = spec.kernel->workspace_size(desc, spec.swizzle, spec.splits);
  state->prepared = *std::move(prepared);
  const auto footprint = [](const MatrixLayout& layout) {
    return layout.type != DataType::kNull ? FootprintOf(layout) : Footprint{};
  };
  state->a = footprint(args.Adesc);
  state->u = footprint(args.Udesc);
  state->c = footprint(args.Cdesc);
  state->d = footprint(args.Ddesc);
  const Operation& op = args.operation;
  state->W = op.quant_d.scales;
  state->w = footprint(op.quant_d.layout);
  const auto bind = [&](const char* name, const void* data, const MatrixLayout& layout) {
    if (data != nullptr) state->bound.push_back({name, data, footprint(layout)});
  };
  bind("B", args.B, args.Bdesc);
  if (op.quant_b.type != QuantType::kNone) bind("V", args.V, args.Vdesc);
  bind("the bias", op.bias.data, LayoutOf(op.bias, args.Adesc.rows, args.Bdesc.cols));
  bind("zero_a", op.zero_a.data, LayoutOf(op.zero_a, args.Udesc));
  bind("zero_b", op.zero_b.data, LayoutOf(op.zero_b, args.Vdesc));
  state->c_may_be_d = SamePlaces(args.Cdesc, args.Ddesc);
  return GemmPlan(std::move(state));
}

Result<Explanation> Gemm::explain(const GemmDesc& desc) {
  return Explain(impl_->chooser, impl_->registry, impl_->device, desc);
}

Result<TuneReport> Gemm::Tune(const GemmDesc& desc, const TuneOptions& options) {
  TuneReport report;
  if (!options.force && impl_->chooser.FindMeasured(desc, report.winner) &&
      !IsNoisy(report.winner)) {
    report.from_cache = true;
    return report;
  }
  CULET_RETURN_IF_ERROR(RefuseCapture(impl_->device, options.stream, desc));
  auto left = impl_->chooser.Candidates(desc);
  if (left.empty()) return NoKernelFor(desc, impl_->registry);
  // When every candidate worth measuring fails, the others get their turn: a problem that one
  // right kernel takes is never without an answer.
  std::vector<Dropped> dropped;
  const TunerOptions tuner = ForDevice(options.tuner, impl_->device);
  const TimeLimit limit(options);
  std::vector<LaunchSpec> first = impl_->chooser.LongLaunch(desc, left);
  while (true) {
    const auto measured = WorthMeasuring(first.empty() ? left : first, *tuner.max_candidates);
    first.clear();
    auto tuned = MeasureCandidates(*this, desc, measured, options, limit, dropped);
    if (tuned) {
      tuned->dropped = std::move(dropped);
      if (tuned->complete) {
        // An entry that a wrong clock dated in the future must not outlive a new measurement.
        const auto known = impl_->cache.Find(desc);
        if (known) tuned->winner.when = std::max(tuned->winner.when, known->when + 1);
        impl_->cache.Insert(desc, tuned->winner);
        Log(LogLevel::kInfo, "tuned {}: {} in {:.4g} us, the default {:.4g} us, {} measurements",
            ToString(desc), tuned->winner.kernel->id(), tuned->winner.time_us,
            tuned->winner.baseline_us, tuned->measurements);
      }
      for (const Dropped& d : tuned->dropped) {
        if (d.reason.code() == StatusCode::kResourceExhausted) continue;  // slow is no news
        Log(LogLevel::kWarning, "tuning {}: {} was dropped: {}", ToString(desc),
            d.spec.kernel->id(), d.reason.message());
      }
      return tuned;
    }
    std::erase_if(left, [&](const LaunchSpec& spec) {
      return std::ranges::any_of(measured,
                                 [&](const LaunchSpec& m) { return SameLaunch(m, spec); });
    });
    if (tuned.status().code() != StatusCode::kUnsupported || left.empty()) return tuned;
  }
}

std::vector<LaunchSpec> Gemm::Candidates(const GemmDesc& desc) const {
  return impl_->chooser.Candidates(desc);
}

const DeviceInfo& Gemm::device() const noexcept { return impl_->device; }
const HardwareRates& Gemm::rates(DataType type) const noexcept {
  return impl_->chooser.rates(type);
}
const Registry& Gemm::registry() const noexcept { return impl_->registry; }
DispatchCache& Gemm::cache() noexcept { return impl_->cache; }

void Gemm::SetStop(std::function<bool()> stop) { impl_->stop = std::move(stop); }

Status Gemm::Register(std::unique_ptr<Kernel> kernel) {
  Kernel* added = kernel.get();
  CULET_RETURN_IF_ERROR(impl_->registry.Add(std::move(kernel)));
  impl_->cache.AddKernel(added);
  impl_->chooser.Forget();
  return {};
}

}  // namespace culet
