// A dispatch whose eight methods do nothing, for tests that replace `launch` or one of them.
#pragma once

#include "culet/kernel_dispatch.h"

namespace culet {

class IdleDispatch : public KernelDispatch {
 public:
  Status dispatch_mul_mat(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t, std::uint32_t,
                          std::uint32_t) override {
    return {};
  }
  Status dispatch_rms_norm(const TensorNode&, DevicePtr, DevicePtr, std::uint32_t, std::uint32_t,
                           float) override {
    return {};
  }
  Status dispatch_add(DevicePtr, DevicePtr, DevicePtr, std::size_t) override { return {}; }
  Status dispatch_rope(const TensorNode&, DevicePtr, DevicePtr, std::size_t, std::uint32_t,
                       std::uint32_t) override {
    return {};
  }
  Status dispatch_attention(const TensorNode&, DevicePtr, DevicePtr, DevicePtr, DevicePtr,
                            std::uint32_t, std::size_t) override {
    return {};
  }
  Status dispatch_copy(DevicePtr, DevicePtr, std::size_t) override { return {}; }
  Status dispatch_mul(DevicePtr, DevicePtr, DevicePtr, std::size_t) override { return {}; }
  Status dispatch_silu(DevicePtr, DevicePtr, std::size_t) override { return {}; }
};

}  // namespace culet
