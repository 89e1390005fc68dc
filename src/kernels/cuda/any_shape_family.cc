// The kernels for any shape as culet::Kernels. They come after the families made for one GPU and
// leave no problem on a GPU without a kernel that the CPU's reference takes.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "kernels/catalog.h"
#include "kernels/cuda/any_shape.h"

namespace culet {
namespace {

using any_shape::CeilDiv;
using any_shape::CompiledKernel;

constexpr int kLeastArch = 800;

// FP32 multiply-adds of a multiprocessor, 128 lanes at 1.75 GHz, in GFLOP/s: HardwareRates tells
// the rate of the matrix units, which the kernel without them does not use.
constexpr double kLaneGflops = 448;

// Time over that of 16-byte copies: where rows lie on 4 bytes, and where elements are gathered one
// by one.
constexpr double kWordPenalty = 1.3;
constexpr double kGatherPenalty = 3.0;

class PreparedAnyShape final : public PreparedKernel {
 public:
  PreparedAnyShape(const CompiledKernel& kernel, const any_shape::Problem& problem, int sm_budget)
      : kernel_(kernel), problem_(problem), sm_budget_(sm_budget) {}

  int Launch(float alpha, const void* A, const void* U, float beta, const void* C, void* D,
             Workspace& workspace, cudaStream_t stream) const noexcept override {
    if (beta != 0.0f && problem_.c.type == DataType::kNull) {
      return static_cast<int>(StatusCode::kInvalidArgument);
    }
    any_shape::Problem problem = problem_;
    any_shape::Rebind(A, U, C, D, alpha, beta, &problem);
    return -static_cast<int>(any_shape::Launch(kernel_, problem, sm_budget_, workspace, stream));
  }

 private:
  const CompiledKernel& kernel_;
  any_shape::Problem problem_;
  int sm_budget_;
};

bool IsNumber(DataType type) noexcept {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBfloat16 ||
         type == DataType::kFloat8_e4m3;
}

class AnyShape : public ArgsKernel {
 public:
  AnyShape(const CompiledKernel& kernel, KernelDesc desc, KernelInfo info)
      : ArgsKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (p.type_u == DataType::kFloat8_ue8m0 || p.type_v == DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("takes float scales, not UE8M0; convert them to float32");
    }
    if (!IsNumber(p.type_a) || !IsNumber(p.type_b) || !IsNumber(p.type_d) ||
        (p.type_c != DataType::kNull && !IsNumber(p.type_c))) {
      return Feasibility::Refuse("UE8M0 is a scale format; A, B, C and D hold numbers");
    }
    return Feasibility::Ok();
  }

  int GetMaxSwizzle(const int4& shape) const override {
    if (CeilDiv(shape.x, kernel_.tile_m) == 1) return 0;
    int swizzle = 0;
    while (swizzle < 3 && CeilDiv(shape.y, kernel_.tile_n) > 1 << swizzle) ++swizzle;
    return swizzle;
  }

  WorkspaceSize workspace_size(const GemmDesc& p, int, int splits) const noexcept override {
    return any_shape::WorkspaceOf(kernel_, p.m, p.n,
                                  std::min(splits, CeilDiv(p.k, kernel_.tile_k)));
  }

  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override {
    const cudaError_t error = any_shape::Load(kernel_);
    if (error != cudaSuccess) {
      return Status(StatusCode::kInternal, id() + " does not load: " + cudaGetErrorString(error));
    }
    return std::unique_ptr<PreparedKernel>(std::make_unique<PreparedAnyShape>(
        kernel_, any_shape::MakeProblem(kernel_, args, swizzle, splits), args.operation.sm_budget));
  }

  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override {
    const cudaError_t error = any_shape::Load(kernel_);
    if (error != cudaSuccess) return -static_cast<int>(error);
    return -static_cast<int>(
        any_shape::Launch(kernel_, any_shape::MakeProblem(kernel_, args, swizzle, splits),
                          args.operation.sm_budget, workspace, stream));
  }

