#include "gemm/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "culet/timing.h"

namespace culet {
namespace {

using SpecKey = std::tuple<const Kernel*, int, int, bool, int>;
SpecKey KeyOf(const LaunchSpec& spec) {
  return {spec.kernel, spec.swizzle, spec.splits, spec.serial, spec.variant};
}

// A candidate is launched once to be checked and once for its first sample.
constexpr double kLaunchesBeforeATime = 2;

// A longer product of another thread is considered hung; waiting for it in every sample is useless.
constexpr double kLongestWaitS = 30;

// Ends a sample's wait for the products of other threads.
class Waiting {
 public:
  explicit Waiting(const TimeLimit& limit) : limit_(limit) {}

  std::function<bool()> GiveUp() {
    begun_s_.reset();
    return [this] {
      const double now_s = limit_.Now();
      if (!begun_s_) begun_s_ = now_s;
      hung_ = now_s - *begun_s_ > kLongestWaitS;
      ended_ = limit_.Stopped() || !limit_.Allows(0);
      return hung_ || ended_;
    };
  }
  bool hung() const noexcept { return hung_; }
  /// Whether it ended because the tuning is to end.
  bool ended() const noexcept { return ended_; }

 private:
  const TimeLimit& limit_;
  std::optional<double> begun_s_;
  bool hung_ = false, ended_ = false;
};

struct Ready {
  TimedLaunch launch;
  double sample_s;  // the last one took, or is predicted to take
};

// 0 if the prediction is no time: unknown candidates are tried.
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
Result<Ready> MakeReady(Gemm& gemm, TimingInputs& inputs, const LaunchSpec& spec) {
  auto launch = inputs.Prepare(gemm, spec);
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
  auto inputs = TimingInputs::Create(gemm.device(), desc,
                                     [&limit] { return limit.Stopped() || !limit.Allows(0); });
  if (!inputs) return inputs.status();

  TuneReport report;
  TunerOptions tuner_options = ForDevice(options.tuner, gemm.device());
  if (limit.limited()) tuner_options.budget_s = limit.LeftS();
  Tuner tuner(std::move(candidates), std::move(tuner_options));
  std::map<SpecKey, Ready> ready;
  Waiting waiting(limit);
  double slower = 1;  // than predicted: mostly common to all kernels
  while (const LaunchSpec* spec = tuner.Next()) {
    if (limit.Stopped(tuner.progress(), *spec)) {
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
      auto made = MakeReady(gemm, *inputs, *spec);
      if (!made) {
        tuner.Drop(made.status());
        continue;
      }
      it = ready.emplace(KeyOf(*spec), *std::move(made)).first;
    }
    if (!limit.Allows(it->second.sample_s)) break;
    const double start_s = limit.Now();
    const auto time_us = it->second.launch.SampleUs(tuner.sustained(), waiting.GiveUp());
    it->second.sample_s = limit.Now() - start_s;
    if (!time_us) {
      if (waiting.hung()) return time_us.status();
      if (waiting.ended()) continue;  // to where the tuning ends
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
