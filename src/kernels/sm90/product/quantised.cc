#include "kernels/sm90/product/quantised.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "culet/desc.h"
#include "kernels/sm90/product/product_args.h"
#include "kernels/sm90/product/quantise_rows.h"

namespace culet::sm90 {
namespace {

// Columns of D in the workspace, so that rows are whole vectors of 16 bytes.
std::int64_t Pitch(int columns) { return std::int64_t{CeilDiv(columns, 4)} * 4; }

GemmDesc InnerProblem(GemmDesc p) noexcept {
  p.epilogue = Epilogue::kGatedSilu;
  p.d = {.type = DataType::kFloat32, .order = p.d.order, .striding = p.d.striding, .num = p.d.num};
  return p;
}

GemmArgs InnerArgs(GemmArgs args) {
  args.operation.epilogue = Epilogue::kGatedSilu;
  args.operation.quant_d = {};
  args.Ddesc.type = DataType::kFloat32;
  args.Ddesc.ld = Pitch(args.Ddesc.cols);
  args.D = nullptr;  // the workspace's, which comes with a launch
  return args;
}

KernelDesc QuantisedDesc(KernelDesc desc) noexcept {
  desc.epilogue = Epilogue::kGatedSiluQuant;
  desc.type_d = DataType::kFloat8_e4m3;
  return desc;
}

KernelInfo QuantisedInfo(KernelInfo info) {
  info.name += "/quantise";
  return info;
}

QuantiseRowsParams ParamsOf(const GemmArgs& args, int sms) {
  const ProductProblem problem = ToProduct(args);
  return {.scales = problem.epilogue.d_scale,
          .ldx = Pitch(args.Ddesc.cols),
          .ldd = problem.ldd,
          .m = problem.m,
          .n = args.Ddesc.cols,
          .scale_row = problem.epilogue.d_scale_row,
          .scale_block = problem.epilogue.d_scale_block,
          .sms = sms};
}

// Both kernels. `product(to)` launches the first.
template <class Product>
int LaunchBoth(QuantiseRowsParams params, void* d, const Workspace& workspace, cudaStream_t stream,
               Product product) {
  if (const int error = product(workspace.partials); error != 0) return error;
  params.x = static_cast<const float*>(workspace.partials);
  params.d = d;
  return -static_cast<int>(LaunchQuantiseRows(params, stream));
}

class PreparedQuantised final : public PreparedKernel {
 public:
  PreparedQuantised(std::unique_ptr<PreparedKernel> product, const QuantiseRowsParams& params)
      : product_(std::move(product)), params_(params) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
             Workspace& workspace, cudaStream_t stream) const noexcept override {
    return LaunchTo(params_.scales, alpha, A, U, beta, C, D, workspace, stream);
  }
  int LaunchTo(void* W, float alpha, const void* A, const void* U, float beta, const void* C,
               void* D, Workspace& workspace, cudaStream_t stream) const noexcept override {
    QuantiseRowsParams params = params_;
    params.scales = static_cast<float*>(W);
    return LaunchBoth(params, D, workspace, stream, [&](void* to) {
      return product_->Launch(alpha, A, U, beta, C, to, workspace, stream);
    });
  }

 private:
  const std::unique_ptr<PreparedKernel> product_;
  const QuantiseRowsParams params_;
};

class QuantisedKernel final : public ArgsKernel {
 public:
  QuantisedKernel(ArgsKernel& inner, int sms)
      : ArgsKernel(QuantisedDesc(inner.desc()), QuantisedInfo(inner.info())),
        inner_(inner),
        sms_(sms) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = WhyGeneral(p); !common.ok()) return common;
    if (p.d.scale_type != DataType::kFloat32) return Feasibility::Refuse("gives D FP32 scales");
    if (p.sm_budget > 0)
      return Feasibility::Refuse("quantises with all multiprocessors; cannot keep to a budget");
    return inner_.why(InnerProblem(p));
  }

  int GetMaxSwizzle(const int4& shape) const override { return inner_.GetMaxSwizzle(shape); }
  int GetMaxSplits(const int4& shape, int swizzle, std::size_t bsize,
                   std::size_t psize) const override {
    return inner_.GetMaxSplits(shape, swizzle, bsize, psize);
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int) const noexcept override {
    WorkspaceSize size;  // the kernels that pair columns need none
    size.partials = static_cast<std::size_t>(p.m) * static_cast<std::size_t>(Pitch(p.n / 2)) * 4;
    return size;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override {
    // A launch that begins early, and FP32 on its way there and back: 1.1 us for few rows, 2 to 3.5
    // at 512 x 2048 and 13 to 14 at 512 x 14336 on an H200.
    constexpr double kLaunchUs = 1.1, kGbps = 4500;
    return inner_.PredictUs(InnerProblem(p), device, rates, swizzle, splits) + kLaunchUs +
           8.0 * p.m * (p.n / 2.0) / (kGbps * 1e3);
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    if (const cudaError_t error = LoadQuantiseRows(); error != cudaSuccess)
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    auto product = inner_.Prepare(InnerArgs(args), swizzle, splits);
    if (!product.ok()) return product.status();
    return std::unique_ptr<PreparedKernel>(
        std::make_unique<PreparedQuantised>(*std::move(product), ParamsOf(args, sms_)));
  }

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    if (const cudaError_t error = LoadQuantiseRows(); error != cudaSuccess)
      return -static_cast<int>(error);
    return LaunchBoth(ParamsOf(args, sms_), args.D, workspace, stream, [&](void* to) {
      GemmArgs inner = InnerArgs(args);
      inner.D = to;
      return inner_.Run(inner, swizzle, splits, workspace, stream);
    });
  }

 private:
  ArgsKernel& inner_;
  const int sms_;
};

}  // namespace

std::unique_ptr<Kernel> Quantised(ArgsKernel& inner, int sms) {
  return std::make_unique<QuantisedKernel>(inner, sms);
}

}  // namespace culet::sm90
