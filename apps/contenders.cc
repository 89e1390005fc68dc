#include "contenders.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "culet/timing.h"

namespace culet::cli {
namespace {

constexpr std::size_t kBestBesideTheChoice = 3;

double Quantile(std::vector<double> samples, double q) {
  const auto nth = static_cast<std::size_t>(q * static_cast<double>(samples.size() - 1) + 0.5);
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(nth),
                   samples.end());
  return samples[nth];
}

bool IsReference(const Kernel& kernel) { return kernel.desc().backend == Backend::kReference; }

// The kernels that `name` names: the one with this id, else all whose id starts with it.
std::vector<Kernel*> KernelsNamed(const Registry& registry, const std::string& name) {
  if (Kernel* kernel = registry.Find(name)) return {kernel};
  std::vector<Kernel*> kernels;
  for (Kernel* kernel : registry.kernels()) {
    if (kernel->id().starts_with(name)) kernels.push_back(kernel);
  }
  return kernels;
}

// A whole number behind "key=", or nothing.
std::optional<int> NumberOf(const std::string& text, const std::string& key) {
  if (!text.starts_with(key + "=")) return std::nullopt;
  const char* const begin = text.data() + key.size() + 1;
  const char* const end = text.data() + text.size();
  int value = 0;
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<LaunchPattern> ParsePattern(const std::string& text) {
  const std::vector<std::string> parts = Split(text, '@');
  LaunchPattern pattern;
  pattern.name = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto swizzle = NumberOf(parts[i], "swizzle"), splits = NumberOf(parts[i], "splits");
    if (swizzle) pattern.swizzle = swizzle;
    if (splits) pattern.splits = splits;
    const auto variant = NumberOf(parts[i], "variant");
    if (variant) pattern.variant = variant;
    if (parts[i] == "serial") {
      pattern.serial = true;
    } else if (!swizzle && !splits && !variant) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("--kernels: '{}' in '{}' is none of swizzle=N, splits=N, "
                                "variant=N, serial",
                                parts[i], text));
    }
  }
  return pattern;
}

bool Matches(const LaunchPattern& pattern, const LaunchSpec& spec) {
  return pattern.swizzle.value_or(spec.swizzle) == spec.swizzle &&
         pattern.splits.value_or(spec.splits) == spec.splits &&
         pattern.variant.value_or(spec.variant) == spec.variant && pattern.serial == spec.serial;
}

// A contender is launched once to be checked and once for its first sample.
constexpr double kLaunchesBeforeATime = 2;

double PredictedS(const Contender& contender) {
  const double time_us = contender.spec.time_us;
  return std::isfinite(time_us) ? 1e-6 * time_us : 0;
}

// The time that measuring a problem may take.
class Countdown {
 public:
  /// `options` must outlive it.
  explicit Countdown(const MeasureOptions& options) : options_(options) {}

  double ElapsedS() const { return options_.clock_s() - start_s_; }
  /// Whether a part of the budget is spent.
  bool Spent(double part) const {
    return options_.budget_s > 0 && ElapsedS() >= part * options_.budget_s;
  }
  /// Whether work of that length may begin; `must`: within the limit instead of the budget.
  bool Allows(double seconds, bool must) const {
    const double most_s = must ? options_.limit_s : options_.budget_s;
    return most_s <= 0 || ElapsedS() + seconds < most_s;
  }
  /// Whether to end at once.
  bool Stopped() const {
    return (options_.limit_s > 0 && ElapsedS() >= options_.limit_s) ||
           (options_.stop && options_.stop());
  }

 private:
  const MeasureOptions& options_;
  const double start_s_ = options_.clock_s();
};

// Makes the plans, and checks the result on the first set. `launch_s` becomes what that took, if it
// was more.
Status Prepare(Gemm& gemm, TimingInputs& inputs, Contender& contender,
               std::optional<TimedLaunch>& launch, double& launch_s) {
  Result<TimedLaunch> made = inputs.Prepare(gemm, contender.spec);
  if (!made.ok()) return made.status();
  double checked_s = 0;
  const Result<ErrorReport> error = made->Check(&checked_s);
  if (!error.ok()) return error.status();
  launch_s = std::max(launch_s, checked_s);
  contender.error = *error;
  if (!error->ok()) return Status(StatusCode::kWrongResult, error->ToString());
  launch.emplace(*std::move(made));
  return {};
}

}  // namespace

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Contender::MedianUs() const { return Quantile(samples_us, 0.5); }