 protected:
  const CompiledKernel& kernel_;
};

// Equal types of A and B, with scales that a k-tile's sums can be multiplied by.
class AnyShapeMma final : public AnyShape {
 public:
  using AnyShape::AnyShape;

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = AnyShape::why(p); !base.ok()) return base;
    if (p.type_a != kernel_.type || p.type_b != kernel_.type) {
      return Feasibility::Refuse("A or B has another type");
    }
    for (const QuantDesc& quant : {p.quant_a, p.quant_b}) {
      if (quant.type == QuantType::kNone) continue;
      if (kernel_.type != DataType::kFloat8_e4m3) {
        return Feasibility::Refuse("takes no scales");
      }
      if (quant.group_size % kernel_.tile_k != 0) {
        return Feasibility::Refuse("takes scales of groups of a multiple of 128");
      }
    }
    for (const DataType type : {p.type_u, p.type_v}) {
      if (type != DataType::kNull && type != DataType::kFloat32) {
        return Feasibility::Refuse("takes FP32 scales");
      }
    }
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t bsize, std::size_t psize) const override {
    return any_shape::MaxSplits(kernel_, shape.x, shape.y, shape.z, bsize, psize);
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override {
    const double us = Kernel::PredictUs(p, device, rates, swizzle, splits);
    const bool gathers = p.order_a != Order::kRowMajor || p.order_b != Order::kColMajor ||
                         p.align_a < 4 || p.align_b < 4;
    return us * (gathers ? kGatherPenalty : p.align_a < 16 || p.align_b < 16 ? kWordPenalty : 1.0);
  }
};

class AnyShapeSimt final : public AnyShape {
 public:
  using AnyShape::AnyShape;

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override {
    HardwareRates lanes = rates;
    lanes.gflops = kLaneGflops * std::max(1, device.units);
    return Kernel::PredictUs(p, device, lanes, swizzle, splits);
  }
};

KernelDesc DescOf(const CompiledKernel& kernel, int arch) {
  KernelDesc desc;
  desc.backend = Backend::kNative;
  desc.arch = arch;
  desc.tile_m = kernel.tile_m;
  desc.tile_n = kernel.tile_n;
  desc.tile_k = kernel.tile_k;
  desc.stages = kernel.stages;
  return desc;
}

KernelInfo InfoOf(const CompiledKernel& kernel) {
  KernelInfo info;
  info.name = std::string("cuda_any/") + kernel.id;
  info.registers = kernel.registers;
  info.dynamic_smem_size = kernel.smem_bytes;
  info.max_active_ctas = kernel.ctas;
  info.chunk_size_k = kernel.tile_k;
  info.launch_us = 4.0;
  return info;
}

}  // namespace

void AddCudaAnyShape(const DeviceInfo& device, KernelList& kernels) {
  if (device.arch < kLeastArch) return;
  for (const CompiledKernel& kernel : any_shape::MmaKernels()) {
    KernelDesc desc = DescOf(kernel, device.arch);
    desc.split_k = true;
    desc.determinism = Determinism::kRepeatable;
    KernelInfo info = InfoOf(kernel);
    info.bandwidth_share = 0.5;
    info.matrix_share = kernel.type == DataType::kFloat8_e4m3 ? 0.1 : 0.25;
    kernels.push_back(std::make_unique<AnyShapeMma>(kernel, desc, std::move(info)));
  }
  const CompiledKernel& simt = any_shape::SimtKernel();
  KernelDesc desc = DescOf(simt, device.arch);
  desc.determinism = Determinism::kBatchInvariant;  // one order of summation
  KernelInfo info = InfoOf(simt);
  info.bandwidth_share = 0.2;
  info.matrix_share = 0.25;
  kernels.push_back(std::make_unique<AnyShapeSimt>(simt, desc, std::move(info)));
}

}  // namespace culet
