// cpu_simd/skinny: up to 16 rows, each weight read once and converted in registers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_skinny.cc"
#include "kernels/cpu/simd_targets.h"
// Per target from here on.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd_skinny-inl.h"

HWY_BEFORE_NAMESPACE();
namespace culet {
namespace HWY_NAMESPACE {

void SkinnyM4(const GemmArgs& args, float* buffer) { RunSkinnyOfAnyType<4, 4>(args, buffer); }
void SkinnyM8(const GemmArgs& args, float* buffer) { RunSkinnyOfAnyType<8, 3>(args, buffer); }

}  // namespace HWY_NAMESPACE
}  // namespace culet
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <memory>
#include <utility>

#include "kernels/catalog.h"

namespace culet {
namespace {

HWY_EXPORT(SkinnyM4);
HWY_EXPORT(SkinnyM8);

void RunM4(const GemmArgs& args, float* buffer) { HWY_DYNAMIC_DISPATCH(SkinnyM4)(args, buffer); }
void RunM8(const GemmArgs& args, float* buffer) { HWY_DYNAMIC_DISPATCH(SkinnyM8)(args, buffer); }

// Converted activations, and their scales behind them.
std::size_t BufferBytes(std::size_t m, std::size_t k) noexcept {
  const std::size_t scales = RoundUpTo(k, kScaleBlock) / kScaleBlock;
  return m * (RoundUpTo(k, kSkinnyPad) + scales) * sizeof(float);
}

class SkinnyKernel final : public ArgsKernel {
 public:
  using Function = void (*)(const GemmArgs&, float*);

  SkinnyKernel(KernelDesc desc, KernelInfo info, Function function)
      : ArgsKernel(desc, std::move(info)), function_(function) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility shared = SimdWhy(p); !shared.ok()) return shared;
    if (p.m > kSkinnyMaxRows) return Feasibility::Refuse("takes at most 16 rows");
    if (p.order_b != Order::kColMajor) {
      return Feasibility::Refuse("reads B in column-major order only, k contiguous");
    }
    return Feasibility::Ok();
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    WorkspaceSize size;
    size.partials = BufferBytes(static_cast<std::size_t>(p.m), static_cast<std::size_t>(p.k));
    return size;
  }

  int Run(const GemmArgs& args, int, int, Workspace& workspace, cudaStream_t) override {
    const std::size_t needed = BufferBytes(static_cast<std::size_t>(args.Adesc.rows),
                                           static_cast<std::size_t>(args.Adesc.cols));
    if (workspace.partials == nullptr || workspace.partials_size < needed) {
      return static_cast<int>(StatusCode::kResourceExhausted);
    }
    function_(args, static_cast<float*>(workspace.partials));
    return 0;
  }

 private:
  Function function_;
};

}  // namespace

void AddCpuSimdSkinny(const DeviceInfo&, KernelList& kernels) {
  const auto add = [&](const char* name, int rows, int cols, SkinnyKernel::Function function) {
    KernelDesc desc;
    desc.backend = Backend::kNative;
    desc.tile_m = rows;
    desc.tile_n = cols;
    desc.determinism = Determinism::kRepeatable;
    KernelInfo info;
    info.name = name;
    info.bandwidth_share = 0.9;
    info.matrix_share = 0.5;
    kernels.push_back(std::make_unique<SkinnyKernel>(desc, std::move(info), function));
  };
  add("cpu_simd/skinny/m4", 4, 4, RunM4);
  add("cpu_simd/skinny/m8", 8, 3, RunM8);
}

}  // namespace culet
#endif  // HWY_ONCE
