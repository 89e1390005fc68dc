// The cost model: predicted microseconds from hardware rates, and what to measure first.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/dispatch_cache.h"
#include "culet/kernel.h"

namespace culet {

/// The least microseconds that the rates allow: the larger of bytes over bandwidth and operations
/// over the arithmetic rate.
double RooflineUs(const GemmDesc& desc, const HardwareRates& rates) noexcept;

/// Whether Kernel::Probe and GetVariants are called, which may load a library.
enum class Asking { kAll, kNobody };

/// Feasible, available kernels x swizzle x splits x variants with predicted time_us, best first;
/// equals keep the order of `kernels`. Each spec is within GetMaxSwizzle, GetMaxSplits and
/// GetVariants; a kernel that throws there, or has no variant, is left out. Where nobody is asked,
/// every feasible kernel counts as available, with variant 0: see IsCandidate.
std::vector<LaunchSpec> EnumerateCandidates(std::span<Kernel* const> kernels, const GemmDesc& desc,
                                            const DeviceInfo& device, const HardwareRates& rates,
                                            Asking asking = Asking::kAll);

/// Whether a feasible kernel is also available and has a variant; calls both functions.
bool IsCandidate(const Kernel& kernel, const GemmDesc& desc);

/// Why a kernel is not among them, though it may call the problem feasible: what it threw.
std::string WhyNoCandidate(Kernel& kernel, const GemmDesc& desc);

/// The candidates worth measuring, in the same order, at most `max_candidates`. The first, the
/// default, is always among them. The reference is left out, and so is what is predicted at more
/// than eight times the best. A kernel takes at most a quarter of the places while others wait,
/// since the model ranks variants of one kernel better than kernels. The best variant of a user's
/// kernel comes first, because its author may have stated no costs. A time_us of 0 is unknown.
std::vector<LaunchSpec> WorthMeasuring(std::span<const LaunchSpec> candidates, int max_candidates);

/// Scales the predictions of `candidates` by what was measured at the neighbouring batches, and
/// sorts anew: a kernel measured at 1.3 times its prediction there is expected at 1.3 times here. A
/// kernel that lost there gets the winner's factor, since the model's errors are mostly common to
/// all kernels, or a larger one if it would otherwise have won there. Between two neighbours the
/// factors are interpolated in the logarithm of the batch.
void AnchorOnNeighbours(const DispatchCache::Neighbours& neighbours, const GemmDesc& desc,
                        const DeviceInfo& device, const HardwareRates& rates,
                        std::vector<LaunchSpec>& candidates);

}  // namespace culet
