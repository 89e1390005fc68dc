// The large-M kernels as culet::Kernels, one for each compiled kernel.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_kernel.h"
#include "kernels/sm90/large_m.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::LargeMKernel;
using sm90::LargeMLaunch;

constexpr int kMaxSwizzle = 4;  // supergroups of 16 tiles; wider ones measured no faster

struct Planned : LargeMLaunch {
  bool Rebind(const void* a, const float* scale_a, void* d, float alpha) {
    return sm90::RebindLargeM(a, scale_a, d, alpha, this);
  }
  cudaError_t Start(cudaStream_t stream) const { return sm90::LaunchLargeM(*this, stream); }
};

class LargeM final : public sm90::BlockScaledKernel<Planned> {
 public:
  LargeM(const LargeMKernel& kernel, int sms, KernelDesc desc, KernelInfo info)
      : BlockScaledKernel(desc, std::move(info)), kernel_(kernel), sms_(sms) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = sm90::WhyBlockScaled(p); !common.ok()) return common;
    if (std::max({p.m, p.n, p.k}) > std::numeric_limits<int>::max() - 1024)
      return Feasibility::Refuse("m, n and k must stay 1024 below 2^31: tiles reach beyond them");
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

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override;

 private:
  bool Plan(const GemmArgs& args, int swizzle, int, Planned* launch) const override {
    const int sms = args.operation.sm_budget > 0 ? std::min(sms_, args.operation.sm_budget) : sms_;
    return sm90::PlanLargeM(kernel_, sm90::ToBlockScaled(args), swizzle, sms, launch);
  }
  cudaError_t Load() const override { return sm90::LoadLargeM(kernel_); }

  const LargeMKernel& kernel_;
  const int sms_;
};

// Waves of tiles, the power that a launch draws or the bytes from memory, whichever takes longest.
// The constants are fitted to 4300 measurements on one H200 at M = 128 to 8192 on twelve layers,
// those from M = 2048 on of kernels a little older. On the same measurements the choice by this
// model alone costs 1.022 of the best choice in the geometric mean, 1.12 at most; predictions near
// the best time are off by 5 % (RMS).
double LargeM::PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                         int swizzle, int) const noexcept {
  const int tile_m = kernel_.tile_m, tile_n = kernel_.tile_n, split = kernel_.split;
  const int warpgroups = kernel_.warpgroups_m * kernel_.warpgroups_n;
  const int columns = tile_n / kernel_.warpgroups_n;
  const int blocks_m = tile_m / kernel_.warpgroups_m / 64;
  const int sms = std::max(1, p.sm_budget > 0 ? std::min(p.sm_budget, device.units) : device.units);
  const double tiles =
      double(CeilDiv(p.m, tile_m * kernel_.cluster_m)) * CeilDiv(p.n, tile_n * kernel_.cluster_n);
  const double waves = std::ceil(tiles / std::max(1, sms / kernel_.cluster_size()));
  const int k_blocks = CeilDiv(p.k, sm90::kBlockK);
  const double area = double(tile_m) * tile_n;

  // A k-block: the tensor core with what its promotion leaves uncovered, or a term that fits as if
  // it were shared memory at 122 bytes a clock, which each warpgroup's products read and the loads
  // write (it is not, says docs/performance-log.md, the sixth series). Where the code goes
  // around the ring in step, less is left to do beside.
  const double tensor = area / 32 *
                        (warpgroups == 3  ? 1.24
                         : blocks_m == 2  ? 1.39
                         : columns <= 128 ? 1.1
                                          : 1.39);
  const double shared =
      (warpgroups * blocks_m * (8192.0 + columns * 128) + (tile_m + tile_n) * 128) / 122 *
      (tile_n == 64 ? 0.82 : 1.0);
  // Columns of two blocks of scales are sorted in groups.
  const int group = std::gcd(std::gcd(tile_n, columns), 128);
  const double sorting =
      tile_n % 128 != 0 && tile_n != 64 ? 1.62 * columns / group * columns / group * blocks_m : 0;
  // CTAs that share operands wait for each other.
  const bool shares = kernel_.cluster_m * kernel_.cluster_n > 1;
  const double block_clocks = (std::max(tensor, shared) + sorting) * (shares ? 1.055 : 1.0);
  // A tile besides: start and stores, which wait for each other where several slabs share a
  // buffer, the last tile's excepted; the exchange of partial sums.
  const bool waits =
      split == 1 && waves > 1 && kernel_.output_bytes == 2 && kernel_.store_rows < 64;
  const double tile_clocks =
      160 + (waits ? 0.131 : 0.097) * area * kernel_.output_bytes / 2 + (split > 1 ? 3290 : 0);
  const double clocks = waves * (CeilDiv(k_blocks, split) * block_clocks + tile_clocks);

  // At the power limit operations and bytes count, those that L2 reads a little less than those
  // that reach the multiprocessors.
  const double work = tiles * kernel_.cluster_m * kernel_.cluster_n * k_blocks;
  const double delivered = tile_m + tile_n;
  const double read = double(tile_m) / kernel_.cluster_n + double(tile_n) / kernel_.cluster_m;
  const double power_us =
      work * (area * 256 * 0.445e-9 + (0.87 * delivered + 0.13 * read) * 128 * 0.449e-7);
  const double bytes =
      double(p.m) * p.k + double(p.n) * p.k + double(kernel_.output_bytes) * p.m * p.n;
  const double stream_us = bytes / (0.83e3 * std::max(1.0, rates.read_gbps));
  const double slower = std::pow(
      std::pow(clocks / 1777, 8) + std::pow(power_us, 8) + std::pow(stream_us, 8), 1.0 / 8);
  // Those constants are of kernels that waited for all products after eight k-blocks. Where they
  // now do after sixteen, 0.96 makes the choices on 72 rows the best.
  const double straight =
      split == 1 && warpgroups == 2 && blocks_m == 1 && (tile_n == 96 || tile_n == 128) ? 0.96
                                                                                        : 1.0;
  // A split kernel's CTAs start anew with each tile: 458 of them beyond one wave took 1.22 times
  // what the model gives else.
  const double anew = split > 1 && waves > 1 ? 1.22 : 1.0;
  // Among equals: any tile before the seed's 128 x 224, the deeper ring, middle
  // supergroups.
  const double ring_kib = kernel_.stages * (tile_m + tile_n) / 8.0;
  const double preference =
      (tile_m == 128 && tile_n == 224 ? 1.03 : 1.0) * (1 + 0.0001 * std::max(0.0, 192 - ring_kib)) *
      (1 + 0.006 * std::abs(swizzle - std::min(3, GetMaxSwizzle({p.m, p.n, p.k, 1}))));
  return 1.71 + slower * straight * anew * preference;
}

}  // namespace

void AddSm90LargeM(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const LargeMKernel& kernel : sm90::LargeMKernels()) {
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
    kernels.push_back(std::make_unique<LargeM>(kernel, device.units, desc, std::move(info)));
  }
}

}  // namespace culet
