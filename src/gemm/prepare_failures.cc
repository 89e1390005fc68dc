#include "gemm/prepare_failures.h"

#include <algorithm>
#include <mutex>

namespace culet {

bool PrepareFailures::Note(const GemmDesc& desc, const LaunchSpec& spec, const Status& said) {
  if (said.ok() && !any_) return false;
  if (said.code() == StatusCode::kResourceExhausted) return false;
  const std::lock_guard lock(mutex_);
  const auto same = [&](const Failure& known) { return SameLaunch(known.spec, spec); };
  if (said.ok()) {
    const auto found = failures_.find(desc);
    if (found == failures_.end() || std::erase_if(found->second, same) == 0) return false;
    if (found->second.empty()) failures_.erase(found);
    any_ = !failures_.empty();
    return true;
  }
  if (failures_.size() >= kMaxProblems && !failures_.contains(desc)) failures_.clear();
  std::vector<Failure>& known = failures_[desc];
  std::erase_if(known, same);
  known.push_back({spec, said});
  any_ = true;
  return true;
}

std::vector<PrepareFailures::Failure> PrepareFailures::Of(const GemmDesc& desc) const {
  if (!any_) return {};
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(desc);
  return found != failures_.end() ? found->second : std::vector<Failure>();
}

bool PrepareFailures::Has(const GemmDesc& desc, const LaunchSpec& spec) const {
  if (!any_) return false;
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(desc);
  return found != failures_.end() && std::ranges::any_of(found->second, [&](const Failure& known) {
           return SameLaunch(known.spec, spec);
         });
}

}  // namespace culet
