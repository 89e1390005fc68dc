// What the emulation's own files know of the threads that run: a thread that waits for anything,
// and work that happens by itself at some time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host_cuda.h"

namespace culet::host_cuda {

/// Suspends the running thread until `holds` returns true, which others make it do.
void WaitUntil(bool (*holds)(void*), void* argument);
template <class Holds>
void WaitUntil(Holds holds) {
  WaitUntil([](void* argument) { return (*static_cast<Holds*>(argument))(); }, &holds);
}

/// Work that a thread started. It happens at any time after that, once.
struct Transfer {
  std::function<void()> work;
  bool done = false;
  void Happen() {
    if (!std::exchange(done, true)) work();
  }
};
void Later(std::shared_ptr<Transfer> transfer);

/// Work that happens once all lanes of the running thread's warp that can run have done so: lanes
/// run together, so one of them tells others what all of them have done.
void Soon(std::function<void()> work);

/// Fails the launch: at once in a thread, which goes no further, and soon in work of Later or of a
/// warp, which returns.
void Fail(std::string what);

/// Lets the warps of the cluster run at different paces from now on.
void DriftWarps();
bool Coin();
/// The running thread, among all of its cluster.
std::size_t RunningThread();
std::size_t ThreadsOfBlock();
int BlocksOfCluster();
/// The running thread's block.
int RankInCluster();
/// Of a block.
std::size_t SharedBytes();
/// The running thread's copies (CopyAsync) that have not happened.
std::function<void()> TakeCopies();
/// Like WaitForPrevious, for a thread whose block need not come with it. A block waits when one of
/// its threads does.
void WaitForPreviousAlone();

// As much as any multiprocessor gives a block.
constexpr std::size_t kMostShared = std::size_t{227} << 10, kMostCluster = 8;

/// Called when a grid begins.
void BeginGrid();
/// Runs the blocks of a cluster, of `indices`. Returns what went wrong.
std::string RunCluster(dim3 size, std::span<const uint3> indices, std::size_t shared,
                       const std::function<void()>& body);
/// Of the grid, so far: those that called WaitForPrevious, or whose block did.
std::size_t ThreadsThatWaited();

/// Called when a cluster begins, when a thread ends and when all have ended (async.cc).
void BeginAsync(std::size_t threads);
void EndThread();
void EndAsync();

}  // namespace culet::host_cuda
