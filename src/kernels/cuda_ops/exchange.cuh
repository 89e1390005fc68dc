// What exchanges between GPUs have in common: the turn, packets, and waits that end.
//
// Each rank pushes its values to all others in packets that carry the exchange's epoch, and sums
// what it receives. Areas have two generations, used by turns. A rank writes one again at epoch
// e + 2, when it has received all of e + 1, which the others sent after their kernel of epoch e had
// ended: nobody reads what is overwritten. Hence every rank sends to every other one in each
// exchange, and only after it has waited for the kernel before.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda_ops/exchange.h"
#include "kernels/cuda_ops/overlap.cuh"
#include "kernels/cuda_ops/peers.cuh"
#include "kernels/cuda_ops/values.cuh"

namespace culet::cuda_ops {

/// Elements that a thread exchanges at a time, and the vectors that they lie in.
constexpr int kEach = 12, kVector = 4, kVectors = kEach / kVector;

template <class Wire>
constexpr int kPackets = kEach* static_cast<int>(sizeof(Wire)) / 12;

/// The epoch after `epoch`; 0 is that of no packet, and generations alternate.
__device__ __forceinline__ std::uint32_t NextEpoch(std::uint32_t epoch) {
  return epoch + 1 == 0 ? 2 : epoch + 1;
}

/// One exchange, as its blocks know it.
struct Turn {
  std::uint32_t epoch, failed;
};

/// A block's part in an exchange. Requires: no more blocks than run at once, since all of them
/// wait.
class Exchange {
 public:
  /// All threads of the block, after the wait for the kernel before; `shared`: of the block.
  __device__ __forceinline__ Exchange(const ExchangePeers& peers, Turn* shared) : peers_(peers) {
    if (threadIdx.x == 0) {
      shared->epoch = NextEpoch(__ldcg(&peers.control->epoch));
      shared->failed = __ldcg(&peers.control->failed);
    }
    __syncthreads();
    epoch_ = shared->epoch;
    lost_ = shared->failed != 0;
    // Taken here and looked at in the end, when it has long come. Who has the last one knows that
    // all blocks have read the epoch.
    if (threadIdx.x == 0) ticket_ = atomicAdd(&peers.control->tickets, 1u);
    if ((epoch_ & (kSweepEvery - 1)) < 2) {
      const std::int64_t other = (epoch_ & 1) ^ 1, count = peers.ranks * peers.slots;
      uint4* const area = static_cast<uint4*>(peers.areas[peers.rank]);
      Clear(area + other * count, count);
      const std::int64_t words = 2 * peers.ranks * (peers.groups / 4);  // packets that they are
      if (words > 0) Clear(area + 2 * count + other * words, words);
    }
  }

  /// All threads, when they need the epoch no more.
  __device__ __forceinline__ void End() {
    if (threadIdx.x == 0 && ticket_ == gridDim.x * gridDim.y - 1) {
      peers_.control->tickets = 0;
      peers_.control->epoch = epoch_;
    }
  }

  __device__ __forceinline__ std::uint32_t epoch() const { return epoch_; }
  __device__ __forceinline__ bool lost() const { return lost_; }
  __device__ __forceinline__ void Lose() { lost_ = true; }

  /// Waits until rank `of` has written the epoch there. False: it does not come.
  __device__ __forceinline__ bool Await(const std::uint32_t* word, int of) {
    while (!lost_ && ReadShared(word) != epoch_) lost_ = GivesUp(of);
    return !lost_;
  }

  /// Sends the thread's elements to all other ranks: packet p at `slot` + p * `stride`.
  template <class Wire>
  __device__ __forceinline__ void Push(float (&x)[kEach], std::int64_t slot, int stride) const {
    uint4 packets[kPackets<Wire>];
    Pack<Wire>(x, packets);
    // From the next rank on, so that not all write to one at first.
    for (int i = 1; i < peers_.ranks; ++i) {
      const int to = (peers_.rank + i) % peers_.ranks;
      uint4* const at = Slots(to, peers_.rank) + slot;
#pragma unroll
      for (int p = 0; p < kPackets<Wire>; ++p) SendPacket(at + p * stride, packets[p]);
    }
  }

  /// Makes of x, as it was pushed, the sum over all ranks.
  template <class Wire>
  __device__ __forceinline__ void Sum(float (&x)[kEach], std::int64_t slot, int stride) {
    float sum[kEach];
    for (int from = 0; from < peers_.ranks; ++from) {
      float part[kEach];
      if (from == peers_.rank) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) part[i] = x[i];
      } else {
        Receive<Wire>(from, slot, stride, part);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum[i] = from == 0 ? part[i] : sum[i] + part[i];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = sum[i];
  }

  /// Waits for what `rank`, another one, has pushed so; NaN if it does not come.
  template <class Wire>
  __device__ __forceinline__ void Receive(int rank, std::int64_t slot, int stride,
                                          float (&to)[kEach]) {
    const uint4* const from = Slots(peers_.rank, rank) + slot;
    constexpr int kOf = kEach / kPackets<Wire>;
    uint4 packets[kPackets<Wire>];
    for (bool all = lost_; !all;) {
      all = true;
#pragma unroll
      for (int p = 0; p < kPackets<Wire>; ++p) {
        packets[p] = ReadPacket(from + p * stride);
        all &= packets[p].w == epoch_;
      }
      if (!all) lost_ = all = GivesUp(rank);
    }
#pragma unroll
    for (int p = 0; p < kPackets<Wire>; ++p) {
      const unsigned words[3] = {packets[p].x, packets[p].y, packets[p].z};
#pragma unroll
      for (int i = 0; i < kOf; ++i) {
        unsigned bits;
        if constexpr (std::is_same_v<Wire, float>) {
          bits = words[i];
        } else {
          bits = i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xFFFF0000u;
        }
        to[p * kOf + i] = lost_ ? NotANumber() : __uint_as_float(bits);
      }
    }
  }

