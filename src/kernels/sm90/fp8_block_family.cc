// The large-M kernels as culet::Kernels, one for each compiled kernel.
#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/fp8_block.h"
#include "kernels/sm90/times.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::Fp8BlockKernel;
using sm90::Fp8BlockLaunch;

constexpr int kMaxSwizzle = 4;  // supergroups of 16 tiles; wider ones measured no faster

struct Planned : Fp8BlockLaunch {
  bool Rebind(const void* a, const float* scale_a, void* d, float alpha) {
    return sm90::RebindFp8Block(a, scale_a, d, alpha, this);
  }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchFp8Block(*this, stream); }
};

class Fp8Block final : public sm90::BlockScaledKernel<Planned> {
 public:
  Fp8Block(const Fp8BlockKernel& kernel, int sms, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel), sms_(sms) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = sm90::WhyBlockScaled(p); !common.ok()) return common;
    if (p.align_a < 16 || p.align_b < 16 || p.align_d < 16)
      return Feasibility::Refuse(
          "A, B and D, pointers and rows, must be aligned to 16 bytes (TMA)");
    if (p.sm_budget > 0 && kernel_.split > 1)
      return Feasibility::Refuse("one tile a cluster; cannot keep to a budget");
    if (p.sm_budget > 0 && p.sm_budget < kernel_.cluster_size())
      return Feasibility::Refuse("a cluster needs more multiprocessors than the budget");
    if (CeilDiv(p.k, sm90::kBlockK) < kernel_.split)
      return Feasibility::Refuse("k is shorter than the split");
    return Feasibility::Ok();
  }

  int GetMaxSwizzle(const int4& shape) const override {
    if (kernel_.split > 1) return 0;
    const int tiles = CeilDiv(shape.x, kernel_.tile_m);
    int swizzle = 0;
    while (swizzle < kMaxSwizzle && (1 << swizzle) < tiles) ++swizzle;
    return swizzle;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int) const noexcept override {
    return sm90::Fp8BlockUs(sm90::kFp8Block, sm90::ChipOf(device, rates, p.sm_budget), kernel_,
                            swizzle, GetMaxSwizzle({p.m, p.n, p.k, 1}), p.pdl, sm90::ExtentsOf(p));
  }

 private:
  bool Plan(const GemmArgs& args, int swizzle, int, Planned* launch) const override {
    const int sms = args.operation.sm_budget > 0 ? std::min(sms_, args.operation.sm_budget) : sms_;
    return sm90::PlanFp8Block(kernel_, sm90::ToBlockScaled(args), swizzle, sms, launch);
  }
  cudaError_t Load() const override { return sm90::LoadFp8Block(kernel_); }

  const Fp8BlockKernel& kernel_;
  const int sms_;
};

}  // namespace

void AddSm90Fp8Block(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const Fp8BlockKernel& kernel : sm90::Fp8BlockKernels()) {
    KernelDesc desc = sm90::BlockScaledDesc(kernel.output_bytes);
    desc.tile_m = kernel.tile_m, desc.tile_n = kernel.tile_n, desc.tile_k = sm90::kBlockK;
    desc.cluster_m = kernel.cluster_m, desc.cluster_n = kernel.cluster_n;
    desc.stages = kernel.stages;
    KernelInfo info;
    info.name = kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size = kernel.smem_bytes;
    info.max_active_ctas = 1;
    info.chunk_size_k = sm90::kBlockK;
    kernels.push_back(std::make_unique<Fp8Block>(kernel, device.units, desc, std::move(info)));
  }
}

}  // namespace culet
