// What the Hopper families have in common as culet::Kernels: how they are prepared and launched,
// and the descriptor.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>

#include "culet/kernel.h"
#include "kernels/sm90/product/policy.h"
#include "kernels/sm90/product/product_args.h"
#include "kernels/sm90/product/product_launch.h"

namespace culet::sm90 {

/// `Planned`: a ProductLaunch.
template <class Planned>
class ProductKernel : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;

  /// Plans a launch and loads the kernel, for Prepare and for kernels around this one. Errors: as
  /// Prepare.
  Result<Planned> PrepareLaunch(const GemmArgs& args, int swizzle, int splits) const {
    Planned launch;
    if (!Fits(args, swizzle, splits, &launch))
      return Status(StatusCode::kInvalidArgument,
                    id() + ": does not take these operands; see explain for what is accepted");
    const cudaError_t error = Load();
    if (error != cudaSuccess)
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    return launch;
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) final {
    auto launch = PrepareLaunch(args, swizzle, splits);
    if (!launch.ok()) return launch.status();
    return std::unique_ptr<PreparedKernel>(std::make_unique<Prepared>(*launch));
  }

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace&, cudaStream_t stream) final {
    Planned launch;
    if (!Fits(args, swizzle, splits, &launch))
      return static_cast<int>(StatusCode::kInvalidArgument);
    const cudaError_t error = Load();
    return -static_cast<int>(error != cudaSuccess ? error : launch.Start(stream));
  }

 protected:
  /// False when the kernel does not take these operands, or these parameters.
  virtual bool Plan(const GemmArgs& args, int swizzle, int splits, Planned* launch) const = 0;

  /// Loads the kernel on the current device and raises its shared-memory limit.
  virtual cudaError_t Load() const = 0;

 private:
  class Prepared final : public PreparedKernel {
   public:
    explicit Prepared(const Planned& launch) : launch_(launch) {}

    int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
               Workspace& workspace, cudaStream_t stream) const noexcept override {
      return LaunchTo(nullptr, alpha, A, U, beta, C, D, workspace, stream);
    }
    int LaunchTo(void* W, float alpha, const void* A, const void* U, float beta, const void* C,
                 void* D, Workspace&, cudaStream_t stream) const noexcept override {
      if (beta != 0.0f && (!launch_.AddsC() || C == nullptr))
        return static_cast<int>(StatusCode::kInvalidArgument);
      Planned launch = launch_;
      if (!launch.Rebind(
              {A, static_cast<const float*>(U), C, D, static_cast<float*>(W), alpha, beta}))
        return static_cast<int>(StatusCode::kInternal);
      return -static_cast<int>(launch.Start(stream));
    }

   private:
    const Planned launch_;
  };

  bool Fits(const GemmArgs& args, int swizzle, int splits, Planned* launch) const {
    return Plan(args, swizzle, splits, launch) && (args.beta == 0.0f || launch->AddsC());
  }
};

/// Significant bits of an FP8 product's sums in wgmma, by measurement of E4M3 (docs/numerics.md).
inline constexpr int kFp8AccumulatorBits = 14;

/// What the kernels of all families state; tiles, clusters and stages are theirs.
inline KernelDesc BlockScaledDesc(int output_bytes) {
  KernelDesc desc;
  desc.backend = Backend::kNative;
  desc.arch = 900;
  desc.type_a = desc.type_b = DataType::kFloat8_e4m3;
  desc.type_d = output_bytes == 2 ? DataType::kBfloat16 : DataType::kFloat32;
  desc.quant_a = {QuantType::kK, 128};
  desc.quant_b = {QuantType::kB, 128};
  desc.accumulator_bits = kFp8AccumulatorBits;
  desc.promotion_k = 128;
  desc.determinism = Determinism::kRepeatable;
  desc.pdl = true;
  return desc;
}

/// The same of a kernel with a general epilogue, which takes D, C and a bias in several types.
inline KernelDesc GeneralDesc(const FormatInfo& format) {
  KernelDesc desc;
  desc.backend = Backend::kNative;
  desc.arch = 900;
  if (!ScalesLast(format)) desc.type_a = desc.type_b = format.type;  // WhyScales knows
  if (format.element_bytes == 1) {
    desc.accumulator_bits = kFp8AccumulatorBits;
    desc.promotion_k = format.sums == Sums::kDirect ? 0 : 128;
  }
  desc.determinism = Determinism::kRepeatable;
  desc.pdl = true;
  return desc;
}

/// What a kernel of this epilogue states. `output_bytes`: of a plain one.
inline KernelDesc DescOf(const FormatInfo& format, EpilogueKind epilogue, int output_bytes) {
  KernelDesc desc =
      format.sums == Sums::kBlockScaled ? BlockScaledDesc(output_bytes) : GeneralDesc(format);
  if (epilogue != EpilogueKind::kPlain) desc.type_d = DataType::kNull;
  if (epilogue == EpilogueKind::kGated) desc.epilogue = Epilogue::kGatedSilu;
  if (epilogue == EpilogueKind::kGatedQuant) {
    desc.epilogue = Epilogue::kGatedSiluQuant;
    desc.type_d = DataType::kFloat8_e4m3;
  }
  return desc;
}

}  // namespace culet::sm90
