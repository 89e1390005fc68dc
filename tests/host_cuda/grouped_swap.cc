// The emulation has no wgmma: experts' products run in the portable kernel.
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/start.h"

namespace culet::sm90 {

std::span<const GroupedSwapKernel> GroupedSwapKernels() { return {}; }

const char* WhyNotGrouped(const GroupedProblem&, const FormatInfo&, bool) {
  return "the emulation has none";
}

bool PlanGroupedSwap(const GroupedSwapKernel&, const GroupedProblem&, int, int,
                     GroupedSwapLaunch*) {
  return false;
}

cudaError_t GroupedSwapLaunch::Start(cudaStream_t) const { return cudaErrorInvalidValue; }

bool GroupedSwapLaunch::BindRows(const void*) { return false; }

std::span<const GroupedSkinnyKernel> GroupedSkinnyKernels() { return {}; }

const char* WhyNotGroupedSkinny(const GroupedProblem&, const FormatInfo&, bool) {
  return "the emulation has none";
}

cudaError_t Load(const GroupedSkinnyKernel&) { return cudaErrorInvalidValue; }

GroupedSkinnyLaunch PlanGroupedSkinny(const GroupedSkinnyKernel&, const GroupedProblem&, int, int) {
  return {};
}

cudaError_t GroupedSkinnyLaunch::Start(cudaStream_t) const { return cudaErrorInvalidValue; }

// The emulation's LoadKernel is inline; those who know launch.h alone link this copy.
extern cudaError_t (*const load_kernel)(const void*, int);
cudaError_t (*const load_kernel)(const void*, int) = &LoadKernel;

}  // namespace culet::sm90
