#include "culet/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "base/caught.h"
#include "gemm/error_model.h"
#include "verify/check.h"

namespace culet {
namespace {

using Clock = std::chrono::steady_clock;

class Run {
 public:
  Run(const DeviceInfo& device, const VerifyOptions& options)
      : device_(device), options_(options), start_(Clock::now()) {}

  /// Every chosen kernel on one problem; false when the caller ended the run.
  bool Problem(const Registry& registry, const GemmDesc& desc) {
    ProblemData data(device_, desc);
    for (Kernel* kernel : registry.kernels()) {
      if (!kernel->id().starts_with(options_.kernel)) continue;
      if (OutOfBudget()) {
        ++report_.left_out;
        continue;
      }
      if (!Pair(*kernel, data)) return false;
    }
    return true;
  }

  VerifyReport Take() { return std::move(report_); }

 private:
  bool OutOfBudget() const {
    return options_.budget_s > 0 &&
           std::chrono::duration<double>(Clock::now() - start_).count() > options_.budget_s;
  }

  bool Pair(Kernel& kernel, ProblemData& data) {
    const GemmDesc& desc = data.desc();
    const Feasibility feasibility = kernel.why(desc);
    if (kernel.is_feasible(desc) != feasibility.ok()) {
      Fail(kernel, desc, "is_feasible and why contradict each other");
      return true;
    }
    if (!feasibility.ok()) {
      if (std::strlen(feasibility.reason()) == 0)
        Fail(kernel, desc, "refuses without a reason");
      else
        ++report_.refused;
      return true;
    }
    // A library that is absent, or whose heuristic knows no way, is no defect.
    if (!kernel.available().ok() ||
        Variants(kernel, desc).status().code() == StatusCode::kUnsupported) {
      ++report_.refused;
      return true;
    }
    if (options_.on_case && !CaughtNo([&] { return options_.on_case(kernel.id(), desc); })) {
      return false;
    }
    Accuracy accuracy;
    const Status status = CheckKernel(kernel, data, options_.repeats, accuracy);
    if (accuracy.known) Note(kernel, desc, accuracy.relative_l2);
    if (status.ok())
      ++report_.passed;
    else
      Fail(kernel, desc, status.message());
    return true;
  }

  void Note(const Kernel& kernel, const GemmDesc& desc, double relative_l2) {
    const std::string family = kernel.id().substr(0, kernel.id().find('/'));
    const auto same = [&](const VerifyAccuracy& a) {
      return a.family == family && a.type_a == desc.a.type && a.type_d == desc.d.type;
    };
    auto at = std::ranges::find_if(report_.accuracy, same);
    if (at == report_.accuracy.end())
      at = report_.accuracy.insert(at, {family, desc.a.type, desc.d.type});
    at->relative_l2 = std::max(at->relative_l2, relative_l2);
    at->limit = std::max(at->limit, RelativeL2Limit(desc, AccumulatorFor(kernel.desc(), desc)));
    ++at->problems;
  }

  void Fail(const Kernel& kernel, const GemmDesc& desc, const std::string& what) {
    ++report_.failed;
    report_.failures.push_back({kernel.id(), desc,
                                fmt::format("{}; repeat with: culet verify --kernel {}{}", what,
                                            kernel.id(), options_.quick ? " --quick" : "")});
  }

  const DeviceInfo& device_;
  const VerifyOptions& options_;
  Clock::time_point start_;
  VerifyReport report_;
};

}  // namespace

VerifyReport Verify(const Registry& registry, const DeviceInfo& device,
                    const VerifyOptions& options) {
  Run run(device, options);
  for (const GemmDesc& desc : ConformanceProblems(device.arch, options.quick)) {
    if (!run.Problem(registry, desc)) break;
  }
  return run.Take();
}

}  // namespace culet
