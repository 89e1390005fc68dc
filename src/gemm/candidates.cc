// Which launches of which kernels come into question for a problem.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gemm/cost_model.h"

namespace culet {
namespace {

// What a workspace may grow to for the sake of splitting K: barriers for 2^18 tiles, partial sums
// of a 4096 x 4096 output in two parts. Splitting pays for small outputs only.
constexpr std::size_t kBarrierBytes = std::size_t{1} << 20;
constexpr std::size_t kPartialBytes = std::size_t{128} << 20;

// Tile rasters wider than 2^8 tiles exceed every cache.
constexpr int kMaxSwizzle = 8;

// Beyond this the model would have to be wrong by an order of magnitude; the models of the GPU's
// kernels are within 1.5.
constexpr double kHopeless = 8.0, kHopelessOnGpu = 3.0;

// 1 to 8 by ones, then four values an octave.
int NextSplits(int splits) noexcept { return splits + std::max(1, splits / 4); }

// A prediction that is no time sorts last.
double Sane(double time_us) noexcept {
  return time_us >= 0 ? time_us : std::numeric_limits<double>::infinity();
}

// What a kernel may offer at most; a library's heuristic stays far below.
constexpr int kMostVariants = 64;

// Errors: what the kernel threw, or why it has no variant.
Status AppendLaunches(Kernel& kernel, const GemmDesc& desc, const DeviceInfo& device,
                      const HardwareRates& rates, Asking asking,
                      std::vector<LaunchSpec>& candidates) {
  const int4 shape = ShapeOf(desc);
  const auto swizzles = MaxSwizzle(kernel, shape);
  if (!swizzles.ok()) return swizzles.status();
  const auto variants = asking == Asking::kAll ? Variants(kernel, desc) : Result<int>(1);
  if (!variants.ok()) return variants.status();
  for (int swizzle = 0; swizzle <= std::clamp(*swizzles, 0, kMaxSwizzle); ++swizzle) {
    const auto cuts = MaxSplits(kernel, shape, swizzle, kBarrierBytes, kPartialBytes);
    if (!cuts.ok()) return cuts.status();
    const int max_splits = std::clamp(*cuts, 1, std::max(1, desc.k));
    for (int splits = 1; splits <= max_splits; splits = NextSplits(splits)) {
      LaunchSpec spec;
      spec.kernel = &kernel;
      spec.swizzle = swizzle;
      spec.splits = splits;
      const auto append = [&] {
        spec.time_us =
            Sane(kernel.PredictUs(AsLaunched(desc, spec), device, rates, swizzle, splits));
        candidates.push_back(spec);
      };
      for (int variant = 0; variant < std::min(*variants, kMostVariants); ++variant) {
        spec.variant = variant;
        spec.serial = false;
        append();
        // What may overlap need not: the tuner finds where it costs time.
        spec.serial = desc.pdl && kernel.desc().pdl;
        if (spec.serial) append();
      }
    }
  }
  return {};
}

bool IsOf(const LaunchSpec& spec, Backend backend) {
  return spec.kernel != nullptr && spec.kernel->desc().backend == backend;
}

}  // namespace

std::vector<LaunchSpec> EnumerateCandidates(std::span<Kernel* const> kernels, const GemmDesc& desc,
                                            const DeviceInfo& device, const HardwareRates& rates,
                                            Asking asking) {
  std::vector<LaunchSpec> candidates;
  for (Kernel* kernel : kernels) {
    const std::size_t before = candidates.size();
    const bool taken = asking == Asking::kAll ? Takes(*kernel, desc) : kernel->is_feasible(desc);
    if (taken && !AppendLaunches(*kernel, desc, device, rates, asking, candidates).ok()) {
      candidates.resize(before);
    }
  }
  std::ranges::stable_sort(candidates, {}, &LaunchSpec::time_us);
  return candidates;
}

bool IsCandidate(const Kernel& kernel, const GemmDesc& desc) {
  return kernel.available().ok() && Variants(kernel, desc).ok();
}

std::string WhyNoCandidate(Kernel& kernel, const GemmDesc& desc) {
  if (std::string refusal = WhyNot(kernel, desc); !refusal.empty()) return refusal;
  std::vector<LaunchSpec> ignored;
  const Status status = AppendLaunches(kernel, desc, {}, {}, Asking::kAll, ignored);
  return status.ok() ? "feasible, but no launch parameters fit" : status.message();
}

std::vector<LaunchSpec> WorthMeasuring(std::span<const LaunchSpec> candidates, int max_candidates) {
  const std::size_t places = static_cast<std::size_t>(std::max(1, max_candidates));
  double best_us = std::numeric_limits<double>::infinity();
  for (const LaunchSpec& spec : candidates) {
    if (spec.time_us > 0) best_us = std::min(best_us, spec.time_us);
  }

  std::vector<bool> taken(candidates.size(), false);
  std::size_t count = 0;
  std::map<const Kernel*, std::size_t> launches;
  const auto take_where = [&](auto&& wanted) {
    for (std::size_t i = 0; i < candidates.size() && count < places; ++i) {
      const LaunchSpec& spec = candidates[i];
      if (taken[i] || !wanted(i, spec)) continue;
      taken[i] = true;
      ++count;
      ++launches[spec.kernel];
    }
  };
  const auto worth = [&](const LaunchSpec& spec) {
    if (IsOf(spec, Backend::kReference)) return false;
    const bool gpu = spec.kernel != nullptr && spec.kernel->desc().arch != 0;
    return spec.time_us <= (gpu ? kHopelessOnGpu : kHopeless) * best_us;
  };
  const std::size_t fair_share = std::max<std::size_t>(1, places / 4);
  take_where([](std::size_t i, const LaunchSpec&) { return i == 0; });
  take_where([&](std::size_t, const LaunchSpec& spec) {
    return IsOf(spec, Backend::kUser) && launches[spec.kernel] == 0;
  });
  take_where([&](std::size_t, const LaunchSpec& spec) {
    return worth(spec) && launches[spec.kernel] < fair_share;
  });
  take_where([&](std::size_t, const LaunchSpec& spec) { return worth(spec); });

  std::vector<LaunchSpec> kept;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (taken[i]) kept.push_back(candidates[i]);
  }
  return kept;
}

}  // namespace culet
