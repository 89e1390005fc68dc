// cuBLASLt's products as culet::Kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "culet/device.h"
#include "culet/kernel.h"
#include "kernels/cublaslt/lt_algorithms.h"
#include "kernels/cublaslt/lt_launch.h"
#include "kernels/cublaslt/lt_library.h"
#include "kernels/cublaslt/lt_problem.h"

namespace culet::lt {

/// Where a kernel takes the library from; may open it.
using LibrarySource = Result<Library*> (*)();

/// One format on one device. Variants are the library's algorithms in the order of its estimates.
class LtKernel final : public ArgsKernel {
 public:
  LtKernel(const Format& format, const DeviceInfo& device, LibrarySource source);

  Feasibility why(const GemmDesc& problem) const noexcept override;
  Status Probe() const override;
  const char* provider_version() const noexcept override;
  Result<int> GetVariants(const GemmDesc& problem) const override;
  WorkspaceSize workspace_size(const GemmDesc& problem, int swizzle,
                               int splits) const noexcept override;
  double PredictUs(const GemmDesc& problem, const DeviceInfo& device, const HardwareRates& rates,
                   int swizzle, int splits) const noexcept override;
  Result<std::unique_ptr<PreparedKernel>> Prepare(const GemmArgs& args, int swizzle,
                                                  int splits) override;
  int Run(const GemmArgs& args, int swizzle, int splits, Workspace& workspace,
          cudaStream_t stream) override;

  /// The launch of `args` with everything but the operands, checked against their real layouts.
  /// Requires: is_feasible and available(). Errors: what Prepare returns.
  Result<LtLaunch> MakeLaunch(const GemmArgs& args) const;

 private:
  // What the library offers for a problem, and which of it was rehearsed.
  struct Offer {
    std::vector<Algorithm> algorithms;
    std::atomic<std::uint32_t> rehearsed = 0;  // bit i: algorithm i
  };

  // Asked once: the heuristic must not run inside a capture, and answers for one version, workspace
  // and problem always the same.
  Result<std::shared_ptr<Offer>> OfferOf(const GemmDesc& problem) const;
  Result<LtLaunch> MakeLaunch(const GemmArgs& args, const GemmDesc& problem,
                              const Offer& offer) const;
  // MakeLaunch, of an algorithm that was rehearsed on this problem.
  Result<LtLaunch> MakeRehearsed(const GemmArgs& args) const;
  Result<Handle> HandleOf(Library& library) const;

  const Format& format_;
  const int ordinal_;
  const LibrarySource source_;
  mutable std::mutex mutex_;
  mutable std::map<GemmDesc, std::shared_ptr<Offer>> offers_;
};

/// All formats that `device` has, with the library of `source`.
std::vector<std::unique_ptr<Kernel>> LtKernels(const DeviceInfo& device, LibrarySource source);

}  // namespace culet::lt
