// A dispatch that has a table of functions instead of a method for each operation.
#pragma once

#include "culet/kernel_dispatch.h"

namespace culet {

/// Every dispatch method of an operation ends in `LaunchNode`, but for dispatch_copy, by which a
/// Rope is also brought to where it turns.
class TableDispatch : public KernelDispatch {
 protected:
  /// Launches a node by itself; of a Rope what lies at its output already.
  virtual Status LaunchNode(const NodeLaunch& launch) = 0;

 private:
  using Node = const TensorNode&;
  using Ptr = DevicePtr;
  using U32 = std::uint32_t;
  using Count = std::size_t;
  Status dispatch_mul_mat(Node, Ptr, Ptr, U32, U32, U32) final { return LaunchNode(current()); }
  Status dispatch_rms_norm(Node, Ptr, Ptr, U32, U32, float) final { return LaunchNode(current()); }
  Status dispatch_add(Ptr, Ptr, Ptr, Count) final { return LaunchNode(current()); }
  Status dispatch_rope(Node, Ptr, Ptr, Count, U32, U32) final { return LaunchNode(current()); }
  Status dispatch_attention(Node, Ptr, Ptr, Ptr, Ptr, U32, Count) final {
    return LaunchNode(current());
  }
  Status dispatch_mul(Ptr, Ptr, Ptr, Count) final { return LaunchNode(current()); }
  Status dispatch_silu(Ptr, Ptr, Count) final { return LaunchNode(current()); }
  Status dispatch_swiglu(Ptr, Ptr, Ptr, Count) final { return LaunchNode(current()); }
  Status dispatch_embedding(Node, Ptr, Ptr, U32) final { return LaunchNode(current()); }
  Status dispatch_kv_write(Node, Ptr, Ptr, Ptr, U32) final { return LaunchNode(current()); }
  Status dispatch_gather_rows(Node, Ptr, Ptr, Ptr, U32) final { return LaunchNode(current()); }
  Status dispatch_cast(Node, Ptr, Ptr, Count) final { return LaunchNode(current()); }
  Status dispatch_argmax(Node, Ptr, Ptr, U32, U32) final { return LaunchNode(current()); }
  Status dispatch_sample(Node, Ptr, Ptr, Ptr, Ptr, U32, U32) final { return LaunchNode(current()); }
  Status dispatch_quantize(Node, Ptr, Ptr, Ptr, U32, U32) final { return LaunchNode(current()); }
  Status dispatch_advance(Node, Ptr, Ptr, U32) final { return LaunchNode(current()); }
  Status dispatch_other(Node, Ptr) final { return LaunchNode(current()); }
};

}  // namespace culet
