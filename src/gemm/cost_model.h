// The cost model: predicted microseconds from hardware rates, and what to measure first.
#pragma once

#include <span>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/dispatch_cache.h"
#include "culet/kernel.h"

namespace culet {

/// The least microseconds that the rates allow: the larger of bytes over bandwidth and operations
/// over the arithmetic rate.
double RooflineUs(const GemmDesc& desc, const HardwareRates& rates) noexcept;

/// Feasible kernels x swizzle x splits with predicted time_us, best first; equals keep the order of
/// `kernels`. Each spec is within GetMaxSwizzle and GetMaxSplits.
std::vector<LaunchSpec> EnumerateCandidates(std::span<Kernel* const> kernels, const GemmDesc& desc,
                                            const DeviceInfo& device, const HardwareRates& rates);

/// Scales the predictions of `candidates` by what was measured at the neighbouring batches, and
/// sorts anew: a kernel measured at 1.3 times its prediction there is expected at 1.3 times here.
/// Between two neighbours the factors are interpolated in the logarithm of the batch; kernels that
/// neither neighbour measured get the mean factor, so that one measured kernel does not look worse
/// than all unmeasured ones.
void AnchorOnNeighbours(const DispatchCache::Neighbours& neighbours, const GemmDesc& desc,
                        const DeviceInfo& device, const HardwareRates& rates,
                        std::vector<LaunchSpec>& candidates);

}  // namespace culet
