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

/// Bytes of a rank's sum up to which kernels of one push are launched. Each rank sends its whole
/// values to all others, in packets of which a quarter is the epoch: with few ranks that is as
/// little as any way there is, and it saves the others' second trip. Two GPUs with 450 GB/s reach
/// NCCL's time at some 24 MB, more ranks at less, as the bytes grow with their number.
std::size_t MostBytesOfPush(int ranks);

/// What a peer exchange is made of.
struct PeerSetup {
  std::vector<void*> areas;  ///< of all ranks, of ExchangeAreaBytes(ranks, PeerSlots(ranks)), zero
  std::shared_ptr<void> owner;          ///< keeps the areas
  std::shared_ptr<RankExchange> other;  ///< for what is larger than a push; null: several pushes
  int device = -1;                      ///< -1: the host
  int units = 1;                        ///< multiprocessors, equal on all ranks
};
/// Packets of a rank in an area.
std::int64_t PeerSlots(int ranks);

/// Requires: ranks and memory that outlive it. Errors: as DeviceMemory.
Result<std::unique_ptr<RankExchange>> MakePeerExchangeOver(Communicator& ranks,
                                                           DeviceMemory& memory, PeerSetup setup);

}  // namespace culet::cuda_ops