double Contender::SpreadUs() const {
  return 0.5 * (Quantile(samples_us, 0.75) - Quantile(samples_us, 0.25));
}

std::string LaunchName(const LaunchSpec& spec) {
  return fmt::format("{}@swizzle={}@splits={}{}{}", spec.kernel->id(), spec.swizzle, spec.splits,
                     spec.variant != 0 ? fmt::format("@variant={}", spec.variant) : "",
                     spec.serial ? "@serial" : "");
}

Result<Selection> ParseSelection(const std::string& text) {
  Selection selection;
  if (text == "best") return selection;
  if (text == "choice" || text == "all") {
    selection.kind = text == "all" ? Selection::kAll : Selection::kChoice;
    return selection;
  }
  selection.kind = Selection::kNamed;
  for (const std::string& part : Split(text, ',')) {
    if (part.empty()) continue;
    if (part == "choice") {
      selection.with_choice = true;
      continue;
    }
    const Result<LaunchPattern> pattern = ParsePattern(part);
    if (!pattern.ok()) return pattern.status();
    selection.patterns.push_back(*pattern);
  }
  if (selection.patterns.empty() && !selection.with_choice) {
    return Status(StatusCode::kInvalidArgument,
                  "--kernels is empty; give choice, best, all, or ids separated by commas");
  }
  return selection;
}

Status CheckNames(const Registry& registry, const Selection& selection) {
  for (const LaunchPattern& pattern : selection.patterns) {
    if (!KernelsNamed(registry, pattern.name).empty()) continue;
    return Status(StatusCode::kNotFound,
                  fmt::format("no kernel's id is or starts with '{}'; culet kernels lists them",
                              pattern.name));
  }
  return {};
}

Result<std::vector<Contender>> SelectContenders(Gemm& gemm, const GemmDesc& desc,
                                                const Selection& selection) {
  const Result<LaunchSpec> choice = gemm.Choose(desc);
  if (!choice.ok()) return choice.status();
  const std::vector<LaunchSpec> candidates = gemm.Candidates(desc);
  const auto contender = [&](const LaunchSpec& spec) {
    Contender made;
    made.spec = spec;
    made.is_choice = SameLaunch(spec, *choice);
    return made;
  };
  // The choice's launch where it is one of the pattern's, else the one of them predicted best.
  const auto best_of = [&](Kernel* kernel, const LaunchPattern& pattern) {
    if (kernel == choice->kernel && Matches(pattern, *choice)) return contender(*choice);
    const auto best = std::find_if(
        candidates.begin(), candidates.end(),
        [&](const LaunchSpec& spec) { return spec.kernel == kernel && Matches(pattern, spec); });
    if (best != candidates.end()) return contender(*best);
    Contender refused;
    refused.spec.kernel = kernel;
    refused.spec.swizzle = pattern.swizzle.value_or(0);
    refused.spec.splits = pattern.splits.value_or(1);
    refused.spec.serial = pattern.serial;
    refused.spec.variant = pattern.variant.value_or(0);
    const std::string refusal = WhyNot(*kernel, desc);
    refused.status = Status(StatusCode::kUnsupported,
                            refusal.empty() ? "this problem leaves it no such launch" : refusal);
    return refused;
  };

  std::vector<Contender> contenders;
  std::set<const Kernel*> seen;
  if (selection.kind == Selection::kNamed) {
    if (selection.with_choice) contenders.push_back(contender(*choice));
    const auto is_there = [&](const LaunchSpec& spec) {
      return std::any_of(contenders.begin(), contenders.end(),
                         [&](const Contender& c) { return SameLaunch(c.spec, spec); });
    };
    for (const LaunchPattern& pattern : selection.patterns) {
      for (Kernel* kernel : KernelsNamed(gemm.registry(), pattern.name)) {
        Contender named = best_of(kernel, pattern);
        if (!is_there(named.spec)) contenders.push_back(std::move(named));
      }
    }
    return contenders;
  }
  contenders.push_back(contender(*choice));
  if (selection.kind == Selection::kChoice) return contenders;
  seen.insert(choice->kernel);
  for (const LaunchSpec& spec : candidates) {
    if (IsReference(*spec.kernel) || SameLaunch(spec, *choice)) continue;
    if (selection.kind == Selection::kBest &&
        (seen.size() > kBestBesideTheChoice || !seen.insert(spec.kernel).second)) {
      continue;
    }
    contenders.push_back(contender(spec));
  }
  return contenders;
}

