#include "launch_overhead.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "culet/model.h"
#include "culet/scratch.h"

namespace culet::cli {
namespace {

class NoOpKernel final : public ArgsKernel {
 public:
  explicit NoOpKernel(int arch) : ArgsKernel(Desc(arch), Info()) {}
  int Run(const GemmArgs&, int, int, Workspace&, cudaStream_t) override { return 0; }

 private:
  static KernelDesc Desc(int arch) {
    KernelDesc desc;
    desc.arch = arch;
    return desc;
  }
  static KernelInfo Info() {
    KernelInfo info;
    info.name = "user/no_op";
    return info;
  }
};

// Microseconds of one call: the median of batches, each long enough for the clock.
template <class Call>
double MedianCallUs(const std::function<double()>& clock_s, const Call& call) {
  constexpr int kBatches = 31, kCalls = 20000;
  std::vector<double> batches;
  for (int batch = 0; batch < kBatches; ++batch) {
    const double start_s = clock_s();
    for (int i = 0; i < kCalls; ++i) call();
    batches.push_back((clock_s() - start_s) * 1e6 / kCalls);
  }
  std::nth_element(batches.begin(), batches.begin() + kBatches / 2, batches.end());
  return batches[kBatches / 2];
}

}  // namespace

Result<LaunchOverhead> MeasureLaunchOverhead(Gemm& gemm, const std::function<double()>& clock_s) {
  const Result<GemmDesc> desc = MakeDesc(Format::kBf16, 1, 64, 64, gemm.device().arch);
  if (!desc.ok()) return desc.status();
  Result<ScratchProblem> scratch = ScratchProblem::Create(gemm.device(), *desc);
  if (!scratch.ok()) return scratch.status();
  auto owned = std::make_unique<NoOpKernel>(gemm.device().arch);
  LaunchSpec spec;
  spec.kernel = owned.get();
  CULET_RETURN_IF_ERROR(gemm.Register(std::move(owned)));
  const GemmArgs& args = scratch->args();
  const Result<GemmPlan> plan = gemm.Plan(args, spec);
  if (!plan.ok()) return plan.status();
  const Result<Workspace*> workspace = scratch->workspace(plan->workspace_size());
  if (!workspace.ok()) return workspace.status();

  const LaunchPointers pointers{args.A, args.U, args.C, args.D, args.alpha, args.beta};
  CULET_RETURN_IF_ERROR(plan->Launch(pointers, **workspace));
  LaunchOverhead overhead;
  overhead.plan_us =
      MedianCallUs(clock_s, [&] { static_cast<void>(plan->Launch(pointers, **workspace).ok()); });
  overhead.kernel_us = MedianCallUs(clock_s, [&] {
    spec.kernel->Launch(args.operation, args.alpha, args.A, args.Adesc, args.U, args.Udesc, args.B,
                        args.Bdesc, args.V, args.Vdesc, args.beta, args.C, args.Cdesc, args.D,
                        args.Ddesc, 0, 1, **workspace, nullptr);
  });
  return overhead;
}

}  // namespace culet::cli
