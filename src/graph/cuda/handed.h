// Values that one launch of a graph hands on to the next, which then does not wait for its end.
#pragma once

#include "culet/kernel_dispatch.h"

namespace culet::cuda_ops {

/// What a PreparedNode is, too, whose launch may hand a value on.
class HandsOn {
 public:
  virtual ~HandsOn() = default;
  /// The node of that value, which the launch also stores as always; -1: it hands nothing on.
  virtual int handed_on() const noexcept = 0;
};

/// What a PreparedNode is, too, whose launch may be handed its input. Its state takes the value, and
/// is zero when a launch of the graph begins.
class TakesHanded {
 public:
  virtual ~TakesHanded() = default;
  /// The node of that value; -1: it waits for the launch before it.
  virtual int taken() const noexcept = 0;
};

/// Where a launch hands its value on; 0: nowhere.
DevicePtr HandedTo(const NodeLaunch& launch) noexcept;
/// Where a launch is handed its input; 0: the launch before has it when it has ended.
DevicePtr HandedFrom(const NodeLaunch& launch) noexcept;

/// Zeroes the state of all launches of the graph whose first one `launch` is, if any of them is
/// handed its input; what others keep there is zero between launches of the graph.
Status ClearHanded(const NodeLaunch& launch);

}  // namespace culet::cuda_ops
