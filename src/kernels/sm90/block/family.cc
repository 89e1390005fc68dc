// The large-M kernels as culet::Kernels, one for each compiled kernel.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block/block.h"
#include "kernels/sm90/product/padded.h"
#include "kernels/sm90/product/product_kernel.h"
#include "kernels/sm90/product/quantised.h"
#include "kernels/sm90/times/times.h"

namespace culet {
namespace {

using sm90::BlockKernel;
using sm90::BlockLaunch;
using sm90::CeilDiv;
using sm90::EpilogueKind;

constexpr int kMaxSwizzle = 4;  // supergroups of 16 tiles; wider ones measured no faster

KernelDesc DescOf(const BlockKernel& kernel) {
  KernelDesc desc = sm90::DescOf(*kernel.format, kernel.epilogue, kernel.output_bytes);
  desc.tile_m = kernel.tile_m, desc.tile_n = kernel.tile_n, desc.tile_k = kernel.block_k();
  desc.cluster_m = kernel.cluster_m, desc.cluster_n = kernel.cluster_n;
  desc.stages = kernel.stages;
  desc.gate_halves = IsGated(kernel.epilogue);
  return desc;
}

class Block final : public sm90::ProductKernel<BlockLaunch> {
 public:
  Block(const BlockKernel& kernel, int sms, KernelDesc desc, KernelInfo info)
      : ProductKernel(desc, std::move(info)), kernel_(kernel), sms_(sms) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    const Feasibility common = sm90::WhyProduct(p, *kernel_.format, kernel_.epilogue);
    if (!common.ok()) return common;
    const Feasibility promoted = sm90::WhyPromoted(p, *kernel_.format);
    if (!promoted.ok() && !kernel_.copies) return promoted;  // which sm90_fp8_fast has none of
    if (kernel_.epilogue == EpilogueKind::kGatedQuant && p.d.scale_type != DataType::kFloat32)
      return Feasibility::Refuse("gives D FP32 scales");
    if (const Feasibility halves = sm90::WhyHalves(p, *kernel_.format); !halves.ok()) return halves;
    if (p.k > std::numeric_limits<int>::max() / kernel_.format->element_bytes - 1024)
      return Feasibility::Refuse("a row of K must stay 1024 below 2^31 bytes");
    if (p.c.type != DataType::kNull && p.c.align < (p.c.type == DataType::kFloat32 ? 8 : 16))
      return Feasibility::Refuse("C, pointer and rows, must be aligned to 16 bytes, of F32 to 8");
    if (kernel_.copies) {
      if (std::min(p.a.align, p.b.align) < 4)
        return Feasibility::Refuse("rows of A and B must lie on 4 bytes, to be copied");
      if (std::min({p.a.align, p.b.align, p.d.align}) >= 16)
        return Feasibility::Refuse("leaves rows on 16 bytes to kernels that load them by TMA");
    } else if (p.a.align < 16 || p.b.align < 16 || p.d.align < 16)
      return Feasibility::Refuse(
          "A, B and D, pointers and rows, must be aligned to 16 bytes (TMA)");
    if (p.sm_budget > 0 && kernel_.split > 1)
      return Feasibility::Refuse("one tile a cluster; cannot keep to a budget");
    if (p.sm_budget > 0 && p.sm_budget < kernel_.cluster_size())
      return Feasibility::Refuse("a cluster needs more multiprocessors than the budget");
    if (CeilDiv(p.k, kernel_.block_k()) < kernel_.split)
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
    // Measured 2.1 to 2.5 times the time of aligned rows: n = k = 4104 beside 4096.
    constexpr double kCopies = 2.2;
    return (kernel_.copies ? kCopies : 1.0) *
           sm90::BlockUs(
               kernel_.format->sums == sm90::Sums::kDirect ? sm90::kDirectBlock : sm90::kFp8Block,
               sm90::ChipOf(device, rates, p.sm_budget), kernel_, swizzle,
               GetMaxSwizzle({p.m, p.n, p.k, 1}), p.pdl, sm90::ExtentsOf(p));
  }

 private:
  bool Plan(const GemmArgs& args, int swizzle, int, BlockLaunch* launch) const override {
    const int sms = args.operation.sm_budget > 0 ? std::min(sms_, args.operation.sm_budget) : sms_;
    return sm90::PlanBlock(kernel_, sm90::ToProduct(args), swizzle, sms, launch);
  }
  cudaError_t Load() const override { return sm90::Load(kernel_); }

  const BlockKernel& kernel_;
  const int sms_;
};

}  // namespace

void AddSm90Block(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const BlockKernel& kernel : sm90::BlockKernels()) {
    KernelInfo info;
    info.name = kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size = kernel.smem_bytes;
    info.max_active_ctas = 1;
    info.chunk_size_k = kernel.block_k();
    auto added = std::make_unique<Block>(kernel, device.units, DescOf(kernel), std::move(info));
    Block& block = *added;
    sm90::Add(std::move(added), device.units, kernels);
    // Clusters and turns gain a few percent, less than the copies cost: their twins would only be
    // more to choose from.
    const bool usual = kernel.cluster_m * kernel.cluster_n == 1 && kernel.turns == 1;
    if (usual && !kernel.copies) sm90::AddPadded(block, device.units, kernels);
  }
}

}  // namespace culet
