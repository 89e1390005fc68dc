#include "contenders.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

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

// Plans of one contender, one an input set, because a plan binds the weights.
using Plans = std::vector<GemmPlan>;

Status Launch(const Plans& plans, const ScratchProblem& scratch, int set, Workspace& workspace) {
  const GemmArgs& args = scratch.args(set);
  return plans[static_cast<std::size_t>(set)].Launch(
      {args.A, args.U, args.C, args.D, args.alpha, args.beta}, workspace);
}

// Makes the plans, and checks the result on the first set.
Status Prepare(Gemm& gemm, ScratchProblem& scratch, Contender& contender, Plans& plans) {
  for (int set = 0; set < scratch.sets(); ++set) {
    Result<GemmPlan> plan = gemm.Plan(scratch.args(set), contender.spec);
    if (!plan.ok()) return plan.status();
    plans.push_back(*std::move(plan));
  }
  const Result<Workspace*> workspace = scratch.workspace(plans.front().workspace_size());
  if (!workspace.ok()) return workspace.status();
  CULET_RETURN_IF_ERROR(scratch.PoisonOutput(0));
  CULET_RETURN_IF_ERROR(Launch(plans, scratch, 0, **workspace));
  const Result<ErrorReport> error = scratch.Compare(0);
  if (!error.ok()) return error.status();
  contender.error = *error;
  return error->ok() ? OkStatus() : Status(StatusCode::kWrongResult, error->ToString());
}

Result<double> TimeOnce(const Gemm& gemm, ScratchProblem& scratch, const Plans& plans, int set) {
  // Asked for each time: the kernels share one workspace, laid out for the one that runs.
  const Result<Workspace*> workspace = scratch.workspace(plans.front().workspace_size());
  if (!workspace.ok()) return workspace.status();
  return TimeLaunchUs(gemm.device(), [&] { return Launch(plans, scratch, set, **workspace); });
}

}  // namespace

double Contender::MedianUs() const { return Quantile(samples_us, 0.5); }

double Contender::SpreadUs() const {
  return 0.5 * (Quantile(samples_us, 0.75) - Quantile(samples_us, 0.25));
}

Selection ParseSelection(const std::string& text) {
  Selection selection;
  if (text == "best") return selection;
  if (text == "all") {
    selection.kind = Selection::kAll;
    return selection;
  }
  selection.kind = Selection::kNamed;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) selection.names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return selection;
}

Status CheckNames(const Registry& registry, const Selection& selection) {
  for (const std::string& name : selection.names) {
    if (!KernelsNamed(registry, name).empty()) continue;
    return Status(
        StatusCode::kNotFound,
        fmt::format("no kernel's id is or starts with '{}'; culet kernels lists them", name));
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
  // The choice's launch where the kernel is the choice's, else the one predicted best.
  const auto best_of = [&](Kernel* kernel) {
    if (kernel == choice->kernel) return contender(*choice);
    const auto best = std::find_if(candidates.begin(), candidates.end(),
                                   [&](const LaunchSpec& spec) { return spec.kernel == kernel; });
    if (best != candidates.end()) return contender(*best);
    Contender refused;
    refused.spec.kernel = kernel;
    refused.status = Status(StatusCode::kUnsupported, kernel->why(desc).reason());
    return refused;
  };

  std::vector<Contender> contenders;
  std::set<const Kernel*> seen;
  if (selection.kind == Selection::kNamed) {
    for (const std::string& name : selection.names) {
      for (Kernel* kernel : KernelsNamed(gemm.registry(), name)) {
        if (seen.insert(kernel).second) contenders.push_back(best_of(kernel));
      }
    }
    return contenders;
  }
  contenders.push_back(contender(*choice));
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

Status MeasureContenders(Gemm& gemm, const GemmDesc& desc, const MeasureOptions& options,
                         std::vector<Contender>& contenders) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const DeviceInfo& device = gemm.device();
  ScratchOptions scratch_options;
  // A quarter of the memory at most, where caches are that large.
  scratch_options.rotate_bytes = std::min(device.cache_bytes, device.memory_bytes / 4);
  Result<ScratchProblem> scratch = ScratchProblem::Create(device, desc, scratch_options);
  if (!scratch.ok()) return scratch.status();

  std::vector<Plans> plans(contenders.size());
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Contender& contender = contenders[i];
    if (!contender.status.ok()) continue;
    if (options.on_sample && !options.on_sample(0, contender)) return {};
    contender.status = Prepare(gemm, *scratch, contender, plans[i]);
  }

  // Each sample takes the next set, whichever kernel it is of, and each round starts with another
  // kernel: none profits from its predecessor.
  int set = 0;
  for (int round = 0; round < options.rounds; ++round) {
    double best_us = std::numeric_limits<double>::infinity();
    for (const Contender& contender : contenders) {
      if (contender.timed()) best_us = std::min(best_us, contender.MedianUs());
    }
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::size_t index = (i + static_cast<std::size_t>(round)) % contenders.size();
      Contender& contender = contenders[index];
      if (!contender.status.ok()) continue;
      if (options.drop_ratio > 0 && round >= 3 && !contender.is_choice &&
          contender.MedianUs() > options.drop_ratio * best_us) {
        continue;
      }
      if (options.on_sample &&
          !options.on_sample(static_cast<double>(round) / options.rounds, contender)) {
        return {};
      }
      set = (set + 1) % scratch->sets();
      const Result<double> time_us = TimeOnce(gemm, *scratch, plans[index], set);
      if (time_us.ok()) {
        contender.samples_us.push_back(*time_us);
      } else {
        contender.status = time_us.status();
      }
    }
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    if (options.budget_s > 0 && elapsed.count() >= options.budget_s) break;
  }
  return {};
}

}  // namespace culet::cli