  /// A key and the epoch in one packet to all other ranks, and what `rank` has sent so; 0 if it
  /// does not come.
  __device__ __forceinline__ void PushKey(std::uint64_t key, std::int64_t slot) const {
    const uint4 packet = make_uint4(static_cast<std::uint32_t>(key),
                                    static_cast<std::uint32_t>(key >> 32), 0, epoch_);
    for (int i = 1; i < peers_.ranks; ++i) {
      SendPacket(Slots((peers_.rank + i) % peers_.ranks, peers_.rank) + slot, packet);
    }
  }
  __device__ __forceinline__ std::uint64_t ReceiveKey(int rank, std::int64_t slot) {
    const uint4* const from = Slots(peers_.rank, rank) + slot;
    while (!lost_) {
      const uint4 packet = ReadPacket(from);
      if (packet.w == epoch_) return std::uint64_t{packet.y} << 32 | packet.x;
      lost_ = GivesUp(rank);
    }
    return 0;
  }

 private:
  // Once in so many exchanges each rank clears what it received, so that no packet is as old as all
  // epochs are many: it would pass for a new one.
  static constexpr std::uint32_t kSweepEvery = 1u << 20;

  __device__ __forceinline__ uint4* Slots(int of, int from) const {
    const std::int64_t generation = epoch_ & 1;
    return static_cast<uint4*>(peers_.areas[of]) +
           (generation * peers_.ranks + from) * peers_.slots;
  }

  // The other generation: nobody writes it before all blocks of this rank have pushed.
  __device__ __noinline__ static void Clear(uint4* area, std::int64_t count) {
    const std::int64_t block = blockIdx.y * std::int64_t{gridDim.x} + blockIdx.x;
    const std::int64_t step = std::int64_t{gridDim.x} * gridDim.y * blockDim.x;
    for (std::int64_t i = block * blockDim.x + threadIdx.x; i < count; i += step) {
      SendPacket(area + i, make_uint4(0, 0, 0, 0));
    }
    FenceSystem();
    __syncthreads();
  }

  // Rounds x to what the others get.
  template <class Wire>
  __device__ __forceinline__ void Pack(float (&x)[kEach], uint4 (&to)[kPackets<Wire>]) const {
    constexpr int kOf = kEach / kPackets<Wire>;
#pragma unroll
    for (int p = 0; p < kPackets<Wire>; ++p) {
      if constexpr (std::is_same_v<Wire, float>) {
        to[p] = make_uint4(__float_as_uint(x[p * kOf]), __float_as_uint(x[p * kOf + 1]),
                           __float_as_uint(x[p * kOf + 2]), epoch_);
      } else {
        unsigned words[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          // The upper half of a float is the bfloat16 of a value that is one.
          float &low = x[p * kOf + 2 * i], &high = x[p * kOf + 2 * i + 1];
          low = Rounded<Wire>(low);
          high = Rounded<Wire>(high);
          words[i] = __float_as_uint(low) >> 16 | (__float_as_uint(high) & 0xFFFF0000u);
        }
        to[p] = make_uint4(words[0], words[1], words[2], epoch_);
      }
    }
  }

  // After a look in vain: whether to look no more.
  __device__ __forceinline__ bool GivesUp(int rank) {
    Pause();
    if (++looks_ % kLooksBetween != 0) return false;
    if (began_ == 0) began_ = Nanoseconds();
    const bool late = Nanoseconds() - began_ > peers_.limit_ns;
    if (!late && ReadShared(&peers_.status->abort) == 0) return false;
    WriteShared(&peers_.control->failed, 1);
    if (late) Blame(peers_.status, epoch_, rank);
    return true;
  }
  // The first one that is missed is named; others that are missed are as good.
  __device__ __noinline__ static void Blame(ExchangeStatus* status, std::uint32_t epoch, int rank) {
    WriteShared(&status->epoch, epoch);
    FenceSystem();
    WriteShared(&status->late, static_cast<std::uint32_t>(rank) + 1);
  }

  const ExchangePeers& peers_;  // the kernel's parameter
  std::uint32_t epoch_, ticket_ = 0, looks_ = 0;
  bool lost_;
  std::uint64_t began_ = 0;
};

/// The thread's elements of x: vectors `first` + i * `stride` of `count`; zeros beyond the end.
__device__ __forceinline__ void LoadVectors(const float* x, std::int64_t first, int stride,
                                            std::int64_t count, float (&to)[kEach]) {
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const std::int64_t at = first + i * stride;
    float vector[kVector] = {};
    if (at < count) Load(x + at * kVector, vector);
#pragma unroll
    for (int j = 0; j < kVector; ++j) to[i * kVector + j] = vector[j];
  }
}

/// Element i * kVector of the thread's, as a vector.
__device__ __forceinline__ void TakeVector(const float (&x)[kEach], int i, float (&to)[kVector]) {
#pragma unroll
  for (int j = 0; j < kVector; ++j) to[j] = x[i * kVector + j];
}

}  // namespace culet::cuda_ops
