// Kernels for tests of everything around kernels: what they take, cost and return is set by the
// test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "culet/kernel.h"

namespace culet {

class FakeKernel : public ArgsKernel {
 public:
  explicit FakeKernel(std::string id, Backend backend = Backend::kUser, bool pdl = false)
      : ArgsKernel(MakeDesc(backend, pdl), MakeInfo(std::move(id))) {}

  Feasibility why(const GemmDesc& desc) const noexcept override {
    if (refusal != nullptr) return Feasibility::Refuse(refusal);
    return Kernel::why(desc);
  }
  WorkspaceSize workspace_size(const GemmDesc&, int, int) const noexcept override {
    return workspace;
  }
  double PredictUs(const GemmDesc& desc, const DeviceInfo&, const HardwareRates&, int,
                   int) const noexcept override {
    return predict ? predict(desc) : predicted_us;
  }
  int GetMaxSwizzle(const int4&) const override { return max_swizzle; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return max_splits; }
  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& given, cudaStream_t) override {
    ++launches;
    return run ? run(args, swizzle, splits, given) : 0;
  }

  /// What it states; not once it is registered.
  KernelDesc& stated() { return desc_; }

  const char* refusal = nullptr;
  WorkspaceSize workspace;
  double predicted_us = 10.0;
  std::function<double(const GemmDesc&)> predict;
  int max_swizzle = 0;
  int max_splits = 1;
  int launches = 0;
  std::function<int(const GemmArgs&, int swizzle, int splits, Workspace&)> run;

 private:
  static KernelDesc MakeDesc(Backend backend, bool pdl) {
    KernelDesc desc;
    desc.pdl = pdl;
    desc.backend = backend;
    desc.determinism = Determinism::kRepeatable;
    return desc;
  }
  static KernelInfo MakeInfo(std::string id) {
    KernelInfo info;
    info.name = std::move(id);
    return info;
  }
};

}  // namespace culet
