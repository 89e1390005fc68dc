#include "cuda/capture.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "base/device_scope.h"
#include "cuda/error.h"

namespace culet {
namespace {

struct StreamDeleter {
  void operator()(cudaStream_t stream) const noexcept { Taken(cudaStreamDestroy(stream)); }
};
struct GraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept { Taken(cudaGraphDestroy(graph)); }
};
struct ExecutableDeleter {
  void operator()(cudaGraphExec_t graph) const noexcept { Taken(cudaGraphExecDestroy(graph)); }
};
using Stream = std::unique_ptr<CUstream_st, StreamDeleter>;
using Graph = std::unique_ptr<CUgraph_st, GraphDeleter>;
using Executable = std::unique_ptr<CUgraphExec_st, ExecutableDeleter>;

class CapturedGraph final : public RecordedLaunches {
 public:
  CapturedGraph(int ordinal, Executable graph) : ordinal_(ordinal), graph_(std::move(graph)) {}
  ~CapturedGraph() override {
    const DeviceScope scope(ordinal_);
    graph_.reset();  // CUDA keeps it until a replay under way has ended
  }

  Status Replay(cudaStream_t stream) override {
    if (!IsStreamOf(stream, ordinal_)) return StreamOfAnother(ordinal_);
    const DeviceScope scope(ordinal_);
    return CudaStatus(cudaGraphLaunch(graph_.get(), stream), "cudaGraphLaunch");
  }

 private:
  int ordinal_;
  Executable graph_;
};

}  // namespace

Result<std::unique_ptr<RecordedLaunches>> CaptureLaunches(int ordinal,
                                                          const LaunchFunction& launches) {
  const DeviceScope scope(ordinal);
  // Of its own: the default streams cannot be captured, and work on them must not spoil it.
  cudaStream_t own = nullptr;
  CULET_RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking),
                                   "cudaStreamCreateWithFlags"));
  const Stream stream(own);
  // Of this thread alone: others may allocate while this one captures.
  CULET_RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(own, cudaStreamCaptureModeThreadLocal),
                                   "cudaStreamBeginCapture"));
  const Status launched = launches(own);
  cudaGraph_t made = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(own, &made);
  const Graph graph(made);
  // The launch's error says more than that the capture is invalid.
  if (!launched.ok()) Taken(ended);
  CULET_RETURN_IF_ERROR(launched);
  CULET_RETURN_IF_ERROR(CudaStatus(ended, "capturing the launches as a CUDA graph"));
  std::size_t nodes = 0;
  CULET_RETURN_IF_ERROR(
      CudaStatus(cudaGraphGetNodes(graph.get(), nullptr, &nodes), "cudaGraphGetNodes"));
  if (nodes == 0) {
    return Status(StatusCode::kFailedPrecondition,
                  "nothing was launched on the stream that was given");
  }
  cudaGraphExec_t executable = nullptr;
  CULET_RETURN_IF_ERROR(
      CudaStatus(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate"));
  Executable owned(executable);
  // The first replay then has nothing left to prepare.
  CULET_RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(executable, own), "cudaGraphUpload"));
  CULET_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(own), "the graph's upload"));
  return std::unique_ptr<RecordedLaunches>(
      std::make_unique<CapturedGraph>(ordinal, std::move(owned)));
}

}  // namespace culet
