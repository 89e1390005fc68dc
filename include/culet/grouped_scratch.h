// Synthetic grouped products: operands and routings for tuning and benchmarks.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "culet/desc.h"
#include "culet/device.h"
#include "culet/gemm.h"
#include "culet/grouped_class.h"
#include "culet/status.h"

namespace culet {

struct GroupedScratchOptions {
  /// Launches follow this routing; by default all three, the even one in half of the time.
  std::optional<GroupedRouting> routing = {};
  unsigned seed = 1;
  std::function<bool()> stop = {};  ///< as ScratchOptions::stop
};

/// Operands of a grouped problem in memory of its own, and starts as several routings leave them.
class GroupedScratch {
 public:
  /// Errors: INVALID_ARGUMENT for a desc that DescribeGrouped could not have made;
  /// RESOURCE_EXHAUSTED when memory is short or `stop` said so.
  static Result<GroupedScratch> Create(const DeviceInfo& device, const GemmDesc& desc,
                                       const GroupedScratchOptions& options = {});
  ~GroupedScratch();
  GroupedScratch(GroupedScratch&&) noexcept;
  GroupedScratch& operator=(GroupedScratch&&) noexcept;

  /// Of the routings that are launched: what they leave on average.
  GroupedRows rows() const noexcept;

  /// Launches each kind of routing on a poisoned D, and compares elements of all groups, or of 24,
  /// with sums in double. `spec` null: the engine's choice, and what the CPU does. Errors:
  /// WRONG_RESULT with element and values; as GroupedGemm.
  Status Check(Gemm& gemm, const LaunchSpec* spec);

  /// Microseconds of a launch, over the routings in turn: on a GPU in a CUDA graph, `sustained` as
  /// TimedLaunch::SampleUs; of several kinds the geometric mean. Errors: as GroupedGemm.
  Result<double> SampleUs(Gemm& gemm, const LaunchSpec* spec, bool sustained = false,
                          const std::function<bool()>& give_up = nullptr);

 private:
  struct Impl;
  explicit GroupedScratch(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace culet
