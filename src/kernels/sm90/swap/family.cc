// The small-M kernels as culet::Kernels: one for each compiled kernel and number of CTAs that a
// multiprocessor is to hold.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/product/padded.h"
#include "kernels/sm90/product/product_kernel.h"
#include "kernels/sm90/product/quantised.h"
#include "kernels/sm90/swap/swap.h"
#include "kernels/sm90/times/times.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::EpilogueKind;
using sm90::SwapKernel;
using sm90::SwapLaunch;

constexpr int kMaxGrid = 65535;  // along y and z

class Swap final : public sm90::ProductKernel<SwapLaunch> {
 public:
  Swap(const SwapKernel& kernel, int residency, KernelDesc desc, KernelInfo info)
      : ProductKernel(desc, std::move(info)), kernel_(kernel), residency_(residency) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    const Feasibility common = sm90::WhyProduct(p, *kernel_.format, kernel_.epilogue);
    if (!common.ok()) return common;
    const Feasibility promoted = sm90::WhyPromoted(p, *kernel_.format);
    if (!promoted.ok()) return promoted;
    if (p.k > std::numeric_limits<int>::max() / kernel_.format->element_bytes - 1024)
      return Feasibility::Refuse("a row of K must stay 1024 below 2^31 bytes");
    if (p.a.align < 16 || p.b.align < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes (TMA)");
    if (kernel_.epilogue == EpilogueKind::kGatedQuant) {
      if (p.d.scale_type != DataType::kFloat32) return Feasibility::Refuse("gives D FP32 scales");
      if (p.n % (kernel_.sharers() * kernel_.rows()) != 0)
        return Feasibility::Refuse("n must be a multiple of 256: clusters have whole scales of D");
    }
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    if (CeilDiv(p.m, kernel_.tokens()) > kMaxGrid) return Feasibility::Refuse("m is too large");
    if (CeilDiv(p.n, kernel_.rows()) > kMaxGrid) return Feasibility::Refuse("n is too large");
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    // Not the largest number that fits: more splits can leave fewer stages, then again more.
    const int k_blocks = CeilDiv(shape.z, kernel_.block_k());
    int splits = 1;
    while (sm90::SwapFits(kernel_, k_blocks, splits + 1, residency_)) ++splits;
    return splits;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    return sm90::SwapUs(
        kernel_.format->sums == sm90::Sums::kDirect ? sm90::kDirectSwap : sm90::kFp8Swap,
        sm90::ChipOf(device, rates, p.sm_budget), kernel_, residency_, splits, p.pdl,
        sm90::ExtentsOf(p));
  }

 private:
  bool Plan(const GemmArgs& args, int, int splits, SwapLaunch* launch) const override {
    return sm90::PlanSwap(kernel_, sm90::ToProduct(args), splits, residency_, launch);
  }
  cudaError_t Load() const override { return sm90::Load(kernel_); }

  const SwapKernel& kernel_;
  const int residency_;
};

}  // namespace

void AddSm90Swap(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const SwapKernel& kernel : sm90::SwapKernels()) {
    for (int residency = 1; residency <= sm90::kSwapMaxResidency; ++residency) {
      if ((kernel.instance.residencies >> residency & 1) == 0) continue;
      KernelDesc desc = sm90::DescOf(*kernel.format, kernel.epilogue, kernel.output_bytes());
      desc.tile_m = kernel.tokens(), desc.tile_n = kernel.rows(), desc.tile_k = kernel.block_k();
      desc.split_k = true;
      const int stages = sm90::SwapStages(kernel, 1 << 20, 1, residency);
      desc.stages = stages;
      KernelInfo info;
      info.name = kernel.Id(residency);
      info.registers = kernel.instance.registers;
      info.dynamic_smem_size = kernel.layout.Total(stages, 1);
      info.max_active_ctas = residency;
      info.chunk_size_k = kernel.block_k();
      auto added = std::make_unique<Swap>(kernel, residency, desc, std::move(info));
      Swap& swap = *added;
      sm90::Add(std::move(added), device.units, kernels);
      // More CTAs gain less than the copies cost: their twins would only be more to choose from.
      if (residency <= 2) sm90::AddPadded(swap, device.units, kernels);
    }
  }
}

}  // namespace culet
