#include "gemm/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "culet/scratch.h"
#include "culet/timing.h"

namespace culet {
namespace {

using SpecKey = std::tuple<const Kernel*, int, int, bool, int>;
SpecKey KeyOf(const LaunchSpec& spec) {
  return {spec.kernel, spec.swizzle, spec.splits, spec.serial, spec.variant};
}

// A candidate is launched once to be checked and once for its first sample.
constexpr double kLaunchesBeforeATime = 2;

struct Ready {
  TimedLaunch launch;
  double sample_s;  // the last one took, or is predicted to take
};

// 0 where the prediction is no time: what is unknown is tried.
double PredictedS(const LaunchSpec& spec) {
  return std::isfinite(spec.time_us) ? 1e-6 * spec.time_us : 0;
}

Status NoTime(const TuneOptions& options, const TimeLimit& limit, double default_s) {
  if (!limit.Allows(0)) {
    return Status(StatusCode::kResourceExhausted,
                  fmt::format("the budget of {:.4g} s ended before any sample; allow more",
                              options.tuner.budget_s));
  }
  return Status(StatusCode::kResourceExhausted,
                fmt::format("the budget of {:.4g} s has no room for a sample, whose launch is "
                            "predicted to take {:.3g} s; allow more",
                            options.tuner.budget_s, default_s));
}

// A candidate must be right before it may be fast.
Result<Ready> MakeReady(Gemm& gemm, ScratchProblem& scratch, const LaunchSpec& spec) {
  auto launch = TimedLaunch::Create(gemm, scratch, spec);
  if (!launch) return launch.status();
  double launch_s = 0;
  const auto error = launch->Check(&launch_s);
  if (!error) return error.status();
  if (!error->ok()) return Status(StatusCode::kWrongResult, error->ToString());
  return Ready{*std::move(launch), std::max(launch_s, PredictedS(spec))};
}

std::int64_t UnixSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<TuneReport> MeasureCandidates(Gemm& gemm, const GemmDesc& desc,
                                     std::vector<LaunchSpec> candidates, const TuneOptions& options,
                                     const TimeLimit& limit, std::vector<Dropped>& dropped) {
  const double default_s = PredictedS(candidates.front());
  if (!limit.Allows(kLaunchesBeforeATime * default_s)) return NoTime(options, limit, default_s);
  ScratchOptions inputs = ColdInputs(gemm.device(), desc);
  inputs.stop = [&limit] { return limit.Stopped() || !limit.Allows(0); };
  auto scratch = ScratchProblem::Create(gemm.device(), desc, inputs);
  if (!scratch) return scratch.status();

  TuneReport report;
  TunerOptions tuner_options = ForDevice(options.tuner, gemm.device());
  if (limit.limited()) tuner_options.budget_s = limit.LeftS();
  Tuner tuner(std::move(candidates), std::move(tuner_options));
  std::map<SpecKey, Ready> ready;
  double slower = 1;  // than predicted: mostly common to all kernels
  while (const LaunchSpec* spec = tuner.Next()) {
    if (limit.Stopped() || (options.on_progress && !options.on_progress(tuner.progress(), *spec))) {
      report.complete = false;
      break;
    }
    auto it = ready.find(KeyOf(*spec));
    if (it == ready.end()) {
      const double needed_s = kLaunchesBeforeATime * slower * PredictedS(*spec);
      if (!limit.Allows(needed_s)) {
        tuner.Drop(Status(StatusCode::kResourceExhausted,
                          fmt::format("predicted to take {:.3g} s until its first time, more than "
                                      "the budget has left",
                                      needed_s)));
        continue;
      }
      auto made = MakeReady(gemm, *scratch, *spec);
      if (!made) {
        tuner.Drop(made.status());
        continue;
      }
      it = ready.emplace(KeyOf(*spec), *std::move(made)).first;
    }
    if (!limit.Allows(it->second.sample_s)) break;
    const double start_s = limit.Now();
    const auto time_us = it->second.launch.SampleUs(tuner.sustained());
    it->second.sample_s = limit.Now() - start_s;
    if (!time_us) {
      tuner.Drop(time_us.status());
      continue;
    }
    if (const double predicted_s = PredictedS(*spec); report.measurements == 0 && predicted_s > 0) {
      slower = std::max(1.0, 1e-6 * *time_us / predicted_s);
    }
    tuner.Report(*time_us);
    ++report.measurements;
  }
  dropped.insert(dropped.end(), tuner.dropped().begin(), tuner.dropped().end());
  auto winner = tuner.Winner();
  if (!winner && !limit.Allows(kLaunchesBeforeATime * default_s)) {
    return NoTime(options, limit, default_s);
  }
  if (!winner) return winner.status();
  report.winner = *winner;
  report.winner.when = UnixSeconds();
  report.standings = tuner.Standings();
  return report;
}

}  // namespace culet
