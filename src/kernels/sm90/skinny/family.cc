// The skinny kernels as culet::Kernels.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/product_kernel.h"
#include "kernels/sm90/skinny/fused.h"
#include "kernels/sm90/skinny/skinny.h"
#include "kernels/sm90/times/times.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::EpilogueKind;
using sm90::SkinnyKernel;
using sm90::SkinnyLaunch;

class PreparedFused final : public PreparedFusedProduct {
 public:
  explicit PreparedFused(const sm90::FusedSkinnyLaunch& launch) : launch_(launch) {}

  cudaError_t Launch(const FusedProductPointers& pointers,
                     cudaStream_t stream) const noexcept override {
    sm90::FusedSkinnyLaunch launch = launch_;
    launch.params.x = pointers.x;
    launch.params.y = pointers.y;
    launch.params.sum = pointers.sum;
    launch.params.d = pointers.D;
    return launch.Start(stream);
  }

 private:
  const sm90::FusedSkinnyLaunch launch_;
};

sm90::SkinnyFusion FusionOf(const ProductFusion& fusion) {
  return fusion.gated ? sm90::SkinnyFusion::kNormGated : sm90::SkinnyFusion::kNorm;
}

class Skinny final : public sm90::ProductKernel<SkinnyLaunch>, public FusesProducts {
 public:
  Skinny(const SkinnyKernel& kernel, KernelDesc desc, KernelInfo info)
      : ProductKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    const Feasibility common = sm90::WhyProduct(p, *kernel_.format, kernel_.epilogue);
    if (!common.ok()) return common;
    const int bytes = kernel_.format->element_bytes;
    if (p.k > std::numeric_limits<int>::max() / bytes - 1024)
      return Feasibility::Refuse("a row of K must stay 1024 below 2^31 bytes");
    if (p.m > sm90::kSkinnyTokens) return Feasibility::Refuse("made for up to 8 rows of A");
    if (p.a.align < 16 || p.b.align < 16)
      return Feasibility::Refuse("A and B, pointers and rows, must be aligned to 16 bytes");
    if (p.a.pitch != Pitch::kShort || p.b.pitch != Pitch::kShort)
      return Feasibility::Refuse("rows of A and B must lie less than 2^31 bytes apart");
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
    return sm90::SkinnyUs(direct ? (p.pdl ? sm90::kDirectSkinnyDependent : sm90::kDirectSkinnyAlone)
                                 : (p.pdl ? sm90::kFp8SkinnyDependent : sm90::kFp8SkinnyAlone),
                          sm90::ChipOf(device, rates, p.sm_budget), kernel_, splits, p.pdl,
                          sm90::ExtentsOf(p));
  }

  Feasibility WhyFused(const GemmDesc& p, const ProductFusion& fusion,
                       int splits) const noexcept override {
    const SkinnyKernel* const twin = sm90::FusedSkinnyTwin(kernel_, FusionOf(fusion));
    if (twin == nullptr) return Feasibility::Refuse("has no fused twin");
    if (p.c.type != DataType::kNull) return Feasibility::Refuse("a fused launch does not add C");
    if (fusion.gated && p.type_bias != DataType::kNull)
      return Feasibility::Refuse("a gated launch does not add a bias");
    if (fusion.gated && p.n % 16 != 0)
      return Feasibility::Refuse("halves of a gated launch must be multiples of 8 columns");
    const bool stored = fusion.gamma_type == DataType::kBfloat16 ||
                        fusion.gamma_type == DataType::kFloat16 ||
                        fusion.gamma_type == DataType::kFloat32;
    if (!stored) return Feasibility::Refuse("takes gamma in 16 or 32 bits");
    if (splits < 1 || splits > sm90::SkinnyMaxSplits(*twin, p.k))
      return Feasibility::Refuse("cannot split K so");
    const int warps = splits * sm90::SkinnyRowGroups(splits), rings = warps * twin->WarpBytes(p.m);
    const int beside =
        sm90::FusedSkinnyBeside(*twin, p.m, p.k, fusion.gamma_type, warps, rings, nullptr);
    if (rings + beside > sm90::kSmemPerCta)
      return Feasibility::Refuse("the rows do not fit in shared memory");
    return Feasibility::Ok();
  }

  double PredictFusedUs(const GemmDesc& p, const ProductFusion& fusion, const DeviceInfo& device,
                        const HardwareRates& rates, int splits) const noexcept override {
    const int groups = sm90::SkinnyRowGroups(splits);
    return PredictUs(p, device, rates, 0, splits) +
           sm90::SkinnyNormUs(CeilDiv(p.n, kernel_.rows() * groups), sm90::ExtentsOf(p),
                              fusion.adds);
  }

  Result<std::unique_ptr<PreparedFusedProduct>> PrepareFused(const GemmArgs& args,
                                                             const ProductFusion& fusion,
                                                             int splits) const override {
    const SkinnyKernel* const twin = sm90::FusedSkinnyTwin(kernel_, FusionOf(fusion));
    sm90::FusedSkinnyLaunch launch;
    if (twin == nullptr ||
        !sm90::PlanFusedSkinny(*twin, sm90::ToProduct(args), fusion, splits, &launch)) {
      return Status(StatusCode::kInvalidArgument, id() + ": does not fuse these operands");
    }
    if (const cudaError_t error = sm90::Load(*twin); error != cudaSuccess) {
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    }
    return std::unique_ptr<PreparedFusedProduct>(std::make_unique<PreparedFused>(launch));
  }

 private:
  bool Plan(const GemmArgs& args, int, int splits, SkinnyLaunch* launch) const override {
    return sm90::PlanSkinny(kernel_, sm90::ToProduct(args), splits, launch);
  }
  cudaError_t Load() const override { return sm90::Load(kernel_); }

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
    constexpr int kMost = sm90::kSkinnyTokens;
    info.dynamic_smem_size =
        kernel.SmemBytes(warps, kMost, sm90::SkinnyRehearses(kernel, warps, kMost, false));
    info.max_active_ctas = sm90::SkinnyResidentCtas(kernel, warps, kMost, false);
    info.chunk_size_k = kernel.block_k();
    kernels.push_back(std::make_unique<Skinny>(kernel, desc, std::move(info)));
  }
}

}  // namespace culet
