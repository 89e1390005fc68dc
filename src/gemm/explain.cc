#include "gemm/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "culet/grouped_class.h"
#include "gemm/cost_model.h"

namespace culet {
namespace {

// Why a feasible kernel is not the choice.
std::string WhySlower(Kernel* kernel, const std::vector<LaunchSpec>& candidates,
                      const Explanation& explanation) {
  const auto best = std::ranges::find(candidates, kernel, &LaunchSpec::kernel);
  if (best == candidates.end()) return WhyNoCandidate(*kernel, explanation.desc);
  const LaunchSpec& choice = explanation.choice;
  if (best->time_us >= explanation.predicted_us) {
    return fmt::format("predicted {:.4g} us, {:.2f} times the choice's prediction", best->time_us,
                       best->time_us / explanation.predicted_us);
  }
  // Measurement overruled the model.
  return fmt::format(
      "predicted {:.4g} us, less than the choice's {:.4g} us, but {} won when "
      "measured ({:.4g} us)",
      best->time_us, explanation.predicted_us, choice.kernel->id(), choice.time_us);
}

// Why a launch that its kernel accepts is not the choice.
std::string WhyUnprepared(const PrepareFailures::Failure& failure) {
  const LaunchSpec& spec = failure.spec;
  std::string launch;
  if (spec.swizzle != 0) launch += fmt::format(" swizzle {}", spec.swizzle);
  if (spec.splits != 1) launch += fmt::format(" splits {}", spec.splits);
  if (spec.variant != 0) launch += fmt::format(" variant {}", spec.variant);
  return fmt::format("could not be prepared{}{}: {}", launch.empty() ? "" : " with", launch,
                     failure.reason.message());
}

}  // namespace

Result<Explanation> Explain(Chooser& chooser, const Registry& registry, const DeviceInfo& device,
                            const GemmDesc& desc) {
  auto choice = chooser.Choose(desc, false);
  if (!choice) return choice.status();
  Explanation explanation;
  explanation.desc = desc;
  explanation.choice = choice->spec;
  explanation.source = choice->source;
  if (choice->source == ChoiceSource::kCacheExact) explanation.layer = chooser.LayerOf(desc);
  const HardwareRates& rates = chooser.rates(RateType(desc));
  const LaunchSpec& spec = choice->spec;
  // Next to a measurement the uncorrected prediction is shown; corrected by that entry it would
  // only repeat it.
  const auto candidates = choice->source == ChoiceSource::kCacheExact
                              ? EnumerateCandidates(registry.kernels(), desc, device, rates)
                              : chooser.Candidates(desc);
  const auto same = std::ranges::find_if(
      candidates, [&](const LaunchSpec& candidate) { return SameLaunch(candidate, spec); });
  explanation.predicted_us = same != candidates.end()
                                 ? same->time_us
                                 : spec.kernel->PredictUs(AsLaunched(desc, spec), device, rates,
                                                          spec.swizzle, spec.splits);
  explanation.roofline_us = RooflineUs(desc, rates);
  if (spec.time_us > 0) explanation.roofline_share = explanation.roofline_us / spec.time_us;
  const auto failures = chooser.failures().Of(desc);
  for (Kernel* kernel : registry.kernels()) {
    if (kernel->desc().grouped != IsGrouped(desc)) continue;
    const auto failed = std::ranges::find(failures, kernel,
                                          [](const auto& failure) { return failure.spec.kernel; });
    if (failed != failures.end()) {
      explanation.rejected.push_back({kernel->id(), true, WhyUnprepared(*failed)});
      continue;
    }
    if (kernel == spec.kernel) continue;
    std::string reason = WhyNot(*kernel, desc);
    const bool feasible = reason.empty();
    if (feasible) reason = WhySlower(kernel, candidates, explanation);
    explanation.rejected.push_back({kernel->id(), feasible, std::move(reason)});
  }
  return explanation;
}

std::string Explanation::ToString() const {
  std::string text = fmt::format("{}\n  choice    {}", culet::ToString(desc), choice.kernel->id());
  if (choice.swizzle != 0) text += fmt::format(" swizzle {}", choice.swizzle);
  if (choice.splits != 1) text += fmt::format(" splits {}", choice.splits);
  if (choice.variant != 0) text += fmt::format(" variant {}", choice.variant);
  if (choice.serial) text += " serial";
  text += fmt::format(" ({}{})\n", culet::ToString(source),
                      layer == CacheLayer::kShipped ? ", shipped with culet"
                      : layer == CacheLayer::kSite  ? ", the site's"
                                                    : "");
  if (choice.origin == Origin::kMeasured) {
    text +=
        fmt::format("  measured  {:.4g} us (spread {:.2g} us", choice.time_us, choice.spread_us);
    if (choice.baseline_us > 0) {
      text += fmt::format(", default {:.4g} us in the same run", choice.baseline_us);
    }
    text += IsNoisy(choice) ? "; too noisy to mean much, tune again)\n" : ")\n";
  }
  text += fmt::format("  predicted {:.4g} us\n  roofline  {:.4g} us, reached to {:.0f} %\n",
                      predicted_us, roofline_us, 100 * roofline_share);
  std::size_t width = 0;
  for (const Rejected& r : rejected) width = std::max(width, r.kernel_id.size());
  for (const Rejected& r : rejected) {
    text += fmt::format("  not {:<{}}  {}\n", r.kernel_id, width, r.reason);
  }
  return text;
}

}  // namespace culet
