// One kernel on one problem, through all stages of the conformance suite.
#pragma once

#include <array>
#include <optional>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/kernel.h"
#include "culet/scratch.h"
#include "culet/status.h"

namespace culet {

/// The synthetic data of one problem, shared by all kernels that take it; made when first used.
class ProblemData {
 public:
  /// Exact integers first: they find wrong indices, lost elements and lost factors. Then normal
  /// data against the bound, with gaps between lines. Then extreme values.
  enum Stage { kIntegers, kNormal, kExtreme, kFirstRow, kStages };

  ProblemData(const DeviceInfo& device, const GemmDesc& desc) : device_(device), desc_(desc) {}

  const GemmDesc& desc() const noexcept { return desc_; }

  /// kFirstRow is kNormal cut to m = 1: the same first row, B and k.
  Result<ScratchProblem*> Get(Stage stage);

 private:
  const DeviceInfo& device_;
  GemmDesc desc_;
  std::array<std::optional<ScratchProblem>, kStages> scratch_;
};

/// The largest relative L2 error of a right product of normal data, for 16384 outputs or more: the
/// one rounding to D's type and the accumulation before it, in `accumulator`, 4 % above what they
/// make together.
double RelativeL2Limit(const GemmDesc& desc, const Accumulator& accumulator = {}) noexcept;

/// The error of a product of normal data.
struct Accuracy {
  double relative_l2 = 0;  ///< the worst of all launches
  bool known = false;      ///< enough outputs were compared
};

/// Runs a kernel that called the problem feasible: the plain launch and the largest swizzle and
/// splits on every stage, then `repeats` launches of a kernel that declares kRepeatable for equal
/// bits, and one of the first row alone for a kernel that declares kBatchInvariant.
/// `accuracy` receives the error of the normal data.
/// Errors: kWrongResult with stage, parameters and element; what the launch returned.
Status CheckKernel(Kernel& kernel, ProblemData& data, int repeats, Accuracy& accuracy);

}  // namespace culet
