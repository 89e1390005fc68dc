// The skinny kernels as culet::Kernels.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/fp8_skinny.h"
#include "kernels/sm90/times.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::Fp8SkinnyKernel;
using sm90::Fp8SkinnyLaunch;

struct Planned : Fp8SkinnyLaunch {
  bool Rebind(const sm90::GemmOperands& o) {
    sm90::RebindFp8Skinny(o.a, o.scale_a, o.d, o.alpha, this);
    return true;
  }
  bool AddsC() const { return false; }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchFp8Skinny(*this, stream); }
};

class Fp8Skinny final : public sm90::BlockScaledKernel<Planned> {
 public:
  Fp8Skinny(const Fp8SkinnyKernel& kernel, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = sm90::WhyBlockScaled(p); !common.ok()) return common;
    if (p.m > sm90::kFp8SkinnyTokens) return Feasibility::Refuse("made for up to 8 rows of A");
    if (p.a.align < 16 || p.b.align < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes");
    if (p.k % 16 != 0) return Feasibility::Refuse("k must be a multiple of 16");
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    return sm90::Fp8SkinnyMaxSplits(kernel_, shape.z);
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    return sm90::Fp8SkinnyUs(p.pdl ? sm90::kFp8SkinnyDependent : sm90::kFp8SkinnyAlone,
                             sm90::ChipOf(device, rates, p.sm_budget), kernel_, splits, p.pdl,
                             sm90::ExtentsOf(p));
  }

 private:
  bool Plan(const GemmArgs& args, int, int splits, Planned* launch) const override {
    return sm90::PlanFp8Skinny(kernel_, sm90::ToBlockScaled(args), splits, launch);
  }
  cudaError_t Load() const override { return sm90::LoadFp8Skinny(kernel_); }

  const Fp8SkinnyKernel& kernel_;
};

}  // namespace

void AddSm90Fp8Skinny(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const Fp8SkinnyKernel& kernel : sm90::Fp8SkinnyKernels()) {
    KernelDesc desc = sm90::BlockScaledDesc(kernel.output_bytes);
    desc.tile_m = sm90::kFp8SkinnyTokens, desc.tile_n = kernel.rows, desc.tile_k = 128;
    desc.split_k = true;
    desc.stages = kernel.depth;
    const int warps = sm90::Fp8SkinnyRowGroups(1);  // where K is not split
    KernelInfo info;
    info.name = std::string("sm90_fp8_skinny/") + kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size =
        kernel.SmemBytes(warps, sm90::Fp8SkinnyRehearses(kernel, warps, false));
    info.max_active_ctas = sm90::Fp8SkinnyResidentCtas(kernel, warps, false);
    info.chunk_size_k = 128;
    kernels.push_back(std::make_unique<Fp8Skinny>(kernel, desc, std::move(info)));
  }
}

}  // namespace culet
