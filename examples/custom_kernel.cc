// A kernel of your own, added at run time: it competes with culet's under the same rules.
//
// The case: a layer with one output (a value head, a router of one expert) in F32. The product is a
// dot product for each row, which a loop does well.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "culet/gemm.h"

using namespace culet;

constexpr int kTokens = 24, kIn = 2000;
const char kId[] = "user/one_output";

// Stands for a function that you have already.
double Dot(const float* x, const float* w, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * w[i];
  return sum;
}

class OneOutput final : public ArgsKernel {
 public:
  OneOutput() : ArgsKernel(Describe(), Info()) {}

  // Everything that Run relies on. The base has compared the types.
  Feasibility why(const GemmDesc& problem) const noexcept override {
    const Feasibility base = ArgsKernel::why(problem);
    if (!base.ok()) return base;
    if (problem.n != 1) return Feasibility::Refuse("computes one output, n = 1");
    if (problem.a.order != Order::kRowMajor) return Feasibility::Refuse("reads A row by row");
    if (problem.b.order != Order::kColMajor) return Feasibility::Refuse("reads B down its column");
    if (problem.c.type != DataType::kNull) return Feasibility::Refuse("adds no C; beta must be 0");
    if (problem.type_bias != DataType::kNull) return Feasibility::Refuse("adds no bias");
    return Feasibility::Ok();
  }

  int Run(const GemmArgs& args, int /*swizzle*/, int /*splits*/, Workspace&,
          cudaStream_t) override {
    const auto* x = static_cast<const float*>(args.A);
    const auto* w = static_cast<const float*>(args.B);
    auto* y = static_cast<float*>(args.D);
    const std::int64_t y_pitch = args.Ddesc.order == Order::kRowMajor ? args.Ddesc.ld : 1;
    for (std::int64_t row = 0; row < args.Adesc.rows; ++row) {
      const double dot = Dot(x + row * args.Adesc.ld, w, args.Adesc.cols);
      y[row * y_pitch] = static_cast<float>(args.alpha * dot);
    }
    return 0;
  }

 private:
  static KernelDesc Describe() {
    KernelDesc desc;
    desc.backend = Backend::kUser;
    desc.type_a = desc.type_b = desc.type_d = DataType::kFloat32;
    desc.tile_m = desc.tile_n = 1;
    desc.determinism = Determinism::kBatchInvariant;  // a row's sum depends on that row alone
    return desc;
  }
  static KernelInfo Info() {
    KernelInfo info;
    info.name = kId;
    info.bandwidth_share = 0.3;  // of the machine's rates: a first guess, until it is measured
    info.matrix_share = 0.02;
    return info;
  }
};

Status Check(bool condition, const char* sentence) {
  return condition ? Status() : Status(StatusCode::kWrongResult, sentence);
}

Status Launch(const GemmPlan& plan, const GemmArgs& args) {
  const std::unique_ptr<void, decltype(&std::free)> buffer(
      std::aligned_alloc(256, workspace_bytes(plan)), std::free);
  auto workspace = InitWorkspace(plan.workspace_size(), buffer.get(), workspace_bytes(plan));
  if (!workspace) return workspace.status();
  return plan.Launch({.A = args.A, .D = args.D, .alpha = args.alpha}, *workspace);
}

Status Run() {
  auto gemm = Gemm::Create();
  if (!gemm) return gemm.status();
  CULET_RETURN_IF_ERROR(gemm->Register(std::make_unique<OneOutput>()));
  Kernel* own = gemm->registry().Find(kId);

  std::vector<float> x(kTokens * kIn), w(kIn), y(kTokens), expected(kTokens);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i * 11 % 97) / 48 - 1;
  GemmArgs args;
  args.alpha = 0.5f;
  args.A = x.data();
  args.Adesc = RowMajor(DataType::kFloat32, kTokens, kIn);
  args.B = w.data();
  args.Bdesc = ColMajor(DataType::kFloat32, kIn, 1);
  args.D = y.data();
  args.Ddesc = RowMajor(DataType::kFloat32, kTokens, 1);

  // Your kernel by name, and the reference for comparison: it is the last of the registry.
  const auto own_plan = gemm->Plan(args, {.kernel = own});
  if (!own_plan.ok()) return own_plan.status();
  CULET_RETURN_IF_ERROR(Launch(*own_plan, args));
  args.D = expected.data();
  const auto reference_plan = gemm->Plan(args, {.kernel = gemm->registry().kernels().back()});
  if (!reference_plan.ok()) return reference_plan.status();
  CULET_RETURN_IF_ERROR(Launch(*reference_plan, args));
  for (int i = 0; i < kTokens; ++i) {
    CULET_RETURN_IF_ERROR(Check(std::abs(y[i] - expected[i]) <= 1e-5f * std::abs(expected[i]),
                                "the own kernel differs from the reference"));
  }

  // What it refuses, it refuses with a reason.
  GemmArgs two_outputs = args;
  two_outputs.B = nullptr;
  two_outputs.Bdesc = ColMajor(DataType::kFloat32, kIn, 2);
  two_outputs.Ddesc = RowMajor(DataType::kFloat32, kTokens, 2);
  const auto refused = culet::Describe(two_outputs, gemm->device().arch);
  if (!refused) return refused.status();
  CULET_RETURN_IF_ERROR(Check(!own->is_feasible(*refused), "n = 2 was not refused"));
  std::printf("%s refuses n = 2: %s\n\n", kId, own->why(*refused).reason());

  // It stands among the candidates, is checked, and timed.
  TuneOptions options;
  options.tuner.budget_s = 5;
  const GemmDesc desc = own_plan->desc();
  const auto report = gemm->Tune(desc, options);
  if (!report) return report.status();
  bool measured = false;
  for (const LaunchSpec& spec : report->standings) {
    std::printf("%-24s %8.2f us\n", spec.kernel->id().c_str(), spec.time_us);
    measured |= spec.kernel == own;
  }
  for (const Dropped& dropped : report->dropped) {
    const bool wrong = dropped.reason.code() == StatusCode::kWrongResult;
    CULET_RETURN_IF_ERROR(
        Check(!(wrong && dropped.spec.kernel == own), "the tuner found the own kernel wrong"));
    measured |= dropped.spec.kernel == own;
  }
  CULET_RETURN_IF_ERROR(Check(measured, "the own kernel did not compete"));

  // From now on the winner serves this problem, and explain says why.
  const auto explanation = gemm->explain(desc);
  if (!explanation) return explanation.status();
  std::printf("\n%s\n", explanation->ToString().c_str());
  return Check(explanation->choice.kernel == report->winner.kernel, "the winner was not kept");
}

int main() {
  const Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
