#include "cuda/runtime.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "base/device_scope.h"
#include "cuda/device_memory.h"
#include "cuda/error.h"
#include "cuda/measure.h"

namespace culet {
namespace {

struct EventDeleter {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, EventDeleter>;

Result<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  CULET_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "cudaEventCreate"));
  return Event(event);
}

struct StreamDeleter {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<CUstream_st, StreamDeleter>;

struct GraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<CUgraph_st, GraphDeleter>;

struct ExecutableDeleter {
  void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
};
using Executable = std::unique_ptr<CUgraphExec_st, ExecutableDeleter>;

// The stream that graphs are recorded and replayed on, and the events around a replay. One thread
// at a time uses them.
struct Stopwatch {
  std::mutex mutex;
  Stream stream;
  Event start, end;

  Status Make() {
    if (stream != nullptr) return {};
    cudaStream_t made = nullptr;
    CULET_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking),
                                     "cudaStreamCreateWithFlags"));
    Stream owned(made);
    auto first = MakeEvent();
    if (!first) return first.status();
    auto last = MakeEvent();
    if (!last) return last.status();
    // On an H200 with CUDA 13.0 the kernels of a graph follow each other faster until the process
    // has launched eight by themselves on a stream that it made (0.62 us for an empty kernel, 0.80
    // from then on). Inference programs have launched far more, and candidates measured first must
    // not gain by it.
    constexpr int kFirstLaunches = 16;
    for (int i = 0; i < kFirstLaunches; ++i)
      CULET_RETURN_IF_ERROR(CudaStatus(LaunchPause(0, made), "a first launch"));
    CULET_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(made), "the first launches"));
    start = *std::move(first);
    end = *std::move(last);
    stream = std::move(owned);
    return {};
  }
};

Result<double> MicrosecondsBetween(cudaEvent_t start, cudaEvent_t end) {
  float milliseconds = 0;
  CULET_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, start, end), "cudaEventElapsedTime"));
  return milliseconds * 1e3;
}

class GraphReplay final : public Replay {
 public:
  GraphReplay(int ordinal, Stopwatch& watch, Executable graph, std::size_t nodes)
      : ordinal_(ordinal), watch_(watch), graph_(std::move(graph)), nodes_(nodes) {}
  ~GraphReplay() override {
    const DeviceScope scope(ordinal_);
    graph_.reset();
  }

  Result<double> TimeUs(int times) override {
    // The clock starts while the device still is busy: what the host takes to launch the graph
    // must not count.
    constexpr unsigned kLaunchNs = 20'000, kNodeNs = 150;
    const auto pause_ns = static_cast<unsigned>(kLaunchNs + kNodeNs * nodes_);
    const DeviceScope scope(ordinal_);
    const std::lock_guard lock(watch_.mutex);
    cudaStream_t stream = watch_.stream.get();
    CULET_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "the work before a replay"));
    CULET_RETURN_IF_ERROR(CudaStatus(LaunchPause(pause_ns, stream), "a pause"));
    CULET_RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(watch_.start.get(), stream), "cudaEventRecord"));
    for (int i = 0; i < times; ++i)
      CULET_RETURN_IF_ERROR(CudaStatus(cudaGraphLaunch(graph_.get(), stream), "cudaGraphLaunch"));
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(watch_.end.get(), stream), "cudaEventRecord"));
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(watch_.end.get()), "the launches"));
    const auto total_us = MicrosecondsBetween(watch_.start.get(), watch_.end.get());
    if (!total_us) return total_us.status();
    return *total_us / times;
  }

 private:
  int ordinal_;
  Stopwatch& watch_;
  Executable graph_;
  std::size_t nodes_;
};

class CudaDeviceRuntime final : public Runtime {
 public:
  explicit CudaDeviceRuntime(int ordinal) : ordinal_(ordinal) {}

  DeviceMemory& memory() noexcept override { return CudaMemory(ordinal_); }

