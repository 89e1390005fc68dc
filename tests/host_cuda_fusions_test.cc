// The fusions of the CUDA dispatch on the CPU (tests/host_cuda), with the CPU's products, in a
// memory into which models are copied.
#include "cuda/fusion_cases.h"
#include "graph/cuda/dispatch.h"
#include "other_memory.h"

namespace culet {

TestDispatch MakeTestDispatch(const CudaDispatchOptions& options) {
  static OtherMemory memory;
  TestDispatch test;
  test.gemm = std::make_unique<Gemm>(*Gemm::Create());
  test.dispatch = cuda_ops::MakeDispatch(*test.gemm, memory, options);
  return test;
}

}  // namespace culet
