#include "kernels/sm90/grouped/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "cuda/error.h"
#include "cuda/relaxed_capture.h"
#include "culet/grouped_class.h"
#include "culet/grouped_kernel.h"
#include "kernels/sm90/grouped/skinny.h"
#include "kernels/sm90/grouped/swap.h"
#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/product_args.h"
#include "kernels/sm90/product/product_kernel.h"
#include "kernels/sm90/times/grouped.h"
#include "kernels/sm90/times/times.h"

namespace culet::sm90 {
namespace {

constexpr int kBlock = 128;

std::int64_t Blocks(std::int64_t count) noexcept { return (count + kBlock - 1) / kBlock; }

GroupedProblem ProblemOf(const GroupedArgs& args) {
  const bool gated = args.epilogue == Epilogue::kGatedSilu;
  const std::int64_t rows_b = gated ? 2 * std::int64_t{args.n} : args.n;
  GroupedProblem p;
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
  if (args.bias != nullptr) {
    p.biases = args.bias;
    p.bias_group = rows_b;
    p.bias_type = args.bias_type;
  }
  p.d = args.D;
  p.ldd = args.ldd;
  p.d_type = args.d_type;
  p.pdl = args.pdl;
  return p;
}

int SmsOf(const GroupedArgs& args, const DeviceInfo& device) {
  return args.sm_budget > 0 ? std::min(args.sm_budget, device.units) : device.units;
}

// What the key does not tell.
Status CheckScales(const GroupedArgs& args, const std::string& id) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (args.type != DataType::kFloat8_e4m3 ||
      (args.a_rows * args.u_row <= kMost && Blocks(args.k) * args.u_block <= kMost)) {
    return {};
  }
  return Status(
      StatusCode::kUnsupported,
      fmt::format("{}: u_row is {} and u_block {}; on a GPU U has less than 2^31 elements", id,
                  args.u_row, args.u_block));
}

// What no grouped kernel takes.
Feasibility WhyGrouped(const GemmDesc& p, const FormatInfo& format) noexcept {
  if (const Feasibility general = WhyGeneral(p); !general.ok()) return general;
  if (const Feasibility scales = WhyScales(p, format); !scales.ok()) return scales;
  if (p.c.type != DataType::kNull) return Feasibility::Refuse("does not add C");
  if (p.group_axis != 0 || p.b.striding != Striding::kFlat || p.d.striding != Striding::kBlocked) {
    return Feasibility::Refuse("takes groups of rows of A, each with a matrix of its own");
  }
  if (p.num > kMostExperts) return Feasibility::Refuse("takes 512 groups at most");
  if (std::int64_t{p.num} * p.n > (std::int64_t{1} << 30)) {
    return Feasibility::Refuse("takes weights of 2^30 rows of all groups at most");
  }
  if (p.a.align < 16 || p.b.align < 16) {
    return Feasibility::Refuse("takes rows of A and B on 16 bytes (TMA)");
  }
  return Feasibility::Ok();
}

// What no kernel that pairs gate and up takes.
Feasibility WhyPaired(const GemmDesc& p, const FormatInfo& format) noexcept {
  if (p.gate_order != GateOrder::kHalves)
    return Feasibility::Refuse("pairs gate and up one behind the other");
  if (p.n % 16 != 0) {
    return Feasibility::Refuse("pairs gate and up where each has a multiple of 8 rows");
  }
  if (format.sums == Sums::kBlockScaled && p.n % kBlock != 0) {
    return Feasibility::Refuse("pairs gate and up with a multiple of 64 rows each");
  }
  return Feasibility::Ok();
}

class GroupedSwap final : public GroupedKernel {
 public:
  GroupedSwap(const GroupedSwapKernel& kernel, KernelDesc desc, KernelInfo info)
      : GroupedKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = WhyGrouped(p, *kernel_.format); !common.ok()) return common;
    return kernel_.gated ? WhyPaired(p, *kernel_.format) : Feasibility::Ok();
  }

  int GetMaxSwizzle(const int4&) const override { return 0; }
  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    const int k_blocks = CeilDiv(shape.z * kernel_.format->element_bytes, kBlockBytes);
    return kernel_.split_tokens > 0 ? std::min(kMostGroupedSplits, k_blocks) : 1;
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    return GroupedSwapUs(kernel_, ChipOf(device, rates, p.sm_budget), splits, p);
  }

  Status LaunchGrouped(Gemm& gemm, const GroupedArgs& args, const LaunchSpec& spec,
                       cudaStream_t stream) const override {
    CULET_RETURN_IF_ERROR(CheckScales(args, id()));
    GroupedProblem problem = ProblemOf(args);
    problem.pdl = args.pdl && !spec.serial;
    const RelaxedCapture relaxed;  // the first launch of a kernel loads it
    CULET_RETURN_IF_ERROR(
        CudaStatus(LoadKernel(kernel_.function, kernel_.smem_bytes), "loading " + id()));
    GroupedSwapLaunch launch;
    if (!PlanGroupedSwap(kernel_, problem, spec.splits, SmsOf(args, gemm.device()), &launch)) {
      return Status(StatusCode::kInternal, id() + ": the driver refuses a tensor map");
    }
    return CudaStatus(launch.Start(stream), "launching " + id());
  }

 private:
  const GroupedSwapKernel& kernel_;
};

