// RankExchange by kernels that write into each other's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "culet/device_memory.h"
#include "culet/ranks.h"
#include "culet/status.h"

namespace culet::cuda_ops {

/// What a peer exchange is made of.
struct PeerSetup {
  std::vector<void*> areas;             ///< of all ranks, of PeerAreaBytes, zero
  std::shared_ptr<void> owner;          ///< keeps the areas
  std::shared_ptr<RankExchange> other;  ///< for what is larger; null: two shots, or pushes
  ExchangeChoice choice;                ///< for which the areas have room
  int device = -1;                      ///< -1: the host
  int units = 1;                        ///< multiprocessors, equal on all ranks
};
/// Bytes of an area with room for two shots where the choice has them, and for pushes of more than
/// are usual.
std::size_t PeerAreaBytes(int ranks, const ExchangeChoice& choice);

/// Requires: ranks and memory that outlive it. Errors: as DeviceMemory.
Result<std::unique_ptr<RankExchange>> MakePeerExchangeOver(Communicator& ranks,
                                                           DeviceMemory& memory, PeerSetup setup);

}  // namespace culet::cuda_ops