Status AddUntuned(Gemm& gemm, Gemm& untuned, const GemmDesc& desc,
                  std::vector<Contender>& contenders) {
  const Result<LaunchSpec> choice = untuned.Choose(desc);
  if (!choice.ok()) return choice.status();
  LaunchSpec spec = *choice;
  spec.kernel = gemm.registry().Find(spec.kernel->id());  // this engine's own object
  for (Contender& contender : contenders) {
    if (!SameLaunch(contender.spec, spec)) continue;
    contender.is_untuned = true;
    return {};
  }
  Contender made;
  made.spec = spec;
  made.is_untuned = true;
  contenders.push_back(std::move(made));
  return {};
}

Status MeasureContenders(Gemm& gemm, const GemmDesc& desc, const MeasureOptions& options,
                         std::vector<Contender>& contenders) {
  const Countdown time(options);
  const auto must = [&](std::size_t i) {
    return i == 0 || contenders[i].is_choice || contenders[i].is_untuned;
  };
  if (!contenders.empty() && !time.Allows(kLaunchesBeforeATime * PredictedS(contenders[0]), true)) {
    return {};
  }
  Result<TimingInputs> inputs = TimingInputs::Create(
      gemm.device(), desc, [&time] { return time.Stopped(); }, options.routing);
  if (!inputs.ok()) return inputs.status();
  if (options.on_inputs) options.on_inputs(*inputs);

  constexpr double kToPrepare = 0.5;
  std::vector<std::optional<TimedLaunch>> launches(contenders.size());
  std::vector<double> sample_s(contenders.size());  // the last one took, or is predicted to take
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Contender& contender = contenders[i];
    if (!contender.status.ok() || (time.Spent(kToPrepare) && !must(i))) continue;
    if (time.Stopped()) return {};
    sample_s[i] = PredictedS(contender);
    if (!time.Allows(kLaunchesBeforeATime * sample_s[i], must(i))) continue;
    if (options.on_sample && !options.on_sample(0, contender)) return {};
    contender.status = Prepare(gemm, *inputs, contender, launches[i], sample_s[i]);
    if (contender.status.code() == StatusCode::kResourceExhausted && time.Stopped()) {
      contender.status = OkStatus();  // not its fault
    }
  }

  // Each round has another order: caches and clock as one kernel leaves them change the next one's
  // time by some per cent. The first round keeps the given order, since a budget may end it.
  std::vector<std::size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(1);
  for (int round = 0; round < options.rounds; ++round) {
    if (round > 0) std::ranges::shuffle(order, random);
    double best_us = std::numeric_limits<double>::infinity();
    for (const Contender& contender : contenders) {
      if (contender.timed()) best_us = std::min(best_us, contender.MedianUs());
    }
    for (const std::size_t index : order) {
      Contender& contender = contenders[index];
      if (!launches[index] || !contender.status.ok()) continue;
      if (options.drop_ratio > 0 && round >= options.drop_after && contender.timed() &&
          !must(index) && contender.MedianUs() > options.drop_ratio * best_us) {
        continue;
      }
      if (!time.Allows(sample_s[index], round == 0 && must(index))) continue;
      if (time.Stopped() ||
          (options.on_sample &&
           !options.on_sample(static_cast<double>(round) / options.rounds, contender))) {
        return {};
      }
      const double start_s = time.ElapsedS();
      // As in tuning: on a GPU at its power limit the ranking changes within milliseconds.
      const Result<double> time_us = launches[index]->SampleUs(/*sustained=*/true);
      sample_s[index] = time.ElapsedS() - start_s;
      if (time_us.ok()) {
        contender.samples_us.push_back(*time_us);
      } else {
        contender.status = time_us.status();
      }
    }
    if (time.Spent(1)) break;
  }
  return {};
}

}  // namespace culet::cli
