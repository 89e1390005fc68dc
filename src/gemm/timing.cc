#include "culet/timing.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "gemm/chooser.h"
#include "gemm/cost_model.h"
#include "gemm/error_model.h"
#include "gemm/runtime.h"

namespace culet {
namespace {

// A plan binds one input set. Problems so small that more sets would be needed to fill the
// last-level cache at least leave the inner caches.
constexpr int kMaxSets = 256;

// Events around a graph are accurate to about half a microsecond, but a GPU that was just idle has
// not reached its working clock yet.
constexpr double kLeastSampleUs = 600;

// A sustained sample: long enough for the launch's own power to set the clock, which follows within
// a few milliseconds. Short enough that the clock also depends on what ran before, as it will in a
// model.
constexpr double kSustainedUs = 4000;

// A kernel starts while the one before ends; for long kernels that is negligible.
constexpr double kLongLaunchUs = 500;

LaunchPointers PointersOf(const GemmArgs& args) {
  return {args.A, args.U, args.C, args.D, args.alpha, args.beta};
}

// Overlong samples would double the tuning time, and a short launch takes up to twice its roofline,
// so launches are counted by the predicted time. A wrong prediction must not leave a sample of a
// few launches.
double ExpectedUs(const LaunchSpec& spec, double roofline_us) noexcept {
  constexpr double kMostRooflines = 3;
  if (!std::isfinite(spec.time_us)) return roofline_us;
  return std::clamp(spec.time_us, roofline_us, kMostRooflines * roofline_us);
}

}  // namespace

ScratchOptions ColdInputs(const DeviceInfo& device, const GemmDesc& desc) {
  ScratchOptions options;
  // Scales of rows are lines of one number, so their alignment class is 4. Begun there, a library
  // that needs 16 bytes would copy them in every measurement, which callers' scales hardly ever
  // need.
  options.as_allocated = true;
  const std::size_t caches = device.arch == 0 ? 1 : 3;
  options.rotate_bytes = std::min({caches * device.cache_bytes, device.memory_bytes / 4,
                                   static_cast<std::size_t>((kMaxSets - 1) * MinimumBytes(desc))});
  return options;
}

int LaunchesPerSample(const DeviceInfo& device, int sets, double launch_us) noexcept {
  if (device.arch == 0) return 1;
  const double lasting = std::ceil(kLeastSampleUs / std::max(launch_us, 1e-3));
  const int wanted = std::max(sets, static_cast<int>(std::min<double>(lasting, kMaxSets)));
  return std::clamp(wanted, launch_us < kLongLaunchUs ? 2 : 1, kMaxSets);
}

struct TimedLaunch::Impl {
  virtual ~Impl() = default;
  virtual Result<ErrorReport> Check(double* launch_s) = 0;
  virtual Result<double> SampleUs(bool sustained, const std::function<bool()>& give_up) = 0;
};

namespace {

struct TimedGrouped final : TimedLaunch::Impl {
  TimedGrouped(Gemm& engine, GroupedScratch& operands, const LaunchSpec& launch)
      : gemm(engine), scratch(operands), spec(launch) {}

  Result<ErrorReport> Check(double* launch_s) override {
    const auto start = std::chrono::steady_clock::now();
    CULET_RETURN_IF_ERROR(scratch.Check(gemm, &spec));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (launch_s != nullptr) *launch_s = gemm.device().arch != 0 ? 0 : taken.count();
    ErrorReport report;
    report.checked = 1;
    return report;
  }
  Result<double> SampleUs(bool sustained, const std::function<bool()>& give_up) override {
    return scratch.SampleUs(gemm, &spec, sustained, give_up);
  }

  Gemm& gemm;
  GroupedScratch& scratch;
  const LaunchSpec spec;
};

struct TimedProduct final : TimedLaunch::Impl {
  TimedProduct(Runtime& of_device, ScratchProblem& problem, bool gpu)
      : runtime(of_device), scratch(problem), on_gpu(gpu) {}

  Result<ErrorReport> Check(double* launch_s) override;
  Result<double> SampleUs(bool sustained, const std::function<bool()>& give_up) override;

  Runtime& runtime;
  ScratchProblem& scratch;
  std::vector<GemmPlan> plans;
  int launches = 1;  // a sample
  bool on_gpu = false;
  std::unique_ptr<Replay> graph;
  Workspace recorded;  // what the graph was made with

  // Requested each time: all launches share one workspace, laid out and zeroed for the current one.
  Result<Workspace*> workspace() { return scratch.workspace(plans.front().workspace_size()); }

  Status Launch(int set, Workspace& workspace, cudaStream_t stream = nullptr) const {
    return plans[static_cast<std::size_t>(set)].Launch(PointersOf(scratch.args(set)), workspace,
                                                       stream);
  }

