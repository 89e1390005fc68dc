// MakeTestDispatch on the CPU: the CUDA dispatch compiled as C++, with the CPU's products.
#pragma once

#include "culet/dispatch.h"
#include "graph/cuda/dispatch.h"

namespace culet {

/// A recording that makes its launches anew: products run on the CPU, which no capture sees.
class KeptLaunches final : public RecordedLaunches {
 public:
  explicit KeptLaunches(LaunchFunction launches) : launches_(std::move(launches)) {}
  Status Replay(cudaStream_t stream) override { return launches_(stream); }

 private:
  LaunchFunction launches_;
};

inline Result<std::unique_ptr<RecordedLaunches>> KeepLaunches(const LaunchFunction& launches) {
  return std::unique_ptr<RecordedLaunches>(std::make_unique<KeptLaunches>(launches));
}

inline TestDispatch MakeTestDispatch(const CudaDispatchOptions& options) {
  TestDispatch test;
  test.gemm = std::make_unique<Gemm>(*Gemm::Create());
  test.dispatch = cuda_ops::MakeDispatch(*test.gemm, HostMemory(), options, &KeepLaunches);
  return test;
}

}  // namespace culet
