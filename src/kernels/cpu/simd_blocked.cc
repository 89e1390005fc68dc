// cpu_simd/blocked: any number of rows, weights packed into FP32 panels in the caches.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_blocked.cc"
#include "base/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_blocked-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void BlockedMr14Nr2(const GemmArgs& args, const BlockedBuffers& buffers) {
  RunBlockedOfAnyType<14, 2>(args, buffers);
}
void BlockedMr6Nr2(const GemmArgs& args, const BlockedBuffers& buffers) {
  RunBlockedOfAnyType<6, 2>(args, buffers);
}
void BlockedMr6Nr4(const GemmArgs& args, const BlockedBuffers& buffers) {
  RunBlockedOfAnyType<6, 4>(args, buffers);
}

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <memory>
#include <utility>

#include "kernels/catalog.h"

namespace culet {
namespace {

HWY_EXPORT(BlockedMr14Nr2);
HWY_EXPORT(BlockedMr6Nr2);
HWY_EXPORT(BlockedMr6Nr4);

using Buffers = BlockedBuffers;
void RunMr14Nr2(const GemmArgs& a, const Buffers& b) { HWY_DYNAMIC_DISPATCH(BlockedMr14Nr2)(a, b); }
void RunMr6Nr2(const GemmArgs& a, const Buffers& b) { HWY_DYNAMIC_DISPATCH(BlockedMr6Nr2)(a, b); }
void RunMr6Nr4(const GemmArgs& a, const Buffers& b) { HWY_DYNAMIC_DISPATCH(BlockedMr6Nr4)(a, b); }

int ThreadLimit(int sm_budget) noexcept {
  const int threads = HostThreads();
  return sm_budget > 0 ? std::min(sm_budget, threads) : threads;
}

class BlockedKernel final : public ArgsKernel {
 public:
  using Function = void (*)(const GemmArgs&, const BlockedBuffers&);

  BlockedKernel(KernelDesc desc, KernelInfo info, Function function)
      : ArgsKernel(desc, std::move(info)), function_(function) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility shared = SimdWhy(p); !shared.ok()) return shared;
    // Half a strip of gates, half of ups: each within a block of scales, or of packed columns.
    if (p.gate_order == GateOrder::kHalves && p.n / 2 % (kBlockedColumns / 2) != 0 &&
        (p.b.pack != 0 || p.b.quant.type == QuantType::kB)) {
      return Feasibility::Refuse(
          "takes gate and up one behind the other with n / 2 a multiple of 64 only");
    }
    return Feasibility::Ok();
  }

  std::span<const int> packs() const noexcept override {
    static constexpr int kPacks[] = {kPackPanels64};
    return kPacks;
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    const auto m = static_cast<std::size_t>(p.m);
    const auto threads = static_cast<std::size_t>(ThreadLimit(p.sm_budget));
    WorkspaceSize size;
    size.partials = (BlockedSharedFloats(m, static_cast<std::size_t>(p.k)) +
                     BlockedValueFloats(m, static_cast<std::size_t>(p.n), p.epilogue) +
                     threads * BlockedThreadFloats(m)) *
                    sizeof(float);
    return size;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override {
    // Packing a weight takes as long as multiplying it by so many rows of A: measured as 12 to 18
    // for all types, the memory's share apart.
    constexpr double kPackRows = 15;
    const SimdCosts costs = CostsOf(p, info(), device, rates);
    const double passes = std::ceil(static_cast<double>(p.m) / kBlockedRows);
    const double compute_us = (p.m + passes * kPackRows) * costs.row_us / info().matrix_share;
    return std::max(info().launch_us, rates.launch_us) +
           (costs.memory_us + compute_us) * costs.imbalance;
  }

  int Run(const GemmArgs& args, int, int, Workspace& workspace, cudaStream_t) override {
    const auto m = static_cast<std::size_t>(args.Adesc.rows);
    const std::size_t shared = BlockedSharedFloats(m, static_cast<std::size_t>(args.Adesc.cols));
    const std::size_t values =
        BlockedValueFloats(m, static_cast<std::size_t>(args.Bdesc.cols), args.operation.epilogue);
    const std::size_t own = BlockedThreadFloats(m);
    const std::size_t floats = workspace.partials_size / sizeof(float);
    if (workspace.partials == nullptr || floats < shared + values + own) {
      return static_cast<int>(StatusCode::kResourceExhausted);
    }
    // A workspace made for fewer threads than there are now limits them.
    auto* const data = static_cast<float*>(workspace.partials);
    const auto fitting =
        static_cast<int>(std::min<std::size_t>((floats - shared - values) / own, 1 << 16));
    function_(args, {data, values > 0 ? data + shared : nullptr, data + shared + values,
                     std::min(fitting, ThreadLimit(args.operation.sm_budget))});
    return 0;
  }

 private:
  Function function_;
};

}  // namespace

void AddCpuSimdBlocked(const DeviceInfo&, KernelList& kernels) {
  const auto add = [&](const char* name, int rows, double matrix_share,
                       BlockedKernel::Function function) {
    kernels.push_back(std::make_unique<BlockedKernel>(SimdDesc(rows, kBlockedColumns),
                                                      SimdInfo(name, 0.8, matrix_share), function));
  };
  // Shares of the FP32 rate measured on two cores of a Xeon with AVX-512 at m = 128 and 512.
  if (HasManyRegisters(SimdTargets())) {
    add("cpu_simd/blocked/mr6nr4", 6, 0.79, RunMr6Nr4);
    add("cpu_simd/blocked/mr14nr2", 14, 0.77, RunMr14Nr2);
  }
  add("cpu_simd/blocked/mr6nr2", 6, 0.72, RunMr6Nr2);
}

}  // namespace culet
#endif  // HWY_ONCE
