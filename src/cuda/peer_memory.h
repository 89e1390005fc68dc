// Memory of a GPU that the GPUs of other processes read and write.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "culet/ranks.h"
#include "culet/status.h"

namespace culet {

/// A piece of memory of each rank's GPU, all of them mapped here. A piece lives until its last
/// mapping goes, so a rank that died leaves no fault behind.
class PeerMemory {
 public:
  /// `bytes`, the same on all ranks, zero at first, on GPU `device` of each. All ranks call it
  /// together. Errors: UNSUPPORTED, on all ranks, that names GPUs which cannot reach each other;
  /// RESOURCE_EXHAUSTED; as Communicator.
  static Result<std::unique_ptr<PeerMemory>> Create(Communicator& ranks, int device,
                                                    std::size_t bytes);
  virtual ~PeerMemory() = default;
  /// The pieces by their ranks, in this process's addresses.
  virtual const std::vector<void*>& pieces() const noexcept = 0;
};

}  // namespace culet
