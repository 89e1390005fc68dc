// The small-M kernels as culet::Kernels: one for each compiled kernel and number of CTAs that a
// multiprocessor is to hold.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/fp8_swap.h"
#include "kernels/sm90/times.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::Fp8SwapKernel;
using sm90::Fp8SwapLaunch;

// Beyond, kernels with large tiles of A are the better family on every shape measured.
constexpr int kMaxRowsOfA = 256;
constexpr int kMaxTokenTiles = 4;

struct Planned : Fp8SwapLaunch {
  bool Rebind(const sm90::GemmOperands& o) {
    return sm90::RebindFp8Swap(o.a, o.scale_a, o.d, o.alpha, this);
  }
  bool AddsC() const { return false; }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchFp8Swap(*this, stream); }
};

class Fp8Swap final : public sm90::BlockScaledKernel<Planned> {
 public:
  Fp8Swap(const Fp8SwapKernel& kernel, int residency, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel), residency_(residency) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = sm90::WhyBlockScaled(p); !common.ok()) return common;
    if (p.align_a < 16 || p.align_b < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes (TMA)");
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    if (p.m > kMaxRowsOfA || CeilDiv(p.m, kernel_.tokens) > kMaxTokenTiles)
      return Feasibility::Refuse("made for fewer rows of A");
    if (CeilDiv(p.n, kernel_.rows()) > 65535) return Feasibility::Refuse("n is too large");
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    // Not the largest number that fits: more splits can leave fewer stages, then again more.
    const int k_blocks = CeilDiv(shape.z, 128);
    int splits = 1;
    while (sm90::Fp8SwapFits(kernel_, k_blocks, splits + 1, residency_)) ++splits;
    return splits;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    return sm90::Fp8SwapUs(p.pdl ? sm90::kFp8SwapDependent : sm90::kFp8SwapAlone,
                           sm90::ChipOf(device, rates, p.sm_budget), kernel_, residency_, splits,
                           sm90::ExtentsOf(p));
  }

 private:
  bool Plan(const GemmArgs& args, int, int splits, Planned* launch) const override {
    return sm90::PlanFp8Swap(kernel_, sm90::ToBlockScaled(args), splits, residency_, launch);
  }
  cudaError_t Load() const override { return sm90::LoadFp8Swap(kernel_); }

  const Fp8SwapKernel& kernel_;
  const int residency_;
};

}  // namespace

void AddSm90Fp8Swap(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const Fp8SwapKernel& kernel : sm90::Fp8SwapKernels()) {
    for (int residency = 1; residency <= 4; ++residency) {
      if ((kernel.residencies >> residency & 1) == 0) continue;
      KernelDesc desc = sm90::BlockScaledDesc(kernel.output_bytes);
      desc.tile_m = kernel.tokens, desc.tile_n = kernel.rows(), desc.tile_k = 128;
      desc.split_k = true;
      const int stages = sm90::Fp8SwapStages(kernel, 1 << 20, 1, residency);
      desc.stages = stages;
      KernelInfo info;
      info.name = std::string("sm90_fp8_swap/") + kernel.id + "/r" + std::to_string(residency);
      info.registers = kernel.registers;
      info.dynamic_smem_size = kernel.Layout(stages, 1).total;
      info.max_active_ctas = residency;
      info.chunk_size_k = 128;
      kernels.push_back(std::make_unique<Fp8Swap>(kernel, residency, desc, std::move(info)));
    }
  }
}

}  // namespace culet
