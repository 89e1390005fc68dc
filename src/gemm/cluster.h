// Groups of alike LaunchSpecs, by index.
#pragma once

#include <span>
#include <vector>

#include "culet/kernel.h"

namespace culet {

/// Cluster() as indices into `specs`; groups in order of their first member, members ascending.
std::vector<std::vector<int>> ClusterIndices(std::span<const LaunchSpec> specs);

}  // namespace culet
