#include "graph/cuda/grouped_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "cuda/error.h"
#include "kernels/sm90/grouped/choice.h"

namespace culet::cuda_ops {
namespace {

constexpr int kBlock = 128;
constexpr int kHopper = 900;

std::int64_t Blocks(std::int64_t count) noexcept { return (count + kBlock - 1) / kBlock; }

Status Unsupported(const std::string& reason) { return Status(StatusCode::kUnsupported, reason); }

sm90::GroupedProblem ProblemOf(const GroupedArgs& args) {
  const bool gated = args.epilogue == Epilogue::kGatedSilu;
  const std::int64_t rows_b = gated ? 2 * std::int64_t{args.n} : args.n;
  sm90::GroupedProblem p;
  p.groups = args.groups;
  p.rows = args.rows;
  p.a_rows = args.a_rows;
  p.n = args.n;
  p.k = args.k;
  p.starts = args.starts;
  p.counts = args.counts;
  p.index = args.index;
  p.a = args.A;
  p.lda = args.lda;
  p.b = args.B;
  p.b_group_rows = rows_b;
  if (gated) p.up_rows = args.n;
  if (args.type == DataType::kFloat8_e4m3) {
    p.scale_a = args.U;
    p.scale_a_row = static_cast<int>(args.u_row);
    p.scale_a_block = static_cast<int>(args.u_block);
    p.scale_b = args.V;
    p.scale_b_group = Blocks(rows_b) * Blocks(args.k);
    if (gated) p.scale_b_up = Blocks(args.n) * Blocks(args.k);
  }
  p.d = args.D;
  p.ldd = args.ldd;
  p.d_type = args.d_type;
  p.pdl = args.pdl;
  return p;
}

// What is said of the routing; else each of D's rows goes to one group.
sm90::GroupedUse UseOf(const GroupedArgs& args) {
  const auto given = [](int value, int usual) {
    return static_cast<double>(value > 0 ? value : usual);
  };
  return {given(args.expected_tokens, args.rows), given(args.expected_active, 1),
          given(args.expected_experts, args.groups)};
}

}  // namespace

Status LaunchGrouped(const DeviceInfo& device, const GroupedArgs& args, cudaStream_t stream) {
  if (device.arch != kHopper) {
    return Unsupported(
        fmt::format("{} has the compute capability {}.{}; grouped products have kernels "
                    "for 9.0 and for the CPU: call one product a group",
                    device.name, device.arch / 100, device.arch % 100 / 10));
  }
  if (args.type != DataType::kBfloat16 && args.type != DataType::kFloat8_e4m3) {
    return Unsupported(
        fmt::format("type is {}; on a GPU grouped products are of BF16 or of E4M3 with "
                    "blocks' scales: convert A and B",
                    ToString(args.type)));
  }
  if (args.bias != nullptr) {
    return Unsupported(
        "bias is given; on a GPU grouped products take none: add it to D afterwards");
  }
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (args.type == DataType::kFloat8_e4m3 &&
      (args.a_rows * args.u_row > kMost || Blocks(args.k) * args.u_block > kMost)) {
    return Unsupported(
        fmt::format("u_row is {} and u_block {}; on a GPU U has less than 2^31 elements",
                    args.u_row, args.u_block));
  }
  const bool gated = args.epilogue == Epilogue::kGatedSilu;
  const sm90::GroupedProblem problem = ProblemOf(args);
  const int sms = args.sm_budget > 0 ? std::min(args.sm_budget, device.units) : device.units;
  const sm90::GroupedChoice choice =
      sm90::ChooseGrouped(problem, args.type, gated, UseOf(args), sms);
  if (choice.kernel == nullptr) {
    const char* why = "is not in this build";
    for (const sm90::GroupedSwapKernel& kernel : sm90::GroupedSwapKernels()) {
      if (kernel.gated != gated || kernel.format->type != args.type) continue;
      if (const char* reason = WhyNotGrouped(problem, *kernel.format, gated)) why = reason;
    }
    return Unsupported(
        fmt::format("no grouped kernel takes {} groups of {} x {} of {}: the kernel {}; "
                    "pass contiguous copies, or call one product a group",
                    args.groups, args.n, args.k, ToString(args.type), why));
  }
  sm90::GroupedSwapLaunch launch;
  const std::string name = choice.kernel->id;
  CULET_RETURN_IF_ERROR(CudaStatus(
      sm90::LoadKernel(choice.kernel->function, choice.kernel->smem_bytes), "loading " + name));
  if (!PlanGroupedSwap(*choice.kernel, problem, choice.splits, sms, &launch)) {
    return Status(StatusCode::kInternal, name + ": the driver refuses a tensor map");
  }
  return CudaStatus(launch.Start(stream), "launching " + name);
}

}  // namespace culet::cuda_ops
