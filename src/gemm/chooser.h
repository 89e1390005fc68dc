// Chooser: which LaunchSpec serves a problem, from what was measured and what is predicted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fork_mutex.h"
#include "culet/desc.h"
#include "culet/device.h"
#include "culet/dispatch_cache.h"
#include "culet/gemm.h"
#include "culet/registry.h"
#include "gemm/cost_model.h"
#include "gemm/prepare_failures.h"

namespace culet {

struct Choice {
  LaunchSpec spec;
  ChoiceSource source = ChoiceSource::kCostModel;
};

/// Predicted choices are remembered here, never in the DispatchCache: an estimate must not be
/// mistaken for a measurement, nor keep a problem from being measured.
class Chooser {
 public:
  Chooser(const DeviceInfo& device, const HardwareRates* rates_by_type, const Registry& registry,
          const DispatchCache& cache)
      : device_(device), rates_by_type_(rates_by_type), registry_(registry), cache_(cache) {}

  /// The choice without measuring. Errors: UNSUPPORTED with every kernel's reason.
  Result<Choice> Choose(const GemmDesc& desc, bool reuse_below);

  /// The measured entry of exactly this problem, if its kernel still takes it.
  bool FindMeasured(const GemmDesc& desc, LaunchSpec& spec) const;

  /// Whose the measured entry is that serves the problem; the user's where there is none.
  CacheLayer LayerOf(const GemmDesc& desc) const;

  /// Feasible kernels with their parameters, best first: predicted, and anchored on measured
  /// neighbours where there are any (`anchored` may be null). Launches that could not be prepared
  /// come last.
  std::vector<LaunchSpec> Candidates(const GemmDesc& desc, bool* anchored = nullptr,
                                     Asking asking = Asking::kAll) const;
  /// Of `candidates` of a problem with pdl those of the launch that was measured without it, if
  /// that is so long that overlap can gain next to nothing; else none.
  std::vector<LaunchSpec> LongLaunch(const GemmDesc& desc,
                                     const std::vector<LaunchSpec>& candidates) const;

  const HardwareRates& rates(DataType type) const noexcept {
    return rates_by_type_[static_cast<int>(type)];
  }

  /// Forgets remembered predictions, after the registry grew.
  void Forget();

  /// What Kernel::Prepare said of a launch: one that fails is the choice no more.
  void NotePrepared(const GemmDesc& desc, const LaunchSpec& spec, const Status& said);
  const PrepareFailures& failures() const noexcept { return failures_; }

 private:
  const DeviceInfo& device_;
  const HardwareRates* rates_by_type_;
  const Registry& registry_;
  const DispatchCache& cache_;

  PrepareFailures failures_;
  ForkMutex mutex_;
  std::uint64_t remembered_generation_ = 0;
  std::map<GemmDesc, Choice> remembered_;
};

/// UNSUPPORTED, with one line a kernel.
Status NoKernelFor(const GemmDesc& desc, const Registry& registry);

/// The type whose arithmetic rate serves the problem.
DataType RateType(const GemmDesc& desc) noexcept;

}  // namespace culet
