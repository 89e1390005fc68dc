// The conformance suite over a registry, for tests and for `culet verify` on a user's machine.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/registry.h"
#include "culet/status.h"

namespace culet {

struct VerifyOptions {
  std::string kernel;   ///< only kernels whose id starts with this; empty is all
  bool quick = false;   ///< edges only; leaves out the larger shapes
  double budget_s = 0;  ///< 0: no limit; what is left out is counted
  int repeats = 3;      ///< bitwise repeats of a kernel that declares kRepeatable; 20 are usual
                        ///< on a GPU, where the order of threads changes from run to run
  /// Called before each case; returning false, or throwing, ends the run. May be null.
  std::function<bool(const std::string& kernel_id, const GemmDesc& desc)> on_case;
};

/// One wrong result.
struct VerifyFailure {
  std::string kernel_id;
  GemmDesc desc;
  std::string message;  ///< what differs, and the `culet verify` arguments that repeat it
};

/// How near the products of normal data came, over all problems with the same types: those with
/// 16384 outputs compared or more, so that the figure says something.
struct VerifyAccuracy {
  std::string family;  ///< the kernels' ids up to the first slash
  DataType type_a = DataType::kNull;
  DataType type_d = DataType::kNull;
  double relative_l2 = 0;  ///< the worst
  double limit = 0;        ///< above is a failure (docs/numerics.md)
  int problems = 0;
};

struct VerifyReport {
  int passed = 0;
  int failed = 0;
  int refused = 0;   ///< kernel and problem pairs refused with a reason
  int left_out = 0;  ///< by the budget
  std::vector<VerifyFailure> failures;
  std::vector<VerifyAccuracy> accuracy;
  bool ok() const noexcept { return failed == 0 && passed > 0; }
};

/// The problems of the suite: every format and output, orders, alpha, beta, C, bias, m around every
/// tile edge, n and k around every alignment and scale block, strided ld, misaligned pointers.
std::vector<GemmDesc> ConformanceProblems(int arch, bool quick);

/// Runs every kernel on every problem: feasible means correct, refused means a reason. Exact
/// integers first, then normal data, then extreme values; outputs are poisoned, guards checked.
VerifyReport Verify(const Registry& registry, const DeviceInfo& device,
                    const VerifyOptions& options = {});

}  // namespace culet
