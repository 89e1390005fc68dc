#include "gemm/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "culet/scratch.h"
#include "culet/timing.h"

namespace culet {
namespace {

using SpecKey = std::tuple<const Kernel*, int, int, bool>;
SpecKey KeyOf(const LaunchSpec& spec) {
  return {spec.kernel, spec.swizzle, spec.splits, spec.serial};
}

// A candidate must be right before it may be fast.
Result<TimedLaunch> MakeReady(Gemm& gemm, ScratchProblem& scratch, const LaunchSpec& spec) {
  auto launch = TimedLaunch::Create(gemm, scratch, spec);
  if (!launch) return launch.status();
  const auto error = launch->Check();
  if (!error) return error.status();
  if (!error->ok()) return Status(StatusCode::kWrongResult, error->ToString());
  return launch;
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
  auto scratch = ScratchProblem::Create(gemm.device(), desc, ColdInputs(gemm.device(), desc));
  if (!scratch) return scratch.status();

  TuneReport report;
  Tuner tuner(std::move(candidates), ForDevice(options.tuner, gemm.device()));
  std::map<SpecKey, TimedLaunch> ready;
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
    const auto time_us = it->second.SampleUs(tuner.sustained());
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
