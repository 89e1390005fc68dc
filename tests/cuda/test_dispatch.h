// MakeTestDispatch on a GPU, where there is one.
#pragma once

#include "culet/dispatch.h"

namespace culet {

inline TestDispatch MakeTestDispatch(const CudaDispatchOptions& options) {
  TestDispatch test;
  auto gemm = Gemm::Create({"cuda", {}});
  if (!gemm.ok()) {
    test.reason = gemm.status().ToString();
    return test;
  }
  test.gemm = std::make_unique<Gemm>(*std::move(gemm));
  auto dispatch = MakeCudaDispatch(*test.gemm, options);
  EXPECT_TRUE(dispatch.ok()) << dispatch.status().ToString();
  if (dispatch.ok()) test.dispatch = *std::move(dispatch);
  return test;
}

}  // namespace culet
