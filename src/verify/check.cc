#include "verify/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gemm/error_model.h"

namespace culet {
namespace {

// Bounds the splits of K: enough to cut every problem of the suite finely.
constexpr std::size_t kBarrierBytes = std::size_t{1} << 20;
constexpr std::size_t kPartialBytes = std::size_t{16} << 20;

// Neither 1 nor 0, so that a lost factor shows; powers of two where results must be exact.
ScratchOptions OptionsOf(ProblemData::Stage stage) {
  ScratchOptions options;
  switch (stage) {
    case ProblemData::kIntegers:
      options.fill = Fill::kIntegers;
      options.alpha = -2.0f;
      options.beta = 0.5f;
      break;
    case ProblemData::kNormal:
    case ProblemData::kFirstRow:
      options.gap_bytes = 40;  // 10 to 40 elements: within reach of one vector too many
      options.alpha = 0.7f;
      options.beta = -1.3f;
      break;
    case ProblemData::kExtreme:
    case ProblemData::kStages:
      options.fill = Fill::kExtreme;
      break;
  }
  return options;
}

const char* NameOf(ProblemData::Stage stage) {
  switch (stage) {
    case ProblemData::kIntegers:
      return "exact integers";
    case ProblemData::kNormal:
      return "normal data";
    case ProblemData::kExtreme:
      return "extreme values";
    case ProblemData::kFirstRow:
    case ProblemData::kStages:
      break;
  }
  return "the first row alone";
}

// How a kernel is launched.
LaunchSpec SpecOf(int swizzle, int splits, int variant = 0) {
  LaunchSpec spec;
  spec.swizzle = swizzle;
  spec.splits = splits;
  spec.variant = variant;
  return spec;
}

Result<std::vector<LaunchSpec>> LaunchesOf(const Kernel& kernel, const GemmDesc& desc) {
  const int4 shape = ShapeOf(desc);
  const auto swizzles = MaxSwizzle(kernel, shape);
  if (!swizzles.ok()) return swizzles.status();
  const int swizzle = std::max(0, *swizzles);
  std::vector<LaunchSpec> specs = {SpecOf(0, 1)};
  const auto add = [&](const LaunchSpec& spec) {
    const auto same = [&](const LaunchSpec& known) { return SameLaunch(known, spec); };
    if (std::ranges::none_of(specs, same)) specs.push_back(spec);
  };
  add(SpecOf(swizzle, 1));
  const auto plain = MaxSplits(kernel, shape, 0, kBarrierBytes, kPartialBytes);
  if (!plain.ok()) return plain.status();
  const auto swizzled = MaxSplits(kernel, shape, swizzle, kBarrierBytes, kPartialBytes);
  if (!swizzled.ok()) return swizzled.status();
  add(SpecOf(0, std::clamp(*plain, 1, std::min(2, desc.k))));
  add(SpecOf(swizzle, std::clamp(*swizzled, 1, desc.k)));
  const auto variants = Variants(kernel, desc);
  if (!variants.ok()) return variants.status();
  add(SpecOf(0, 1, *variants - 1));
  return specs;
}

// Through Prepare, as a plan launches, or through Launch itself.
Status LaunchOnce(Kernel& kernel, ScratchProblem& scratch, const LaunchSpec& spec, bool prepared) {
  auto workspace =
      scratch.workspace(kernel.workspace_size(scratch.desc(), spec.swizzle, spec.splits));
  if (!workspace.ok()) return workspace.status();
  CULET_RETURN_IF_ERROR(scratch.PoisonOutput());
  GemmArgs args = scratch.args();
  args.operation = AsLaunched(args.operation, spec);
  if (prepared) {
    const auto plan = PrepareKernel(kernel, args, spec.swizzle, spec.splits);
    if (!plan.ok()) return plan.status();
    return LaunchStatus((*plan)->Launch(args.alpha, args.A, args.U, args.beta, args.C, args.D,
                                        **workspace, nullptr),
                        kernel);
  }
  return LaunchKernel(kernel, args, spec.swizzle, spec.splits, **workspace, nullptr);
}

Status Wrong(ProblemData::Stage stage, const LaunchSpec& spec, const std::string& what) {
  return Status(
      StatusCode::kWrongResult,
      fmt::format("{} (swizzle {}, splits {}{}): {}", NameOf(stage), spec.swizzle, spec.splits,
                  spec.variant != 0 ? fmt::format(", variant {}", spec.variant) : "", what));
}

// Below, the figure depends on the few numbers that happened to come.
constexpr std::size_t kOutputsForAccuracy = 16384;

Status CheckAccuracy(const GemmDesc& desc, const Accumulator& accumulator,
                     const ErrorReport& report, const LaunchSpec& spec, Accuracy& accuracy) {
  if (report.checked < kOutputsForAccuracy) return {};
  accuracy.known = true;
  accuracy.relative_l2 = std::max(accuracy.relative_l2, report.relative_l2);
  const double limit = RelativeL2Limit(desc, accumulator);
  if (report.relative_l2 <= limit) return {};
  return Wrong(
      ProblemData::kNormal, spec,
      fmt::format("the relative L2 error is {:.3g}, {:.3g} at most", report.relative_l2, limit));
}

Status CheckStage(Kernel& kernel, ProblemData& data, ProblemData::Stage stage, Accuracy& accuracy) {
  auto scratch = data.Get(stage);
  if (!scratch.ok()) return scratch.status();
  const auto launches = LaunchesOf(kernel, data.desc());
  if (!launches.ok()) return launches.status();
  for (const LaunchSpec& spec : *launches) {
    CULET_RETURN_IF_ERROR(LaunchOnce(kernel, **scratch, spec, stage == ProblemData::kNormal));
    const auto report = (*scratch)->Compare(0, AccumulatorFor(kernel.desc(), data.desc()));
    if (!report.ok()) return report.status();
    if (!report->ok()) return Wrong(stage, spec, report->ToString());
    if (stage == ProblemData::kNormal) {
      CULET_RETURN_IF_ERROR(CheckAccuracy(data.desc(), AccumulatorFor(kernel.desc(), data.desc()),
                                          *report, spec, accuracy));
    }
  }
  return {};
}

// One plan and one workspace, zeroed once: what a launch leaves there is what the next one finds.
Status CheckRepeatable(Kernel& kernel, ProblemData& data, int repeats) {
  auto made = data.Get(ProblemData::kNormal);
  if (!made.ok()) return made.status();
  ScratchProblem& scratch = **made;
  const auto launches = LaunchesOf(kernel, data.desc());
  if (!launches.ok()) return launches.status();
  for (const LaunchSpec& spec : *launches) {
    auto workspace =
        scratch.workspace(kernel.workspace_size(data.desc(), spec.swizzle, spec.splits));
    if (!workspace.ok()) return workspace.status();
    GemmArgs args = scratch.args();
    args.operation = AsLaunched(args.operation, spec);
    const auto plan = PrepareKernel(kernel, args, spec.swizzle, spec.splits);
    if (!plan.ok()) return plan.status();
    std::vector<std::byte> first;
    for (int i = 0; i < repeats; ++i) {
      CULET_RETURN_IF_ERROR(scratch.PoisonOutput());
      CULET_RETURN_IF_ERROR(LaunchStatus((*plan)->Launch(args.alpha, args.A, args.U, args.beta,
                                                         args.C, args.D, **workspace, nullptr),
                                         kernel));
      auto bytes = scratch.OutputBytes();
      if (!bytes.ok()) return bytes.status();
      if (i == 0)
        first = *std::move(bytes);
      else if (*bytes != first) {
        return Wrong(ProblemData::kNormal, spec,
                     "two launches gave different bits, although the kernel declares repeatable");
      }
    }
  }
  return {};
}

Status CheckBatchInvariant(Kernel& kernel, ProblemData& data) {
  // Rows of a column-major D are not one line; the row-major problems say enough.
  if (data.desc().m == 1 || data.desc().d.order != Order::kRowMajor) return {};
  auto all = data.Get(ProblemData::kNormal);
  if (!all.ok()) return all.status();
  auto one = data.Get(ProblemData::kFirstRow);
  if (!one.ok()) return one.status();
  if (!Takes(kernel, (*one)->desc())) return {};
  CULET_RETURN_IF_ERROR(LaunchOnce(kernel, **all, {}, true));
  CULET_RETURN_IF_ERROR(LaunchOnce(kernel, **one, {}, true));
  const auto all_bytes = (*all)->OutputBytes(), row = (*one)->OutputBytes();
  if (!all_bytes.ok()) return all_bytes.status();
  if (!row.ok()) return row.status();
  // Of a batch the first matrix, whose first row comes first in both.
  const auto end = row->begin() + static_cast<std::ptrdiff_t>(row->size()) / data.desc().d.num;
  if (std::equal(row->begin(), end, all_bytes->begin())) return {};
  return Wrong(ProblemData::kFirstRow, {},
               "its bits differ with m, although the kernel declares batch-invariant");
}

}  // namespace

Result<ScratchProblem*> ProblemData::Get(Stage stage) {
  auto& slot = scratch_[stage];
  if (!slot) {
    GemmDesc desc = desc_;
    if (stage == kFirstRow) desc.m = 1;
    auto made = ScratchProblem::Create(device_, desc, OptionsOf(stage));
    if (!made.ok()) return made.status();
    slot = *std::move(made);
  }
  return &*slot;
}

double RelativeL2Limit(const GemmDesc& desc, const Accumulator& accumulator) noexcept {
  // Rounding numbers of any size to p bits costs 0.4225 * 2^-p of their L2 norm.
  const auto rounding = [](DataType type) {
    switch (type) {
      case DataType::kBfloat16:
        return 0.4225 * 0x1p-8;
      case DataType::kFloat16:
        return 0.4225 * 0x1p-11;
      case DataType::kFloat8_e4m3:
        return 0.4225 * 0x1p-4;
      default:
        return 0.4225 * 0x1p-24;
    }
  };
  // FP32, whose errors add up to k roundings at worst (on GPUs they point the same way). Fewer
  // bits: 14 of them over 128 elements make 2.3e-4, measured; more elements err in proportion.
  double accumulation = desc.k * (desc.arch == 0 ? 0x1p-24 : 0x1p-23);
  if (accumulator.bits < 24) {
    const int interval = accumulator.promotion_k > 0 ? accumulator.promotion_k : desc.k;
    accumulation = std::ldexp(2.88e-4, 14 - accumulator.bits) * std::max(1.0, interval / 128.0);
  }
  if (IsGated(desc.epilogue)) accumulation *= 2;  // of gate and up
  // Gated outputs have long tails: few of them make the norm, and where they lie between two powers
  // of two decides what rounding them costs.
  const double scatter = IsGated(desc.epilogue) ? 1.12 : 1.04;
  const double rounded = rounding(desc.d.type);
  return scatter * std::sqrt(rounded * rounded + accumulation * accumulation);
}

Status CheckKernel(Kernel& kernel, ProblemData& data, int repeats, Accuracy& accuracy) {
  for (const auto stage : {ProblemData::kIntegers, ProblemData::kNormal, ProblemData::kExtreme}) {
    CULET_RETURN_IF_ERROR(CheckStage(kernel, data, stage, accuracy));
  }
  const Determinism declared = kernel.desc().determinism;
  if (declared >= Determinism::kRepeatable) {
    CULET_RETURN_IF_ERROR(CheckRepeatable(kernel, data, repeats));
  }
  if (declared >= Determinism::kBatchInvariant) return CheckBatchInvariant(kernel, data);
  return {};
}

}  // namespace culet
