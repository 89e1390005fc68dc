// MakeTestDispatch: the CPU's own dispatch.
#pragma once

#include <memory>

#include "cuda/cases.h"
#include "culet/dispatch.h"

namespace culet {

inline TestDispatch MakeTestDispatch(const CudaDispatchOptions&) {
  TestDispatch test;
  test.gemm = std::make_unique<Gemm>(*Gemm::Create());
  test.dispatch = MakeCpuDispatch(*test.gemm);
  return test;
}

}  // namespace culet