class GroupedSkinny final : public GroupedKernel {
 public:
  GroupedSkinny(const GroupedSkinnyKernel& kernel, KernelDesc desc, KernelInfo info)
      : GroupedKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = WhyGrouped(p, *kernel_.format); !common.ok()) return common;
    const GroupedRows mean = ExpectedRows(p);
    if (mean.rows > kSkinnyTokens * mean.reached)
      return Feasibility::Refuse("made for up to 8 rows a group");
    if (p.sm_budget > 0) return Feasibility::Refuse("spreads over all multiprocessors; no budget");
    return kernel_.gated ? WhyPaired(p, *kernel_.format) : Feasibility::Ok();
  }

  int GetMaxSwizzle(const int4&) const override { return 0; }
  int GetMaxSplits(const int4& shape, int, std::size_t, std::size_t) const override {
    return GroupedSkinnyMaxSplits(kernel_, shape.z);
  }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int splits) const noexcept override {
    return GroupedSkinnyUs(kernel_, ChipOf(device, rates, p.sm_budget), splits, p);
  }

  Status LaunchGrouped(Gemm& gemm, const GroupedArgs& args, const LaunchSpec& spec,
                       cudaStream_t stream) const override {
    CULET_RETURN_IF_ERROR(CheckScales(args, id()));
    GroupedProblem problem = ProblemOf(args);
    problem.pdl = args.pdl && !spec.serial;
    const RelaxedCapture relaxed;
    const GroupedSkinnyLaunch launch =
        PlanGroupedSkinny(kernel_, problem, spec.splits, gemm.device().units);
    CULET_RETURN_IF_ERROR(
        CudaStatus(LoadKernel(launch.function, launch.shape.smem_bytes), "loading " + id()));
    return CudaStatus(launch.Start(stream), "launching " + id());
  }

 private:
  const GroupedSkinnyKernel& kernel_;
};

class GroupedBlock final : public GroupedKernel {
 public:
  GroupedBlock(const BlockKernel& kernel, KernelDesc desc, KernelInfo info)
      : GroupedKernel(desc, std::move(info)), kernel_(kernel) {}

  Feasibility why(const GemmDesc& p) const noexcept override {
    if (const Feasibility base = Kernel::why(p); !base.ok()) return base;
    if (const Feasibility common = WhyGrouped(p, *kernel_.format); !common.ok()) return common;
    if (p.type_bias != DataType::kNull) return Feasibility::Refuse("does not add a bias");
    if (p.a.striding != Striding::kBlocked)
      return Feasibility::Refuse("takes rows that lie by groups, without an index");
    return Feasibility::Ok();
  }

  int GetMaxSwizzle(const int4&) const override { return 0; }
  int GetMaxSplits(const int4&, int, std::size_t, std::size_t) const override { return 1; }

