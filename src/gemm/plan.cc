// GemmPlan::Launch: the hot path. Everything here is a compare; messages are made out of line.
#include <fmt/format.h>

#include <cstdint>

#include "base/device_scope.h"
#include "base/trace.h"
#include "culet/gemm.h"
#include "gemm/plan_state.h"

namespace culet {
namespace {

bool Aligned(const void* pointer, unsigned alignment) noexcept {
  return (reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) == 0;
}

[[gnu::noinline, gnu::cold]] Status NullPointer(const char* name) {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{} is null; the plan reads or writes it", name));
}

[[gnu::noinline, gnu::cold]] Status BelowClass(const char* name, const void* pointer,
                                               unsigned alignment) {
  return Status(
      StatusCode::kInvalidArgument,
      fmt::format("{} is {}, but the plan was made for {} bytes of alignment; align it, or "
                  "plan with this pointer",
                  name, pointer, alignment));
}

[[gnu::noinline, gnu::cold]] Status Overlapping(const char* name, const void* pointer,
                                                const void* written, const char* output = "D") {
  return Status(StatusCode::kInvalidArgument,
                fmt::format("{0} ({1}) overlaps {2} ({3}); give {0} memory of its own", output,
                            written, name, pointer));
}

// D's scales are written too.
[[gnu::noinline]] Status CheckScalesOfD(const PlanState& s, const LaunchPointers& p,
                                        const void* W) {
  if (W == nullptr) return NullPointer("W");
  if (!Aligned(W, s.desc.d.scale_align)) return BelowClass("W", W, s.desc.d.scale_align);
  const auto check = [&](const char* name, const void* data, const Footprint& place) {
    return Overlap(W, s.w, data, place) ? Overlapping(name, data, W, "W") : Status();
  };
  for (const BoundInput& input : s.bound) {
    CULET_RETURN_IF_ERROR(check(input.name, input.data, input.place));
  }
  CULET_RETURN_IF_ERROR(check("D", p.D, s.d));
  CULET_RETURN_IF_ERROR(check("A", p.A, s.a));
  if (s.desc.a.scale_type != DataType::kNull) CULET_RETURN_IF_ERROR(check("U", p.U, s.u));
  return p.beta != 0.0f ? check("C", p.C, s.c) : Status();
}

[[gnu::noinline, gnu::cold]] Status SmallWorkspace(const char* part, const void* pointer,
                                                   std::size_t given, std::size_t needed) {
  return Status(StatusCode::kResourceExhausted,
                fmt::format("workspace.{} holds {} bytes{}, the plan needs {}; see "
                            "GemmPlan::workspace_size and InitWorkspace",
                            part, given, pointer == nullptr ? " (null)" : "", needed));
}

}  // namespace

std::string RangeName(const Kernel& kernel, const GemmDesc& desc) {
  return fmt::format("{} {}x{}x{}", kernel.id(), desc.m, desc.n, desc.k);
}

GemmPlan::GemmPlan(std::unique_ptr<const PlanState> state) : state_(std::move(state)) {}
GemmPlan::~GemmPlan() = default;
GemmPlan::GemmPlan(GemmPlan&&) noexcept = default;
GemmPlan& GemmPlan::operator=(GemmPlan&&) noexcept = default;

const GemmDesc& GemmPlan::desc() const noexcept { return state_->desc; }
const LaunchSpec& GemmPlan::spec() const noexcept { return state_->spec; }
const WorkspaceSize& GemmPlan::workspace_size() const noexcept { return state_->workspace_size; }

Status GemmPlan::Launch(const LaunchPointers& p, Workspace& workspace, cudaStream_t stream) const {
  const PlanState& s = *state_;
  const GemmDesc& desc = s.desc;
  if (p.A == nullptr) return NullPointer("A");
  if (p.D == nullptr) return NullPointer("D");
  if (!Aligned(p.A, desc.a.align)) return BelowClass("A", p.A, desc.a.align);
  if (!Aligned(p.D, desc.d.align)) return BelowClass("D", p.D, desc.d.align);
  if (Overlap(p.D, s.d, p.A, s.a)) return Overlapping("A", p.A, p.D);
  for (const BoundInput& input : s.bound) {
    if (Overlap(p.D, s.d, input.data, input.place)) {
      return Overlapping(input.name, input.data, p.D);
    }
  }
  if (desc.a.scale_type != DataType::kNull) {
    if (p.U == nullptr) return NullPointer("U");
    if (!Aligned(p.U, desc.a.scale_align)) return BelowClass("U", p.U, desc.a.scale_align);
    if (Overlap(p.D, s.d, p.U, s.u)) return Overlapping("U", p.U, p.D);
  }
  if (p.beta != 0.0f) {
    if (desc.c.type == DataType::kNull) {
      return Status(
          StatusCode::kInvalidArgument,
          fmt::format("beta is {}, but the plan was made with beta 0; plan with a beta and "
                      "Cdesc",
                      p.beta));
    }
    if (p.C == nullptr) return NullPointer("C");
    if (!Aligned(p.C, desc.c.align)) return BelowClass("C", p.C, desc.c.align);
    if (!(p.C == p.D && s.c_may_be_d) && Overlap(p.D, s.d, p.C, s.c)) {
      return Overlapping("C", p.C, p.D);
    }
  }
  void* const W = p.W != nullptr ? p.W : s.W;
  if (desc.d.scale_type != DataType::kNull) {
    CULET_RETURN_IF_ERROR(CheckScalesOfD(s, p, W));
  } else if (p.W != nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("W is {}, but the plan makes no scales of D; leave it null", p.W));
  }
  const WorkspaceSize& need = s.workspace_size;
  if (need.barriers > (workspace.barriers != nullptr ? workspace.barriers_size : 0)) {
    return SmallWorkspace("barriers", workspace.barriers, workspace.barriers_size, need.barriers);
  }
  if (need.partials > (workspace.partials != nullptr ? workspace.partials_size : 0)) {
    return SmallWorkspace("partials", workspace.partials, workspace.partials_size, need.partials);
  }
  if (need.tensormaps > (workspace.tensormaps != nullptr ? workspace.tensormaps_size : 0)) {
    return SmallWorkspace("tensormaps", workspace.tensormaps, workspace.tensormaps_size,
                          need.tensormaps);
  }
  if (!IsStreamOf(stream, s.ordinal)) return StreamOfAnother(s.ordinal);
  const DeviceScope scope(s.ordinal);
  const TraceRange range([&] { return RangeName(*s.spec.kernel, desc); });
  const int code =
      p.W == nullptr
          ? s.prepared->Launch(p.alpha, p.A, p.U, p.beta, p.C, p.D, workspace, stream)
          : s.prepared->LaunchTo(W, p.alpha, p.A, p.U, p.beta, p.C, p.D, workspace, stream);
  return code == 0 ? Status() : LaunchStatus(code, *s.spec.kernel);
}

}  // namespace culet
