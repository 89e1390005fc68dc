// Times launches of kernels inside one CUDA graph.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "kernels/cuda_ops/ops.h"

namespace culet::cuda_ops {

/// Ends the program, with `what` and the error's name, unless there is none.
inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

/// Microseconds of one of `launches` launches in a graph, `launch(i, stream)` for each: the median
/// of seven replays after two. `pdl`: each may begin before the one before has ended.
inline double MicrosecondsInGraph(
    int launches, bool pdl, const std::function<cudaError_t(int, const LaunchStream&)>& launch) {
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  Check(launch(0, stream), "the first launch");
  Check(cudaStreamSynchronize(stream), "the first launch");
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < launches; ++i) Check(launch(i, LaunchStream(stream, pdl)), "a launch");
  cudaGraph_t graph = nullptr;
  Check(cudaStreamEndCapture(stream, &graph), "capture");
  cudaGraphExec_t recording = nullptr;
  Check(cudaGraphInstantiate(&recording, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t begin = nullptr, end = nullptr;
  Check(cudaEventCreate(&begin), "cudaEventCreate");
  Check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    Check(cudaEventRecord(begin, stream), "cudaEventRecord");
    Check(cudaGraphLaunch(recording, stream), "cudaGraphLaunch");
    Check(cudaEventRecord(end, stream), "cudaEventRecord");
    Check(cudaEventSynchronize(end), "a replay");
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i >= 2) times.push_back(milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(recording);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return 1e3 * static_cast<double>(times[3]) / launches;
}

}  // namespace culet::cuda_ops
