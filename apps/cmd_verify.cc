// culet verify: the conformance suite on this machine.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "commands.h"
#include "culet/device.h"
#include "culet/registry.h"
#include "culet/verify.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "session.h"

namespace culet::cli {
namespace {

struct VerifyArgs {
  CommonArgs common;
  std::string kernel;
  bool quick = false;
  int repeats = 0;  ///< 0: as many as the device needs
  double budget_s = 0;
};

std::vector<const Kernel*> Selected(const Registry& registry, const std::string& prefix) {
  std::vector<const Kernel*> selected;
  for (const Kernel* kernel : registry.kernels()) {
    if (kernel->id().starts_with(prefix)) selected.push_back(kernel);
  }
  return selected;
}

// How often the suite will call a kernel; refusals take no time.
double CountCases(const std::vector<const Kernel*>& kernels, int arch, bool quick) {
  double cases = 0;
  for (const GemmDesc& desc : ConformanceProblems(arch, quick)) {
    for (const Kernel* kernel : kernels) cases += Takes(*kernel, desc);
  }
  return cases;
}

// On a GPU threads interleave differently from run to run; on the CPU they do not affect sums.
int RepeatsOn(const DeviceInfo& device) { return device.arch == 0 ? 3 : 20; }

Json ToJson(const VerifyReport& report, const DeviceInfo& device, bool interrupted) {
  Json failures = Json::array();
  for (const VerifyFailure& failure : report.failures) {
    failures.push_back({{"kernel", failure.kernel_id},
                        {"problem", ToString(failure.desc)},
                        {"message", failure.message}});
  }
  Json accuracy = Json::array();
  for (const VerifyAccuracy& a : report.accuracy) {
    accuracy.push_back({{"family", a.family},
                        {"type_a", ToString(a.type_a)},
                        {"type_d", ToString(a.type_d)},
                        {"relative_l2", a.relative_l2},
                        {"limit", a.limit},
                        {"problems", a.problems}});
  }
  return {{"device", device.device_class}, {"passed", report.passed},
          {"failed", report.failed},       {"refused", report.refused},
          {"left_out", report.left_out},   {"interrupted", interrupted},
          {"failures", failures},          {"accuracy", accuracy}};
}

int RunVerify(const VerifyArgs& args) {
  const bool json = args.common.json;
  if (const Status status = args.common.Apply(); !status.ok()) return Fail(status, json);
  const Result<DeviceInfo> device = FindDevice(args.common.device);
  if (!device.ok()) return Fail(device.status(), json);
  const Result<Registry> registry = Registry::Builtin(*device, args.common.providers);
  if (!registry.ok()) return Fail(registry.status(), json);
  const std::vector<const Kernel*> kernels = Selected(*registry, args.kernel);
  if (kernels.empty()) {
    return Fail(Status(StatusCode::kNotFound,
                       fmt::format("no kernel's id starts with '{}'; culet kernels lists them",
                                   args.kernel)),
                json);
  }

  if (std::ranges::none_of(kernels, [](const Kernel* k) { return k->available().ok(); })) {
    return Fail(kernels.front()->available(), json);
  }

  const InterruptGuard guard;
  Progress progress;
  const double cases = CountCases(kernels, device->arch, args.quick);
  double done = 0;
  VerifyOptions options;
  options.kernel = args.kernel;
  options.quick = args.quick;
  options.repeats = args.repeats > 0 ? args.repeats : RepeatsOn(*device);
  options.budget_s = args.budget_s;
  options.on_case = [&](const std::string& kernel_id, const GemmDesc& desc) {
    progress.Update(done++ / cases, fmt::format("{}  {}", kernel_id, ToString(desc)));
    return InterruptSignal() == 0;
  };
  const VerifyReport report = Verify(*registry, *device, options);
  progress.Clear();

  const bool interrupted = InterruptSignal() != 0;
  if (json) {
    PrintJson(ToJson(report, *device, interrupted));
  } else {
    for (const VerifyFailure& failure : report.failures) {
      Print("WRONG  {}  {}\n       {}\n", failure.kernel_id, ToString(failure.desc),
            failure.message);
    }
    for (const VerifyAccuracy& a : report.accuracy) {
      Print("{}, {} to {}: relative L2 error at most {:.3e} in {}, limit {:.3e}\n", a.family,
            ToString(a.type_a), ToString(a.type_d), a.relative_l2,
            Counted(static_cast<std::size_t>(a.problems), "product"), a.limit);
    }
    Print("{} passed, {} failed, {} refused with a reason", report.passed, report.failed,
          report.refused);
    if (report.left_out > 0) Print(", {} left out by the budget", report.left_out);
    Print("; {} on {}\n", Counted(kernels.size(), "kernel"), device->device_class);
  }
  if (interrupted) {
    Note("interrupted; the cases before it are reported");
    return InterruptExitCode();
  }
  return report.ok() ? kSuccess : kFailure;
}

}  // namespace

void AddVerify(const Command& program) {
  auto args = std::make_shared<VerifyArgs>();
  const Command command =
      program.AddCommand("verify", "Check every kernel against the double-precision reference");
  command.Add("--kernel", args->kernel, "Only kernels whose id starts with this").Type("PREFIX");
  command.AddFlag("--quick", args->quick, "Edge shapes only");
  command
      .Add("--repeats", args->repeats,
           "Launches of a repeatable kernel that must give equal bits; default: 20 on a GPU, "
           "3 on the CPU")
      .Type("N")
      .Range(1, 1000);
  AddBudget(command, &args->budget_s, "Seconds at most; what is left out is counted");
  args->common.AddTo(command);
  command.Runs([args] { return RunVerify(*args); });
}

}  // namespace culet::cli
