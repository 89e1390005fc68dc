// transpose(): any kernel as its swap-AB twin. D^T = B^T A^T needs no data movement: a matrix in
// row-major order is its transpose in column-major order.
#include <memory>
#include <utility>

#include "culet/kernel.h"

namespace culet {
namespace {

Bias::Axis Other(Bias::Axis axis) noexcept {
  return axis == Bias::Axis::kN ? Bias::Axis::kM : Bias::Axis::kN;
}

Operation Transposed(Operation op) noexcept {
  std::swap(op.quant_a, op.quant_b);
  std::swap(op.zero_a, op.zero_b);
  op.batch_dim = 1 - op.batch_dim;
  op.bias.axis = Other(op.bias.axis);
  // The caller promises that nobody is still writing B and V. The inner kernel would read the
  // promise as one about its own B and V, which are the caller's A and U.
  op.pdl = false;
  return op;
}

// The problem as the inner kernel sees it.
GemmDesc InnerProblem(const GemmDesc& desc) noexcept {
  GemmDesc inner = Transposed(desc);
  inner.pdl = false;
  return inner;
}

int4 InnerShape(const int4& shape) noexcept { return {shape.y, shape.x, shape.z, shape.w}; }

KernelDesc TransposedDesc(KernelDesc desc) noexcept {
  std::swap(desc.type_a, desc.type_b);
  std::swap(desc.quant_a, desc.quant_b);
  std::swap(desc.tile_m, desc.tile_n);
  std::swap(desc.cluster_m, desc.cluster_n);
  // Invariance of the inner kernel's rows says nothing about its columns, which are our rows.
  if (desc.determinism == Determinism::kBatchInvariant) desc.determinism = Determinism::kRepeatable;
  desc.transpose = !desc.transpose;
  desc.pdl = false;  // the promise is not handed on, above
  return desc;
}

KernelInfo TransposedInfo(KernelInfo info) {
  info.name += "/t";
  return info;
}

// Prepare is not forwarded: it binds the inner kernel's B and V, and those are the caller's A and
// U, which change from launch to launch. The base's Prepare, which calls Launch, is right here.
class TransposedKernel final : public Kernel {
 public:
  explicit TransposedKernel(Kernel& inner)
      : Kernel(TransposedDesc(inner.desc()), TransposedInfo(inner.info())), inner_(inner) {}

  int Launch(const Operation& operation, float alpha, const void* A, const MatrixLayout& Adesc,
             const void* U, const MatrixLayout& Udesc, const void* B, const MatrixLayout& Bdesc,
             const void* V, const MatrixLayout& Vdesc, float beta, const void* C,
             const MatrixLayout& Cdesc, void* D, const MatrixLayout& Ddesc, int swizzle, int splits,
             Workspace& workspace, cudaStream_t stream) override {
    return inner_.Launch(Transposed(operation), alpha,                //
                         B, Transposed(Bdesc), V, Transposed(Vdesc),  //
                         A, Transposed(Adesc), U, Transposed(Udesc),  //
                         beta, C, Transposed(Cdesc), D, Transposed(Ddesc), swizzle, splits,
                         workspace, stream);
  }

  Feasibility why(const GemmDesc& problem) const noexcept override {
    if (IsGated(problem.epilogue)) {
      return Feasibility::Refuse("the gated epilogue pairs columns, not rows");
    }
    if (problem.determinism > desc_.determinism) {
      return Feasibility::Refuse("does not keep the determinism asked for");
    }
    return inner_.why(InnerProblem(problem));
  }

  int GetMaxSwizzle(const int4& shape) const override {
    return inner_.GetMaxSwizzle(InnerShape(shape));
  }

  int GetMaxSplits(const int4& shape, int swizzle, std::size_t bsize,
                   std::size_t psize) const override {
    return inner_.GetMaxSplits(InnerShape(shape), swizzle, bsize, psize);
  }

  Result<int> GetVariants(const GemmDesc& problem) const override {
    return inner_.GetVariants(InnerProblem(problem));
  }

  Status Probe() const override { return inner_.available(); }

  const char* provider_version() const noexcept override { return inner_.provider_version(); }

  WorkspaceSize workspace_size(const GemmDesc& problem, int swizzle,
                               int splits) const noexcept override {
    return inner_.workspace_size(InnerProblem(problem), swizzle, splits);
  }

  double PredictUs(const GemmDesc& problem, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override {
    return inner_.PredictUs(InnerProblem(problem), device, rates, swizzle, splits);
  }

 private:
  Kernel& inner_;
};

}  // namespace

std::unique_ptr<Kernel> transpose(Kernel& kernel) {
  return std::make_unique<TransposedKernel>(kernel);
}

}  // namespace culet