  // A larger workspace for another launch replaces the recorded one.
  bool IsRecordedWith(const Workspace& workspace) const {
    return graph != nullptr && recorded.barriers == workspace.barriers &&
           recorded.partials == workspace.partials && recorded.tensormaps == workspace.tensormaps &&
           recorded.flags == workspace.flags;
  }

  Status Record(Workspace& workspace) {
    graph.reset();
    auto made = runtime.Record([&](cudaStream_t stream) -> Status {
      for (int i = 0; i < launches; ++i) {
        CULET_RETURN_IF_ERROR(Launch(i % scratch.sets(), workspace, stream));
      }
      return {};
    });
    if (!made) return made.status();
    graph = *std::move(made);
    recorded = workspace;
    return {};
  }
};

}  // namespace

TimedLaunch::TimedLaunch(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TimedLaunch::~TimedLaunch() = default;
TimedLaunch::TimedLaunch(TimedLaunch&&) noexcept = default;
TimedLaunch& TimedLaunch::operator=(TimedLaunch&&) noexcept = default;

Result<TimedLaunch> TimedLaunch::Create(Gemm& gemm, ScratchProblem& scratch,
                                        const LaunchSpec& spec) {
  const DeviceInfo& device = gemm.device();
  auto impl = std::make_unique<TimedProduct>(GetRuntime(device), scratch, device.arch != 0);
  for (int set = 0; set < scratch.sets(); ++set) {
    auto plan = gemm.Plan(scratch.args(set), spec);
    if (!plan) return plan.status();
    impl->plans.push_back(*std::move(plan));
  }
  impl->launches = LaunchesPerSample(
      device, scratch.sets(),
      ExpectedUs(spec, RooflineUs(scratch.desc(), gemm.rates(RateType(scratch.desc())))));
  return TimedLaunch(std::move(impl));
}

Result<TimedLaunch> TimedLaunch::Create(Gemm& gemm, GroupedScratch& scratch,
                                        const LaunchSpec& spec) {
  return TimedLaunch(std::make_unique<TimedGrouped>(gemm, scratch, spec));
}

Result<ErrorReport> TimedLaunch::Check(double* launch_s) { return impl_->Check(launch_s); }
Result<double> TimedLaunch::SampleUs(bool sustained, const std::function<bool()>& give_up) {
  return impl_->SampleUs(sustained, give_up);
}

namespace {

Result<ErrorReport> TimedProduct::Check(double* launch_s) {
  const auto room = workspace();
  if (!room) return room.status();
  CULET_RETURN_IF_ERROR(scratch.PoisonOutput(0));
  // Not Runtime::TimeUs: work of other threads does not make a result wrong.
  const auto start = std::chrono::steady_clock::now();
  CULET_RETURN_IF_ERROR(Launch(0, **room));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  if (launch_s != nullptr) *launch_s = on_gpu ? 0 : taken.count();
  return scratch.Compare(0, AccumulatorFor(plans.front().spec().kernel->desc(), scratch.desc()));
}

Result<double> TimedProduct::SampleUs(bool sustained, const std::function<bool()>& give_up) {
  const auto room = workspace();
  if (!room) return room.status();
  if (!on_gpu) {
    const int set = scratch.NextSet();
    return runtime.TimeUs([&] { return Launch(set, **room); }, give_up);
  }
  if (!IsRecordedWith(**room)) CULET_RETURN_IF_ERROR(Record(**room));
  int repeats = 1;
  if (sustained) {
    const auto once_us = graph->TimeUs();
    if (!once_us) return once_us.status();
    repeats = std::max(1, static_cast<int>(std::ceil(kSustainedUs / *once_us)));
  }
  const auto total_us = graph->TimeUs(repeats);
  if (!total_us) return total_us.status();
  return *total_us / launches;
}

}  // namespace

Result<TimingInputs> TimingInputs::Create(const DeviceInfo& device, const GemmDesc& desc,
                                          std::function<bool()> stop,
                                          std::optional<GroupedRouting> routing) {
  TimingInputs inputs;
  if (IsGrouped(desc)) {
    auto scratch =
        GroupedScratch::Create(device, desc, {.routing = routing, .stop = std::move(stop)});
    if (!scratch) return scratch.status();
    inputs.grouped_ = *std::move(scratch);
    return inputs;
  }
  ScratchOptions options = ColdInputs(device, desc);
  options.stop = std::move(stop);
  auto scratch = ScratchProblem::Create(device, desc, options);
  if (!scratch) return scratch.status();
  inputs.plain_ = *std::move(scratch);
  return inputs;
}

Result<TimedLaunch> TimingInputs::Prepare(Gemm& gemm, const LaunchSpec& spec) {
  return grouped_ ? TimedLaunch::Create(gemm, *grouped_, spec)
                  : TimedLaunch::Create(gemm, *plain_, spec);
}

}  // namespace culet
