// The CPU dispatch's sampling, which takes float32 alone.
#include "cuda/sample_cases.h"

namespace culet {

TestDispatch MakeTestDispatch(const CudaDispatchOptions&) {
  TestDispatch test;
  test.gemm = std::make_unique<Gemm>(*Gemm::Create());
  test.dispatch = MakeCpuDispatch(*test.gemm);
  return test;
}

}  // namespace culet
