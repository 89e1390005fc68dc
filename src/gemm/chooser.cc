#include "gemm/chooser.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "culet/grouped_class.h"
#include "gemm/cost_model.h"

namespace culet {
namespace {

// A remembered prediction costs a map node; problems whose batch varies freely must not grow the
// map for ever.
constexpr std::size_t kMaxRemembered = 4096;

// Whether a measured spec may serve `desc`: it may come from another batch, or from a file.
bool Serves(const LaunchSpec& spec, const GemmDesc& desc) {
  if (spec.kernel == nullptr || spec.origin != Origin::kMeasured) return false;
  if (!Takes(*spec.kernel, desc)) return false;
  const int4 shape = ShapeOf(desc);
  const auto max_swizzle = MaxSwizzle(*spec.kernel, shape);
  if (!max_swizzle.ok() || spec.swizzle < 0 || spec.swizzle > *max_swizzle) return false;
  constexpr std::size_t kAnySize = static_cast<std::size_t>(-1);
  const auto max_splits = MaxSplits(*spec.kernel, shape, spec.swizzle, kAnySize, kAnySize);
  return max_splits.ok() && spec.splits >= 1 && spec.splits <= *max_splits;
}

// A problem with pdl that was not measured uses the measurement without pdl.
GemmDesc WithoutPdl(GemmDesc desc) noexcept {
  desc.pdl = false;
  return desc;
}

}  // namespace

DataType RateType(const GemmDesc& desc) noexcept {
  return BitsOf(desc.a.type) >= BitsOf(desc.b.type) ? desc.a.type : desc.b.type;
}

Status NoKernelFor(const GemmDesc& desc, const Registry& registry) {
  std::string reasons;
  for (Kernel* kernel : registry.kernels()) {
    if (kernel->desc().grouped != IsGrouped(desc)) continue;
    reasons += fmt::format("\n  {}: {}", kernel->id(), WhyNoCandidate(*kernel, desc));
  }
  if (reasons.empty()) {
    reasons = IsGrouped(desc) ? "; grouped products have kernels for GPUs of compute capability "
                                "9.0: call one product a group"
                              : "; the registry is empty";
  }
  return Status(StatusCode::kUnsupported,
                fmt::format("no registered kernel takes {}{}", ToString(desc), reasons));
}

bool Chooser::FindMeasured(const GemmDesc& desc, LaunchSpec& spec) const {
  const auto found = cache_.Find(desc);
  if (!found || !Serves(*found, desc) || failures_.Has(desc, *found)) return false;
  spec = *found;
  return true;
}

CacheLayer Chooser::LayerOf(const GemmDesc& desc) const {
  auto layer = cache_.LayerOf(desc);
  if (!layer && desc.pdl) layer = cache_.LayerOf(WithoutPdl(desc));
  return layer.value_or(CacheLayer::kUser);
}

std::vector<LaunchSpec> Chooser::Candidates(const GemmDesc& desc, bool* anchored,
                                            Asking asking) const {
  const HardwareRates& rates = this->rates(RateType(desc));
  auto candidates = EnumerateCandidates(registry_.kernels(), desc, device_, rates, asking);
  const auto known = [](const DispatchCache::Neighbours& neighbours) {
    return neighbours.below.has_value() || neighbours.above.has_value();
  };
  auto neighbours = cache_.FindNeighbours(desc);
  if (desc.pdl && !known(neighbours)) neighbours = cache_.FindNeighbours(WithoutPdl(desc));
  const bool any = known(neighbours);
  if (any) AnchorOnNeighbours(neighbours, desc, device_, rates, candidates);
  // First the launch that would run untuned under pdl, then the same launch as it was measured
  // without: so tuning under pdl cannot lose.
  if (LaunchSpec plain; desc.pdl && FindMeasured(WithoutPdl(desc), plain)) {
    for (const bool serial : {true, false}) {
      plain.serial = serial;
      const auto same = std::ranges::find_if(
          candidates, [&](const LaunchSpec& candidate) { return SameLaunch(candidate, plain); });
      if (same != candidates.end()) std::rotate(candidates.begin(), same, same + 1);
    }
  }
  if (anchored != nullptr) *anchored = any;
  for (const PrepareFailures::Failure& failure : failures_.Of(desc)) {
    const auto failed = std::ranges::find_if(candidates, [&](const LaunchSpec& candidate) {
      return SameLaunch(candidate, failure.spec);
    });
    if (failed != candidates.end()) std::rotate(failed, failed + 1, candidates.end());
  }
  return candidates;
}

std::vector<LaunchSpec> Chooser::LongLaunch(const GemmDesc& desc,
                                            const std::vector<LaunchSpec>& candidates) const {
  // Overlap saves one or two microseconds. For so long a launch that is less than two samples
  // differ by at the power limit, so the best of all would be found by luck.
  constexpr double kLongUs = 500;
  std::vector<LaunchSpec> same;
  LaunchSpec plain;
  if (!desc.pdl || !FindMeasured(WithoutPdl(desc), plain) || plain.time_us < kLongUs) return same;
  for (const LaunchSpec& candidate : candidates) {
    plain.serial = candidate.serial;
    if (SameLaunch(candidate, plain)) same.push_back(candidate);
  }
  return same;
}

Result<Choice> Chooser::Choose(const GemmDesc& desc, bool reuse_below) {
  Choice choice;
  if (FindMeasured(desc, choice.spec) ||
      (desc.pdl && FindMeasured(WithoutPdl(desc), choice.spec) && Serves(choice.spec, desc) &&
       !failures_.Has(desc, choice.spec))) {
    choice.source = ChoiceSource::kCacheExact;
    return choice;
  }
  if (reuse_below) {
    if (const auto below = cache_.LowerBound(desc);
        below && Serves(*below, desc) && !failures_.Has(desc, *below)) {
      return Choice{*below, ChoiceSource::kCacheReused};
    }
  }
  const std::uint64_t generation = cache_.generation();
  {
    const std::lock_guard lock(mutex_);
    if (remembered_generation_ != generation || remembered_.size() >= kMaxRemembered) {
      remembered_.clear();
      remembered_generation_ = generation;
    }
    if (const auto it = remembered_.find(desc); it != remembered_.end()) return it->second;
  }
  bool anchored = false;
  // A library is opened when it would win a product, not for every problem that it might take.
  const Asking asking = failures_.Of(desc).empty() ? Asking::kNobody : Asking::kAll;
  const auto candidates = Candidates(desc, &anchored, asking);
  const auto first = std::ranges::find_if(
      candidates, [&](const LaunchSpec& spec) { return IsCandidate(*spec.kernel, desc); });
  if (first == candidates.end()) return NoKernelFor(desc, registry_);
  choice = {*first, anchored ? ChoiceSource::kNeighbours : ChoiceSource::kCostModel};
  const std::lock_guard lock(mutex_);
  if (remembered_generation_ == generation) remembered_.emplace(desc, choice);
  return choice;
}

void Chooser::NotePrepared(const GemmDesc& desc, const LaunchSpec& spec, const Status& said) {
  if (failures_.Note(desc, spec, said)) Forget();
}

void Chooser::Forget() {
  const std::lock_guard lock(mutex_);
  remembered_.clear();
}

}  // namespace culet
