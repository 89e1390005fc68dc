// The CPU quota of the control groups that this process is in.
#pragma once

#include <string>

namespace culet {

/// CPUs that the quotas of the process's cgroup and of all above it allow, rounded up, the least of
/// them; 0 for no limit. Versions 1 and 2, wherever they are mounted. `root` stands in front of
/// /proc and /sys: tests have their own.
int CgroupCpus(const std::string& root = "");

}  // namespace culet