  Result<OutputScan> Scan(const OutputLines& lines, const void* found,
                          const void* pristine) override {
    constexpr std::size_t kBytes = 2 * sizeof(unsigned long long);
    const DeviceScope scope(ordinal_);
    const auto block = DeviceBuffer::Create(memory(), kBytes);
    if (!block) return block.status();
    auto* counters = FromDevicePtr<unsigned long long>(block->get());
    unsigned long long counted[2] = {};
    CULET_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(counters, 0, kBytes, nullptr), "cudaMemset"));
    CULET_RETURN_IF_ERROR(
        CudaStatus(LaunchScan(lines, found, pristine, counters, nullptr), "a scan of the output"));
    CULET_RETURN_IF_ERROR(memory().Download(counted, block->get(), kBytes, nullptr));
    return OutputScan{static_cast<std::size_t>(counted[0]), counted[1] == 0};
  }

  Status Gather(const void* base, std::span<const std::size_t> offsets, std::size_t element_bytes,
                void* to) override {
    const DeviceScope scope(ordinal_);
    const std::size_t gathered = offsets.size() * element_bytes;
    const auto block = DeviceBuffer::Create(memory(), offsets.size_bytes() + gathered);
    if (!block) return block.status();
    const DevicePtr out = block->get() + offsets.size_bytes();
    CULET_RETURN_IF_ERROR(
        memory().Upload(block->get(), offsets.data(), offsets.size_bytes(), nullptr));
    CULET_RETURN_IF_ERROR(
        CudaStatus(LaunchGather(base, FromDevicePtr<std::size_t>(block->get()), offsets.size(),
                                element_bytes, FromDevicePtr<void>(out), nullptr),
                   "gathering elements of the output"));
    return memory().Download(to, out, gathered, nullptr);
  }

  Status Synchronize() override {
    const DeviceScope scope(ordinal_);
    return CudaStatus(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  Result<double> TimeUs(const std::function<Status()>& launch,
                        const std::function<bool()>& /*give_up*/) override {
    const DeviceScope scope(ordinal_);
    const auto start = MakeEvent();
    if (!start) return start.status();
    const auto end = MakeEvent();
    if (!end) return end.status();
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(start->get(), nullptr), "cudaEventRecord"));
    CULET_RETURN_IF_ERROR(launch());
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end->get(), nullptr), "cudaEventRecord"));
    CULET_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end->get()), "the launch"));
    return MicrosecondsBetween(start->get(), end->get());
  }

  Result<std::unique_ptr<Replay>> Record(
      const std::function<Status(cudaStream_t)>& launches) override {
    const DeviceScope scope(ordinal_);
    const auto graph = Capture(launches);
    if (!graph) return graph.status();
    std::size_t nodes = 0;
    CULET_RETURN_IF_ERROR(
        CudaStatus(cudaGraphGetNodes(graph->get(), nullptr, &nodes), "cudaGraphGetNodes"));
    if (nodes == 0) {
      return Status(StatusCode::kFailedPrecondition,
                    "nothing was launched on the stream that was given; a kernel must use it");
    }
    cudaGraphExec_t executable = nullptr;
    CULET_RETURN_IF_ERROR(
        CudaStatus(cudaGraphInstantiate(&executable, graph->get(), 0), "cudaGraphInstantiate"));
    auto replay = std::make_unique<GraphReplay>(ordinal_, watch_, Executable(executable), nodes);
    // The first replay uploads the graph and finds caches of instructions and addresses empty.
    if (const auto first = replay->TimeUs(1); !first) return first.status();
    return std::unique_ptr<Replay>(std::move(replay));
  }

 private:
  Result<Graph> Capture(const std::function<Status(cudaStream_t)>& launches) {
    const std::lock_guard lock(watch_.mutex);
    CULET_RETURN_IF_ERROR(watch_.Make());
    cudaStream_t stream = watch_.stream.get();
    // Of this thread alone: others may allocate while this one records.
    CULET_RETURN_IF_ERROR(
        CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture"));
    const Status recorded = launches(stream);
    cudaGraph_t made = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &made);
    Graph graph(made);
    CULET_RETURN_IF_ERROR(recorded);
    CULET_RETURN_IF_ERROR(CudaStatus(ended, "recording the launches into a CUDA graph"));
    return graph;
  }

  int ordinal_;
  Stopwatch watch_;
};

}  // namespace

Runtime& CudaRuntime(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: kernels may still run while static objects of other files go.
  static auto& runtimes = *new std::map<int, std::unique_ptr<CudaDeviceRuntime>>;
  const std::lock_guard lock(mutex);
  auto& runtime = runtimes[ordinal];
  if (runtime == nullptr) runtime = std::make_unique<CudaDeviceRuntime>(ordinal);
  return *runtime;
}

}  // namespace culet
