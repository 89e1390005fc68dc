// MakeTestDispatch on the CPU: the CUDA dispatch compiled as C++, with the CPU's products.
#pragma once

#include "culet/dispatch.h"
#include "graph/cuda/dispatch.h"

namespace culet {

TestDispatch MakeTestDispatch(const CudaDispatchOptions& options) {
  TestDispatch test;
  test.gemm = std::make_unique<Gemm>(*Gemm::Create());
  test.dispatch = cuda_ops::MakeDispatch(*test.gemm, HostMemory(), options);
  return test;
}

}  // namespace culet
