// The skinny kernels as culet::Kernels.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/skinny.h"
#include "kernels/sm90/times.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::EpilogueKind;
using sm90::SkinnyKernel;
using sm90::SkinnyLaunch;

struct Planned : SkinnyLaunch {
  bool Rebind(const sm90::GemmOperands& operands) {
    sm90::RebindSkinny(operands, this);
    return true;
  }
  bool AddsC() const { return kernel->epilogue == EpilogueKind::kGeneral; }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchSkinny(*this, stream); }
};

class Skinny final : public sm90::BlockScaledKernel<Planned> {
 public:
  Skinny(const SkinnyKernel& kernel, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    const Feasibility common =
        kernel_.epilogue == EpilogueKind::kGeneral ? sm90::WhyGeneral(p) : sm90::WhyBlockScaled(p);
    if (!common.ok()) return common;
    const Feasibility scales = sm90::WhyScales(p, *kernel_.format);
    if (!scales.ok()) return scales;
    const int bytes = kernel_.format->element_bytes;
    if (p.k > std::numeric_limits<int>::max() / bytes - 1024)
      return Feasibility::Refuse("a row of K must stay 1024 below 2^31 bytes");
    if (p.m > sm90::kSkinnyTokens) return Feasibility::Refuse("made for up to 8 rows of A");
    if (p.a.align < 16 || p.b.align < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes");
    if (p.k * bytes % 16 != 0)
      return Feasibility::Refuse("a row of K must be a multiple of 16 bytes");
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    return sm90::SkinnyMaxSplits(kernel_, shape.z);
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    const bool direct = kernel_.format->sums == sm90::Sums::kDirect;
    return sm90::Fp8SkinnyUs(
        direct ? (p.pdl ? sm90::kDirectSkinnyDependent : sm90::kDirectSkinnyAlone)
               : (p.pdl ? sm90::kFp8SkinnyDependent : sm90::kFp8SkinnyAlone),
        sm90::ChipOf(device, rates, p.sm_budget), kernel_, splits, p.pdl, sm90::ExtentsOf(p));
  }

 private:
  bool Plan(const GemmArgs& args, int, int splits, Planned* launch) const override {
    return sm90::PlanSkinny(kernel_, sm90::ToBlockScaled(args), splits, launch);
  }
  cudaError_t Load() const override { return sm90::LoadSkinny(kernel_); }

  const SkinnyKernel& kernel_;
};

}  // namespace

void AddSm90Skinny(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const SkinnyKernel& kernel : sm90::SkinnyKernels()) {
    KernelDesc desc = kernel.epilogue == EpilogueKind::kGeneral
                          ? sm90::GeneralDesc(*kernel.format)
                          : sm90::BlockScaledDesc(kernel.output_bytes());
    desc.tile_m = sm90::kSkinnyTokens, desc.tile_n = kernel.rows(), desc.tile_k = kernel.block_k();
    desc.split_k = true;
    desc.stages = kernel.depth();
    desc.accumulator_bits = 24, desc.promotion_k = 0;  // mma adds in FP32, E4M3 as F16
    const int warps = sm90::SkinnyRowGroups(1);        // where K is not split
    KernelInfo info;
    info.name = kernel.Id();
    info.registers = kernel.registers();
    info.dynamic_smem_size = kernel.SmemBytes(warps, sm90::SkinnyRehearses(kernel, warps, false));
    info.max_active_ctas = sm90::SkinnyResidentCtas(kernel, warps, false);
    info.chunk_size_k = kernel.block_k();
    kernels.push_back(std::make_unique<Skinny>(kernel, desc, std::move(info)));
  }
}

}  // namespace culet
