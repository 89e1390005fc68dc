#include "gemm/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "culet/scratch.h"

namespace culet {
namespace {

// One candidate made ready: a plan for each input set, because a plan binds B.
using Plans = std::vector<GemmPlan>;

// A plan binds one set. Problems so small that more sets would be needed to fill a last-level cache
// at least leave the caches nearer to the cores.
constexpr int kMaxSets = 256;

using SpecKey = std::tuple<const Kernel*, int, int>;
SpecKey KeyOf(const LaunchSpec& spec) { return {spec.kernel, spec.swizzle, spec.splits}; }

LaunchPointers PointersOf(const GemmArgs& args) {
  return {args.A, args.U, args.C, args.D, args.alpha, args.beta};
}

Status LaunchOn(const Plans& plans, const ScratchProblem& scratch, Workspace& workspace, int set) {
  return plans[set].Launch(PointersOf(scratch.args(set)), workspace);
}

// A candidate must be right before it may be fast.
Status CheckResult(const Plans& plans, ScratchProblem& scratch) {
  auto workspace = scratch.workspace(plans.front().workspace_size());
  if (!workspace) return workspace.status();
  CULET_RETURN_IF_ERROR(scratch.PoisonOutput(0));
  CULET_RETURN_IF_ERROR(LaunchOn(plans, scratch, **workspace, 0));
  const auto error = scratch.Compare(0);
  if (!error) return error.status();
  if (error->ok()) return {};
  return Status(StatusCode::kWrongResult, error->ToString());
}

Result<Plans> MakeReady(Gemm& gemm, ScratchProblem& scratch, const LaunchSpec& spec) {
  Plans plans;
  for (int set = 0; set < scratch.sets(); ++set) {
    auto plan = gemm.Plan(scratch.args(set), spec);
    if (!plan) return plan.status();
    plans.push_back(*std::move(plan));
  }
  CULET_RETURN_IF_ERROR(CheckResult(plans, scratch));
  return plans;
}

Result<double> TimeOn(const DeviceInfo& device, const Plans& plans, ScratchProblem& scratch,
                      int set) {
  auto workspace = scratch.workspace(plans.front().workspace_size());
  if (!workspace) return workspace.status();
  return TimeLaunchUs(device, [&] { return LaunchOn(plans, scratch, **workspace, set); });
}

std::int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<TuneReport> MeasureCandidates(Gemm& gemm, const GemmDesc& desc,
                                     std::vector<LaunchSpec> candidates, const TuneOptions& options,
                                     std::vector<Dropped>& dropped) {
  ScratchOptions scratch_options;
  // Cold caches: a layer's weights were last read a whole model ago. A quarter of the memory at
  // most, so that tuning beside a loaded model cannot push it out.
  scratch_options.rotate_bytes =
      std::min({gemm.device().cache_bytes, gemm.device().memory_bytes / 4,
                static_cast<std::size_t>(kMaxSets * MinimumBytes(desc))});
  auto scratch = ScratchProblem::Create(gemm.device(), desc, scratch_options);
  if (!scratch) return scratch.status();

  TuneReport report;
  Tuner tuner(std::move(candidates), options.tuner);
  std::map<SpecKey, Plans> ready;
  int set = 0;
  while (const LaunchSpec* spec = tuner.Next()) {
    if (options.on_progress && !options.on_progress(tuner.progress(), *spec)) {
      report.complete = false;
      break;
    }
    auto it = ready.find(KeyOf(*spec));
    if (it == ready.end()) {
      auto made = MakeReady(gemm, *scratch, *spec);
      if (!made) {
        tuner.Drop(made.status());
        continue;
      }
      it = ready.emplace(KeyOf(*spec), *std::move(made)).first;
    }
    set = (set + 1) % scratch->sets();
    const auto time_us = TimeOn(gemm.device(), it->second, *scratch, set);
    if (!time_us) {
      tuner.Drop(time_us.status());
      continue;
    }
    tuner.Report(*time_us);
    ++report.measurements;
  }
  dropped.insert(dropped.end(), tuner.dropped().begin(), tuner.dropped().end());
  auto winner = tuner.Winner();
  if (!winner) return winner.status();
  report.winner = *winner;
  report.winner.when = UnixSeconds();
  report.standings = tuner.Standings();
  return report;
}

}  // namespace culet
