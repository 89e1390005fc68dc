// MakeReferenceDispatch: every operation in double, one rounding to the value's type.
#include <cstring>

#include "culet/dispatch.h"
#include "graph/operations.h"
#include "graph/table_dispatch.h"
#include "graph/table_rows.h"

namespace culet {
namespace {

class ReferenceDispatch final : public TableDispatch {
 public:
  Feasibility supports(const ComputeGraph& graph, int id) const override {
    const TensorNode& node = graph.node(id);
    const bool others = (node.op == TensorOp::kAllReduce && node.params.int_param > 1) ||
                        ((node.op == TensorOp::kAllGather || node.op == TensorOp::kAllArgMax) &&
                         node.params.parts.ranks() > 1);
    return others ? Feasibility::Refuse(kNeedsRanks) : Feasibility::Ok();
  }

  Status dispatch_copy(DevicePtr src, DevicePtr dst, std::size_t bytes) override {
    std::memmove(FromDevicePtr<void>(dst), FromDevicePtr<const void>(src), bytes);
    return {};
  }

 protected:
  Status LaunchNode(const NodeLaunch& launch) override {
    InfoOf(launch.node().op).reference(launch);
    return {};
  }
};

}  // namespace

std::unique_ptr<KernelDispatch> MakeReferenceDispatch() {
  return std::make_unique<ReferenceDispatch>();
}

}  // namespace culet
