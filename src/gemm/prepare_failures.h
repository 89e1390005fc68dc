// PrepareFailures: launches whose Kernel::Prepare failed, although `why` took the problem.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <vector>

#include "base/fork_mutex.h"
#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/status.h"

namespace culet {

/// For the life of an engine: the choice passes them by, and explain() says so. Safe for concurrent
/// use.
class PrepareFailures {
 public:
  struct Failure {
    LaunchSpec spec;
    Status reason;
  };

  /// Records Prepare's result for a launch. A success revokes an earlier failure; lack of memory is
  /// not remembered, since it may pass. Returns whether anything changed.
  bool Note(const GemmDesc& desc, const LaunchSpec& spec, const Status& said);

  std::vector<Failure> Of(const GemmDesc& desc) const;
  bool Has(const GemmDesc& desc, const LaunchSpec& spec) const;

 private:
  // A device that refuses everything must not fill the memory with reasons.
  static constexpr std::size_t kMaxProblems = 1024;

  std::atomic<bool> any_ = false;  // the hot path looks at this alone
  mutable ForkMutex mutex_;
  std::map<GemmDesc, std::vector<Failure>> failures_;
};

}  // namespace culet
