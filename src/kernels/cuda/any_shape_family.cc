// The kernels for any shape as culet::Kernels. They come after the families made for one GPU and
// leave no problem on a GPU without a kernel that the CPU's reference takes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "culet/scratch.h"
#include "kernels/catalog.h"
#include "kernels/cuda/any_shape.h"

namespace culet {
namespace {

using any_shape::CeilDiv;
using any_shape::CompiledKernel;

constexpr int kLeastArch = 800;

// What PredictUs is made of: microseconds of a k-tile of a CTA that has its multiprocessor to
// itself, and of a k-tile of one among as many CTAs as it holds; then the factors where rows are
// copied by 4 bytes and element by element instead of by 16 bytes. Measured on one H200.
struct StepTimes {
  double alone, busy;
  double by_words, by_elements;
};
// In the order of the tiles: 16 x 64, 64 x 64, 128 x 128.
constexpr StepTimes kE4m3Steps[] = {
    {1.5, 0.42, 1.5, 4.7}, {1.75, 0.80, 1.6, 4.4}, {2.6, 2.5, 1.5, 4.1}};
constexpr StepTimes kHalfSteps[] = {
    {0.57, 0.21, 2.0, 15.0}, {0.74, 0.33, 2.5, 5.5}, {1.5, 1.0, 2.0, 12.0}};
constexpr StepTimes kSimtStep = {1.15, 0.88, 1.0, 1.0};
constexpr double kNarrowPenalty = 2.3;  // of that one where operands are widened or scaled

// Around the k-tiles: the launch; then, for 16384 sums, an epilogue and a part of K.
constexpr double kLaunchUs = 2.5;
constexpr double kFinishUs = 3.0;
constexpr double kSplitUs = 0.3;
constexpr double kSplitSumsUs = 1.7;
constexpr double kBandwidthShare = 0.8;

StepTimes StepsOf(const CompiledKernel& kernel) noexcept {
  if (kernel.type == DataType::kNull) return kSimtStep;
  const int tile = kernel.tile_m == 16 ? 0 : kernel.tile_m == 64 ? 1 : 2;
  return kernel.type == DataType::kFloat8_e4m3 ? kE4m3Steps[tile] : kHalfSteps[tile];
}

// The factor of a problem's alignment, orders and types on the time of a k-tile.
double PenaltyOf(const CompiledKernel& kernel, const GemmDesc& p) noexcept {
  if (kernel.type == DataType::kNull) {
    const bool plain = p.a.type == DataType::kFloat32 && p.b.type == DataType::kFloat32;
    return plain ? 1.0 : kNarrowPenalty;
  }
  const StepTimes step = StepsOf(kernel);
  const int align = std::min(p.a.align, p.b.align);
  const bool along_k = p.a.order == Order::kRowMajor && p.b.order == Order::kColMajor;
  return !along_k || align < 4 ? step.by_elements : align < 16 ? step.by_words : 1.0;
}

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
    if (p.a.scale_type == DataType::kFloat8_ue8m0 || p.b.scale_type == DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("takes float scales, not UE8M0; convert them to float32");
    }
    if (!IsNumber(p.a.type) || !IsNumber(p.b.type) || !IsNumber(p.d.type) ||
        (p.c.type != DataType::kNull && !IsNumber(p.c.type))) {
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

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    const StepTimes step = StepsOf(kernel_);
    const double sums = kernel_.tile_m * kernel_.tile_n / 16384.0;
    const double sms =
        std::max(1, p.sm_budget > 0 ? std::min(p.sm_budget, device.units) : device.units);
    const double ctas =
        double(CeilDiv(p.m, kernel_.tile_m)) * CeilDiv(p.n, kernel_.tile_n) * splits;
    const double per_sm = std::ceil(ctas / sms);
    const double waves = std::ceil(ctas / (sms * kernel_.ctas));
    const double steps = CeilDiv(CeilDiv(p.k, kernel_.tile_k), splits);
    const double compute =
        steps * PenaltyOf(kernel_, p) * std::max(waves * step.alone, per_sm * step.busy);
    const double memory = MinimumBytes(p) / (rates.read_gbps * 1e3 * kBandwidthShare);
    double us = kLaunchUs + std::max(compute, memory) + kFinishUs * sums * per_sm;
    if (splits > 1) us += splits * (kSplitUs + kSplitSumsUs * sums);
    return us;
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
    if (p.a.type != kernel_.type || p.b.type != kernel_.type) {
      return Feasibility::Refuse("A or B has another type");
    }
    for (const QuantDesc& quant : {p.a.quant, p.b.quant}) {
      if (quant.type == QuantType::kNone) continue;
      if (kernel_.type != DataType::kFloat8_e4m3) {
        return Feasibility::Refuse("takes no scales");
      }
      if (HasGroupSize(quant.type) && quant.group_size % kernel_.tile_k != 0) {
        return Feasibility::Refuse("takes scales of groups of a multiple of 128");
      }
    }
    for (const DataType type : {p.a.scale_type, p.b.scale_type}) {
      if (type != DataType::kNull && type != DataType::kFloat32) {
        return Feasibility::Refuse("takes FP32 scales");
      }
    }
    return Feasibility::Ok();
  }

  int GetMaxSplits(const int4& shape, int, std::size_t bsize, std::size_t psize) const override {
    return any_shape::MaxSplits(kernel_, shape.x, shape.y, shape.z, bsize, psize);
  }
};

// In FP32 lanes. Without splits the order of summation depends on K alone; with them small outputs
// fill the GPU.
class AnyShapeSimt final : public AnyShape {
 public:
  using AnyShape::AnyShape;

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (p.a.scale_type == DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("takes float scales of A, not UE8M0; convert them to float32");
    }
    // The rest is what is said of numbers.
    GemmDesc plain = p;
    for (OperandDesc* operand : {&plain.a, &plain.b}) {
      if (IsSubByte(operand->type) || operand->type == DataType::kInt8) {
        operand->type = DataType::kFloat32;
      }
    }
    plain.b.scale_type = p.b.scale_type == DataType::kNull ? p.b.scale_type : DataType::kFloat32;
    return AnyShape::why(plain);
  }

  int GetMaxSplits(const int4& shape, int, std::size_t bsize, std::size_t psize) const override {
    if (!desc().split_k) return 1;
    return any_shape::MaxSplits(kernel_, shape.x, shape.y, shape.z, bsize, psize);
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
    kernels.push_back(std::make_unique<AnyShapeMma>(kernel, desc, std::move(info)));
  }
  const CompiledKernel& simt = any_shape::SimtKernel();
  for (const bool split : {true, false}) {
    KernelDesc desc = DescOf(simt, device.arch);
    desc.split_k = split;
    desc.determinism = split ? Determinism::kRepeatable : Determinism::kBatchInvariant;
    KernelInfo info = InfoOf(simt);
    desc.zero_points = true;
    if (!split) info.name += "/whole";
    kernels.push_back(std::make_unique<AnyShapeSimt>(simt, desc, std::move(info)));
  }
}

}  // namespace culet
