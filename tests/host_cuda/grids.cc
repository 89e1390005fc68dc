// Launches: what a grid and its shared memory may be, and its blocks one cluster after the other.
#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "host_cuda.h"
#include "running_threads.h"

namespace culet::host_cuda {
namespace {

thread_local std::string fault;
thread_local std::function<cudaError_t()> on_launch;
thread_local std::vector<bool> overlaps;

std::mutex allowed_mutex;
std::map<const void*, std::size_t> allowed;
}  // namespace

const std::string& Fault() { return fault; }

void OnLaunch(std::function<cudaError_t()> before) { on_launch = std::move(before); }
std::vector<bool> TakeOverlaps() { return std::exchange(overlaps, {}); }

void AllowShared(const void* kernel, std::size_t bytes) {
  const std::lock_guard lock(allowed_mutex);
  allowed[kernel] = bytes;
}

bool IsSharedAllowed(const void* kernel, std::size_t bytes) {
  constexpr std::size_t kAlways = std::size_t{48} << 10;
  std::size_t most = kAlways;
  {
    const std::lock_guard lock(allowed_mutex);
    if (const auto found = allowed.find(kernel); found != allowed.end())
      most = std::max(found->second, kAlways);
  }
  if (bytes <= most && bytes <= kMostShared) return true;
  fault = fmt::format("{} bytes of dynamic shared memory, {} are allowed", bytes, most);
  return false;
}

cudaError_t RunGrid(const cudaLaunchConfig_t& config, const std::function<void()>& body) {
  if (on_launch) {
    if (const cudaError_t error = on_launch(); error != cudaSuccess) {
      fault = "a launch that was to fail";
      return error;
    }
  }
  const dim3 grid = config.gridDim, size = config.blockDim;
  bool overlap = false;
  dim3 in_cluster;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& size_of = attribute.val.clusterDim;
      in_cluster = dim3(size_of.x, size_of.y, size_of.z);
    } else {
      overlap = attribute.val.programmaticStreamSerializationAllowed != 0;
    }
  }
  constexpr unsigned kMostThreads = 1024, kMostRows = 65535;
  const std::size_t threads = std::size_t{size.x} * size.y * size.z;
  const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMostThreads || blocks == 0 || grid.y > kMostRows ||
      grid.z > kMostRows) {
    fault =
        fmt::format("a grid of {} x {} x {} blocks of {} threads", grid.x, grid.y, grid.z, threads);
    return cudaErrorInvalidValue;
  }
  const unsigned of_cluster = in_cluster.x * in_cluster.y;
  if (of_cluster == 0 || of_cluster > kMostCluster || in_cluster.z != 1 ||
      grid.x % in_cluster.x != 0 || grid.y % in_cluster.y != 0) {
    fault = fmt::format("clusters of {} x {} blocks in a grid of {} x {}", in_cluster.x,
                        in_cluster.y, grid.x, grid.y);
    return cudaErrorInvalidValue;
  }
  gridDim = grid;
  blockDim = size;
  BeginGrid();
  overlaps.push_back(overlap);
  std::vector<std::size_t> order(blocks / of_cluster);
  std::iota(order.begin(), order.end(), 0);
  std::minstd_rand random(static_cast<unsigned>(blocks));
  std::shuffle(order.begin(), order.end(), random);
  const std::size_t columns = grid.x / in_cluster.x, rows = grid.y / in_cluster.y;
  std::vector<uint3> indices(of_cluster);
  for (const std::size_t i : order) {
    for (unsigned rank = 0; rank < of_cluster; ++rank) {
      indices[rank] = {
          static_cast<unsigned>(i % columns) * in_cluster.x + rank % in_cluster.x,
          static_cast<unsigned>(i / columns % rows) * in_cluster.y + rank / in_cluster.x,
          static_cast<unsigned>(i / columns / rows)};
    }
    fault = RunCluster(size, indices, config.dynamicSmemBytes, body);
    if (!fault.empty()) return cudaErrorLaunchFailure;
  }
  const std::size_t waited = ThreadsThatWaited();
  if (overlap && waited != blocks * threads) {
    fault = fmt::format("of {} threads that overlap {} wait for the kernel before",
                        blocks * threads, waited);
    return cudaErrorLaunchFailure;
  }
  return cudaSuccess;
}

}  // namespace culet::host_cuda

const char* cudaGetErrorString(cudaError_t) { return culet::host_cuda::Fault().c_str(); }
