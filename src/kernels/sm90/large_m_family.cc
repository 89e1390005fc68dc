// The large-M kernels as culet::Kernels, one for each compiled kernel.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/sm90/block_scaled_args.h"
#include "kernels/sm90/large_m.h"

namespace culet {
namespace {

using sm90::CeilDiv;
using sm90::LargeMKernel;
using sm90::LargeMParams;

constexpr int kMaxSwizzle = 4;  // supergroups of 16 tiles; wider ones measured no faster

class PreparedLargeM final : public PreparedKernel {
 public:
  PreparedLargeM(const LargeMKernel& kernel, const LargeMParams& params, int grid, bool pdl)
      : kernel_(kernel), params_(params), grid_(grid), pdl_(pdl) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void*, void* D,
             Workspace&, cudaStream_t stream) const noexcept override {
    if (beta != 0.0f) return static_cast<int>(StatusCode::kInvalidArgument);
    LargeMParams params = params_;
    if (!sm90::RebindLargeM(A, static_cast<const float*>(U), D, alpha, &params))
      return static_cast<int>(StatusCode::kInternal);
    return -static_cast<int>(sm90::LaunchLargeM(kernel_, params, grid_, pdl_, stream));
  }

 private:
  const LargeMKernel& kernel_;
  const LargeMParams params_;
  const int grid_;
  const bool pdl_;
};

class LargeM final : public ArgsKernel {
 public:
  LargeM(const LargeMKernel& kernel, int sms, KernelDesc desc, KernelInfo info)
      : ArgsKernel(desc, std::move(info)), kernel_(kernel), sms_(sms) {}

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

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override;

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle, int) override {
    LargeMParams params;
    int grid = 0;
    if (args.beta != 0.0f || !Plan(args, swizzle, &params, &grid))
      return Status(StatusCode::kInvalidArgument,
                    id() + ": no tensor map for these operands; see explain for what is accepted");
    const cudaError_t error = sm90::LoadLargeM(kernel_);
    if (error != cudaSuccess)
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    return std::unique_ptr<PreparedKernel>(
        std::make_unique<PreparedLargeM>(kernel_, params, grid, args.operation.pdl));
  }

  int Run(const GemmArgs& args, int swizzle, int, Workspace&, cudaStream_t stream) override {
    LargeMParams params;
    int grid = 0;
    if (args.beta != 0.0f || !Plan(args, swizzle, &params, &grid))
      return static_cast<int>(StatusCode::kInvalidArgument);
    const cudaError_t error = sm90::LoadLargeM(kernel_);
    return -static_cast<int>(error != cudaSuccess ? error
                                                  : sm90::LaunchLargeM(kernel_, params, grid,
                                                                       args.operation.pdl, stream));
  }

 private:
  bool Plan(const GemmArgs& args, int swizzle, LargeMParams* params, int* grid) const {
    const int sms = args.operation.sm_budget > 0 ? std::min(sms_, args.operation.sm_budget) : sms_;
    return sm90::StridesFit(args) &&
           sm90::PlanLargeM(kernel_, sm90::ToBlockScaled(args), swizzle, sms, params, grid);
  }

  const LargeMKernel& kernel_;
  const int sms_;
};

// Waves of tiles. The constants are fitted to 1700 measurements of these kernels on one H200 at
// M = 256 to 4096 on twelve layers: the choice by this model alone costs 1.04 of the best choice in
// the geometric mean, 1.23 at most; predictions within 1.3 of the best time are off by 11 % (RMS).
double LargeM::PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                         int, int) const noexcept {
  const int tile_m = kernel_.tile_m, tile_n = kernel_.tile_n, split = kernel_.split;
  const int sms = std::max(1, p.sm_budget > 0 ? std::min(p.sm_budget, device.units) : device.units);
  const int tiles =
      CeilDiv(p.m, tile_m * kernel_.cluster_m) * CeilDiv(p.n, tile_n * kernel_.cluster_n);
  // Clusters of four do not fill every part of the chip: 120 of 132 multiprocessors.
  const double places =
      std::max(1.0, std::floor(sms * (split > 2 ? 0.91 : 1.0) / kernel_.cluster_size()));
  const double waves = std::ceil(tiles / places);
  const double blocks = CeilDiv(CeilDiv(p.k, sm90::kBlockK), split);
  const double area = double(tile_m) * tile_n;
  // A k-block: tensor core or operands, then the scales of A's rows and of narrow groups of
  // columns.
  const double block_clocks = std::max(1.183 * area / 32, (tile_m + tile_n) * 128 / 42.0) +
                              75.8 * tile_m / 128 + (tile_n % 64 != 0 ? 0.328 * area / 1024 : 0);
  // A tile besides: start and stores; the exchange of partial sums.
  const double tile_clocks = 55 + area / 11.8 + (split > 1 ? 6700 : 0) + (split > 2 ? 4600 : 0);
  const double clocks = waves * (blocks * block_clocks + tile_clocks);
  // The clock falls under the power limit as a launch grows longer.
  const double mhz = 1850 - 275 * std::min(1.0, clocks / 1850 / 100);
  const double bytes =
      double(p.m) * p.k + double(p.n) * p.k + double(kernel_.output_bytes) * p.m * p.n;
  return std::max(2.7 + clocks / mhz, bytes / (std::max(1.0, rates.read_gbps) * 1e3));
}

}  // namespace

void AddSm90LargeM(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch != 900) return;
  for (const LargeMKernel& kernel : sm90::LargeMKernels()) {
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.arch = 900;
    desc.type_a = desc.type_b = DataType::kFloat8_e4m3;
    desc.type_d = kernel.output_bytes == 2 ? DataType::kBfloat16 : DataType::kFloat32;
    desc.quant_a = {QuantType::kK, 128};
    desc.quant_b = {QuantType::kB, 128};
    desc.tile_m = kernel.tile_m, desc.tile_n = kernel.tile_n, desc.tile_k = sm90::kBlockK;
    desc.cluster_m = kernel.cluster_m, desc.cluster_n = kernel.cluster_n;
    desc.stages = kernel.stages;
    desc.determinism = Determinism::kRepeatable;
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
