// Sums over the GPUs of a host by kernels that write into each other's memory: one launch on each
// rank, in the same order on all.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/types.h"
#include "kernels/cuda_ops/fused.h"
#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// What a rank keeps between its exchanges, in its own memory. Zero at first.
struct alignas(16) ExchangeControl {
  std::uint32_t epoch = 0;    ///< of the last exchange
  std::uint32_t failed = 0;   ///< not 0: a rank did not come, and nobody waits any more
  std::uint32_t tickets = 0;  ///< blocks of the exchange that is running
};

/// Memory of the host that the kernels read and write in place. Zero at first.
struct ExchangeStatus {
  std::uint32_t abort = 0;  ///< the host's: not 0 ends all waits
  std::uint32_t late = 0;   ///< one more than the rank that did not come
  std::uint32_t epoch = 0;  ///< of the exchange in which it was missed
};

/// Where ranks meet. Each rank's area has room for `slots` packets of 16 bytes from each rank in
/// each of two generations, and behind them for `groups` of tiles of two shots; zero at first.
struct ExchangePeers {
  void* const* areas = nullptr;  ///< (ranks), on the device: of all ranks, in this one's addresses
  ExchangeControl* control = nullptr;
  ExchangeStatus* status = nullptr;
  int rank = 0, ranks = 1;
  std::int64_t slots = 0;
  std::int64_t groups = 0;     ///< a multiple of four
  std::uint64_t limit_ns = 0;  ///< of a wait
};
constexpr std::size_t kPacketBytes = 16;
constexpr int kTwoShotTile = 2048;  ///< floats of a tile: a group has one of each rank
/// Bytes of an area: packets of both generations, then of each generation and shot a word and a
/// tile for each group and rank.
constexpr std::size_t ExchangeAreaBytes(int ranks, std::int64_t slots, std::int64_t groups = 0) {
  const std::size_t packets = kPacketBytes * static_cast<std::size_t>(slots);
  const std::size_t tiles =
      2 * sizeof(float) * (1 + kTwoShotTile) * static_cast<std::size_t>(groups);
  return 2 * static_cast<std::size_t>(ranks) * (packets + tiles);
}

/// The sum over all ranks of their x, in FP32 in the order of the ranks: the same bits on all.
/// A rank that does not come within the limit, or an abort, leaves NaN, and the status says who.
struct AllReduceArgs {
  ExchangePeers peers;
  const float* x = nullptr;
  float* sum = nullptr;  ///< may be x
  std::int64_t count = 0;
  /// What goes between the GPUs, of all ranks: float32, or bfloat16, which rounds each summand.
  DataType wire = DataType::kFloat32;
  int units = 1;  ///< multiprocessors
};
/// Packets of one rank that an all-reduce of so many elements takes.
std::int64_t AllReduceSlots(std::int64_t count, DataType wire);
/// Whether x and sum suit it: whole vectors of four.
bool CanAllReduce(const AllReduceArgs& args);
/// Requires: CanAllReduce; slots for it.
cudaError_t AllReduce(const AllReduceArgs& args, LaunchStream stream);

/// Groups of tiles that an all-reduce of two shots takes.
std::int64_t TwoShotGroups(std::int64_t count, int ranks);
/// As AllReduce, in two trips: each rank sums its part of the elements for all, so that none sends
/// or reads more than twice the values, and packets carry no epoch. FP32: the bits of AllReduce.
/// BF16: a summand of another rank is rounded, and the sum once more.
/// Requires: CanAllReduce; groups for it.
cudaError_t AllReduceTwoShot(const AllReduceArgs& args, LaunchStream stream);

/// On all ranks the columns of all, side by side, float32.
struct AllGatherArgs {
  ExchangePeers peers;
  static constexpr int kMostRanks = 32;
  const float* x = nullptr;  ///< (rows, bounds[rank + 1] - bounds[rank])
  float* all = nullptr;      ///< (rows, bounds[ranks])
  std::int64_t rows = 0;
  std::int64_t bounds[kMostRanks + 1] = {};
  int units = 1;
};
/// Packets of the rank with most; 0 for what it does not take: many ranks, and columns that lie in
/// no whole vectors of four.
std::int64_t AllGatherSlots(const AllGatherArgs& args);
/// Requires: AllGatherSlots is not 0, and there are as many.
cudaError_t AllGather(const AllGatherArgs& args, LaunchStream stream);

/// On all ranks, of each row, the index of the largest element of the columns of all, the first of
/// equals; -1 where one is NaN, and where a rank did not come.
struct AllArgMaxArgs {
  ExchangePeers peers;
  const float* x = nullptr;             ///< (rows, cols)
  const std::int32_t* local = nullptr;  ///< (rows): the ArgMax of x
  std::int32_t* all = nullptr;          ///< (rows)
  std::int64_t rows = 0, cols = 0;
  std::int64_t first = 0;  ///< what comes before this rank's columns
};
/// A packet a row. Requires: one row to kMostArgMaxRows, whose blocks run at once for certain, and
/// as many slots.
constexpr std::int64_t kMostArgMaxRows = 4096;
cudaError_t AllArgMax(const AllArgMaxArgs& args, LaunchStream stream);
/// Its parts, where something else exchanges the keys (rows): what the largest of all ranks' is of.
cudaError_t KeysOfArgMax(const AllArgMaxArgs& args, std::uint64_t* keys, LaunchStream stream);
cudaError_t ArgMaxOfKeys(const std::uint64_t* keys, std::int32_t* all, std::int64_t rows,
                         LaunchStream stream);

/// An all-reduce of rows, the residual sum, its norm and the codes of that, as FusedNorm makes
/// them of `norm`, but for the order in which squares are added. norm.x is what is all-reduced and
/// norm.y the residual (null: none), both float32, without norm.from.
struct AllReduceNormArgs {
  ExchangePeers peers;
  FusedNormArgs norm;
  DataType wire = DataType::kFloat32;
  int units = 1;
};
/// As AllReduceSlots; 0 for rows that it does not take.
std::int64_t AllReduceNormSlots(std::int64_t rows, int width, DataType wire, int units);
/// Requires: AllReduceNormSlots is not 0, and there are as many; pointers aligned to 16 bytes.
cudaError_t AllReduceNorm(const AllReduceNormArgs& args, LaunchStream stream);

}  // namespace culet::cuda_ops
