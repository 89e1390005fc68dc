// Products whose rows of A or B do not begin on 16 bytes, where TMA cannot load them: a kernel in
// front copies those operands into the workspace, and a kernel of the families multiplies the
// copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "culet/kernel.h"
#include "kernels/catalog.h"
#include "kernels/sm90/product/pad_rows.h"
#include "kernels/sm90/product/product_kernel.h"

namespace culet::sm90 {

struct BlockParams;
struct SwapParams;
/// Puts another address of B into a planned launch, whose layout stays. False when the driver
/// refuses.
bool BindB(BlockParams* params, const void* b);
bool BindB(SwapParams* params, const void* b);

/// What of a problem is copied.
struct Padding {
  bool a = false, b = false;

  explicit Padding(const GemmDesc& p) : a(p.a.align < 16), b(p.b.align < 16) {}
  /// Requires: A is null or as a launch will have it.
  explicit Padding(const GemmArgs& args);

  bool any() const { return a || b; }
};

/// The problem of the kernel that multiplies the copies.
GemmDesc PaddedProblem(GemmDesc p) noexcept;

/// The arguments of that kernel. A copy of A comes with a launch, one of B lies at `copy_of_b`.
GemmArgs PaddedArgs(GemmArgs args, const Padding& padding, const void* copy_of_b);

/// Bytes of both copies in the workspace: A's comes first, each begins on 256 bytes.
std::size_t PaddedWorkspace(const GemmDesc& p) noexcept;
/// Where B's copy begins in it.
std::size_t OffsetOfPaddedB(const MatrixLayout& a, const Padding& padding) noexcept;

/// What the kernel in front copies. Requires: a plan's layouts; addresses come with a launch.
PadRowsParams PadRowsOf(const GemmArgs& args, const Padding& padding);

/// Predicted microseconds that the copies add.
double PadRowsUs(const GemmDesc& p) noexcept;

/// `inner`, which must outlive it, for such problems. `sms`: the device's multiprocessors.
template <class Planned>
class PaddedKernel final : public ArgsKernel {
 public:
  PaddedKernel(ProductKernel<Planned>& inner, int sms)
      : ArgsKernel(inner.desc(), Named(inner.info())), inner_(inner), sms_(sms) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (!Padding(p).any())
      return Feasibility::Refuse("leaves rows on 16 bytes to the kernel without copies");
    return inner_.why(PaddedProblem(p));
  }

  int GetMaxSwizzle(const int4& shape) const override { return inner_.GetMaxSwizzle(shape); }
  int GetMaxSplits(const int4& shape, int swizzle, std::size_t bsize,
                   std::size_t psize) const override {
    return inner_.GetMaxSplits(shape, swizzle, bsize, psize);
  }
  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    WorkspaceSize size;  // the inner kernels need none
    size.partials = PaddedWorkspace(p);
    return size;
  }
  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override {
    return inner_.PredictUs(PaddedProblem(p), device, rates, swizzle, splits) + PadRowsUs(p);
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    auto prepared = std::make_unique<Prepared>(args, BudgetOf(args));
    if (const cudaError_t error = LoadPadRows(); error != cudaSuccess)
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    // Any aligned address stands in for that of B's copy, as for A's, until there is a workspace.
    auto product =
        inner_.PrepareLaunch(PaddedArgs(args, prepared->padding, kSomeAddress), swizzle, splits);
    if (!product.ok()) return product.status();
    prepared->product = *std::move(product);
    return std::unique_ptr<PreparedKernel>(std::move(prepared));
  }

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    Prepared prepared(args, BudgetOf(args));
    if (const cudaError_t error = LoadPadRows(); error != cudaSuccess)
      return -static_cast<int>(error);
    auto product =
        inner_.PrepareLaunch(PaddedArgs(args, prepared.padding, kSomeAddress), swizzle, splits);
    if (!product.ok()) return static_cast<int>(product.status().code());
    prepared.product = *std::move(product);
    return prepared.Launch(args.alpha, args.A, args.U, args.beta, args.C, args.D, workspace,
                           stream);
  }

 private:
  struct Prepared final : PreparedKernel {
    Prepared(const GemmArgs& args, int most_sms)
        : padding(args),
          pad(PadRowsOf(args, padding)),
          offset_b(OffsetOfPaddedB(args.Adesc, padding)),
          sms(most_sms),
          pdl(args.operation.pdl) {}

    int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
               Workspace& workspace, cudaStream_t stream) const noexcept override {
      if (beta != 0.0f && (!product.AddsC() || C == nullptr))
        return static_cast<int>(StatusCode::kInvalidArgument);
      char* const copies = static_cast<char*>(workspace.partials);
      PadRowsParams params = pad;
      GemmOperands operands{A, static_cast<const float*>(U), C, D, nullptr, alpha, beta};
      int i = 0;
      if (padding.a) {
        params.matrix[i].from = A;
        params.matrix[i++].to = copies;
        operands.a = copies;
      }
      if (padding.b) {
        params.matrix[i].to = copies + offset_b;
      }
      Planned launch = product;
      if (!launch.Rebind(operands) || (padding.b && !BindB(&launch.params, copies + offset_b)))
        return static_cast<int>(StatusCode::kInternal);
      if (const cudaError_t error = LaunchPadRows(params, sms, pdl, stream); error != cudaSuccess)
        return -static_cast<int>(error);
      return -static_cast<int>(launch.Start(stream));
    }

    const Padding padding;
    const PadRowsParams pad;
    const std::size_t offset_b;
    const int sms;
    const bool pdl;
    Planned product;
  };

  static inline const void* const kSomeAddress =
      reinterpret_cast<const void*>(std::uintptr_t{1} << 20);

  static KernelInfo Named(KernelInfo info) {
    info.name += "/padded";
    return info;
  }
  int BudgetOf(const GemmArgs& args) const {
    return args.operation.sm_budget > 0 ? std::min(sms_, args.operation.sm_budget) : sms_;
  }

  ProductKernel<Planned>& inner_;
  const int sms_;
};

/// Adds the Padded twin of `kernel` where its epilogue is none of the gated ones.
template <class Planned>
void AddPadded(ProductKernel<Planned>& kernel, int sms, KernelList& kernels) {
  if (kernel.desc().epilogue == Epilogue::kNone)
    kernels.push_back(std::make_unique<PaddedKernel<Planned>>(kernel, sms));
}

}  // namespace culet::sm90