  double PredictUs(const GemmDesc& p, const DeviceInfo& device, const HardwareRates& rates, int,
                   int) const noexcept override {
    return GroupedBlockUs(kernel_, ChipOf(device, rates, p.sm_budget), p);
  }

  Status LaunchGrouped(Gemm& gemm, const GroupedArgs& args, const LaunchSpec& spec,
                       cudaStream_t stream) const override {
    CULET_RETURN_IF_ERROR(CheckScales(args, id()));
    ProductProblem p;
    p.m = args.rows, p.n = args.n, p.k = args.k;
    p.lda = args.lda, p.ldb = args.k, p.ldd = args.ldd;
    p.a = args.A, p.b = args.B, p.d = args.D;
    p.scale_a = args.U, p.scale_b = args.V;
    p.scale_a_row = static_cast<int>(args.u_row);
    p.scale_a_block = static_cast<int>(args.u_block);
    p.scale_b_column = static_cast<int>(Blocks(args.k));
    p.scale_b_block = 1;
    p.pdl = args.pdl && !spec.serial;
    const RelaxedCapture relaxed;
    CULET_RETURN_IF_ERROR(CudaStatus(Load(kernel_), "loading " + id()));
    BlockLaunch launch;
    const BlockGroups groups{.starts = args.starts, .counts = args.counts, .count = args.groups};
    if (!PlanGroupedBlock(kernel_, p, groups, SmsOf(args, gemm.device()), &launch)) {
      return Status(StatusCode::kInternal, id() + ": the driver refuses a tensor map");
    }
    return CudaStatus(launch.Start(stream), "launching " + id());
  }

 private:
  const BlockKernel& kernel_;
};

}  // namespace

void AddGroupedKernels(KernelList& kernels) {
  for (const GroupedSkinnyKernel& kernel : GroupedSkinnyKernels()) {
    KernelDesc desc =
        DescOf(*kernel.format, kernel.gated ? EpilogueKind::kGated : EpilogueKind::kGeneral, 2);
    desc.grouped = true;
    desc.gate_halves = kernel.gated;
    desc.tile_m = kSkinnyTokens, desc.tile_n = kernel.rows(), desc.tile_k = kernel.block_k();
    desc.split_k = true;
    desc.stages = kernel.depth();
    desc.accumulator_bits = 24, desc.promotion_k = 0;  // mma adds in FP32, E4M3 as F16
    KernelInfo info;
    info.name = kernel.Id();
    info.registers = kernel.registers();
    constexpr int kWarps = 4;
    info.dynamic_smem_size = kWarps * kernel.warp_bytes;
    info.max_active_ctas = GroupedSkinnyResident(kernel, kWarps);
    kernels.push_back(std::make_unique<GroupedSkinny>(kernel, desc, std::move(info)));
  }
  for (const GroupedSwapKernel& kernel : GroupedSwapKernels()) {
    KernelDesc desc =
        DescOf(*kernel.format, kernel.gated ? EpilogueKind::kGated : EpilogueKind::kGeneral, 2);
    desc.grouped = true;
    desc.gate_halves = kernel.gated;
    desc.tile_m = kernel.tokens, desc.tile_n = kernel.rows;
    desc.tile_k = kBlockBytes / kernel.format->element_bytes;
    desc.split_k = kernel.split_tokens > 0;
    KernelInfo info;
    info.name = kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size = kernel.smem_bytes;
    info.max_active_ctas = kernel.resident;
    kernels.push_back(std::make_unique<GroupedSwap>(kernel, desc, std::move(info)));
  }
  for (const BlockKernel& kernel : GroupedBlocks()) {
    KernelDesc desc = DescOf(*kernel.format, kernel.epilogue, kernel.output_bytes);
    desc.grouped = true;
    desc.tile_m = kernel.tile_m, desc.tile_n = kernel.tile_n, desc.tile_k = kernel.block_k();
    desc.stages = kernel.stages;
    KernelInfo info;
    info.name = kernel.id;
    info.registers = kernel.registers;
    info.dynamic_smem_size = kernel.smem_bytes;
    kernels.push_back(std::make_unique<GroupedBlock>(kernel, desc, std::move(info)));
  }
}

}  // namespace culet::sm90
