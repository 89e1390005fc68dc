#include "kernels/sm90/block/block.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/sm90/product/launch.h"
#include "kernels/sm90/product/lists.h"
#include "kernels/sm90/product/operand_map.h"
#include "kernels/sm90/product/padded.h"
#include "kernels/sm90/times/times.h"
#include "sm90/tensor_map.h"

namespace culet::sm90 {

std::span<const BlockKernel> Fp8Block192xN();
std::span<const BlockKernel> Fp8Block256x128();
std::span<const BlockKernel> Fp8Block128xN();
std::span<const BlockKernel> Fp8BlockSplit();
std::span<const BlockKernel> Fp8BlockFloat32();
std::span<const BlockKernel> Fp8PreciseBlocks();
std::span<const BlockKernel> Fp8FastBlocks();
std::span<const BlockKernel> Fp8GatedBlocks();
std::span<const BlockKernel> Bf16Blocks();
std::span<const BlockKernel> Bf16GatedBlocks();
std::span<const BlockKernel> Bf16GatedNarrowBlocks();
std::span<const BlockKernel> F16Blocks();
std::span<const BlockKernel> CopyingBlocks();

std::span<const BlockKernel> BlockKernels() {
  static const auto kernels = Joined<BlockKernel>(
      {Fp8Block192xN(), Fp8Block256x128(), Fp8Block128xN(), Fp8BlockSplit(), Fp8BlockFloat32(),
       Fp8PreciseBlocks(), Fp8FastBlocks(), Bf16Blocks(), F16Blocks(), Fp8GatedBlocks(),
       Bf16GatedBlocks(), Bf16GatedNarrowBlocks(), CopyingBlocks()});
  return kernels;
}

namespace {

constexpr int kSplitGroup = 8;  // rows of tiles of a split kernel's supergroup

// A matrix of scales of which `inner` are contiguous.
TensorMapPlan ScalesPlan(int inner, int outer, int pitch, int box_inner, int box_outer) {
  TensorMapPlan plan;
  plan.inner = static_cast<std::uint64_t>(inner);
  plan.outer = static_cast<std::uint64_t>(outer);
  plan.pitch_bytes = static_cast<std::uint64_t>(pitch) * 4;
  plan.box_inner = static_cast<std::uint32_t>(box_inner);
  plan.box_outer = static_cast<std::uint32_t>(box_outer);
  plan.element_bytes = 4;
  plan.swizzle = SwizzleMode::kNone;
  return plan;
}

bool IsAligned16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// The maps of the scales, over some address where theirs does not fit a map now.
void PlanScales(const BlockKernel& kernel, const ProductProblem& problem, BlockParams* params) {
  const int k_blocks = CeilDiv(problem.k, kernel.block_k());
  const void* const scale_a = IsAligned16(problem.scale_a) ? problem.scale_a : problem.b;
  params->u_rows_inner = problem.scale_a_block != 1;
  const auto u = [&](int box_rows) {
    return params->u_rows_inner
               ? ScalesPlan(problem.m, k_blocks, problem.scale_a_block, box_rows, 4)
               : ScalesPlan(k_blocks, problem.m, problem.scale_a_row, 4, box_rows);
  };
  // Rows side by side are one row of a box, whose bytes must be a multiple of 16.
  const int rest = params->u_rows_inner ? 0 : problem.m % kernel.tile_m;
  TensorMapPlan v =
      ScalesPlan(k_blocks, CeilDiv(problem.n, 128), problem.scale_b_column, 4, kernel.scale_blocks);
  if (IsGated(kernel.epilogue)) v.rank = 3;
  if (kernel.grouped) {
    v.rank = 3;
    v.depth = static_cast<std::uint64_t>(params->groups.count);
    v.depth_bytes = v.outer * v.pitch_bytes;
  }
  if (const int up_column = problem.epilogue.up_column; up_column != 0) {
    v.outer = static_cast<std::uint64_t>(up_column / 128);
    v.depth_bytes = v.outer * v.pitch_bytes;
    v.depth = v.box_depth = 2;
    v.box_outer = static_cast<std::uint32_t>(kernel.scale_blocks / 2);
  }
  params->scales_have_maps =
      (!params->u_rows_inner || problem.scale_a_row == 1) && problem.scale_b_block == 1 &&
      IsAligned16(problem.scale_b) && EncodeTensorMap(u(kernel.tile_m), scale_a, &params->u) &&
      EncodeTensorMap(u(rest != 0 ? rest : kernel.tile_m), scale_a, &params->u_rest) &&
      EncodeTensorMap(v, problem.scale_b, &params->v);
  params->scales_by_tma = params->scales_have_maps && IsAligned16(problem.scale_a);
}

}  // namespace

BlockGrid GridOf(const BlockKernel& kernel, int tiles, int sms, bool pdl) {
  // A split kernel computes one tile a cluster. The others are persistent, and clusters that find
  // no place would begin when the rest have ended.
  const int size = kernel.cluster_size();
  int places =
      std::max(1, static_cast<int>(kernel.split > 1 ? sms : sms * FilledShare(size)) / size);
  BlockGrid grid{.clusters = kernel.split > 1 ? tiles : std::min(tiles, places)};
  if (!pdl || tiles <= places / 2) return grid;
  grid.in_pairs = kernel.cluster_size() == 1 && places > 1;
  if (grid.in_pairs) places -= places % 2;
  grid.clusters = kernel.split > 1 ? std::max(tiles, places) : places;
  grid.idle_clusters = std::max(0, places - tiles);
  return grid;
}

namespace {

// The maps of A, B and D. False when one cannot be made.
bool PlanMaps(const BlockKernel& kernel, const ProductProblem& problem, BlockParams* params) {
  TensorMapPlan d;
  d.element_bytes = 2;
  // A bulk store writes whole pieces of 16 bytes: the map ends with the last of them (TileStore),
  // and is not used where there is none.
  const int columns = IsGated(kernel.epilogue) ? problem.n / 2 : problem.n;
  const int piece = 16 / static_cast<int>(d.element_bytes);
  d.inner = static_cast<std::uint64_t>(std::max(columns - columns % piece, piece));
  d.outer = static_cast<std::uint64_t>(problem.m);
  d.pitch_bytes = static_cast<std::uint64_t>(problem.ldd * d.element_bytes);
  d.box_inner = static_cast<std::uint32_t>(128 / d.element_bytes);
  d.box_outer = static_cast<std::uint32_t>(kernel.store_rows);
  const int bytes = kernel.format->element_bytes;
  const bool general = kernel.epilogue != EpilogueKind::kPlain;
  params->d_has_map = kernel.epilogue != EpilogueKind::kGatedQuant &&
                      (general ? problem.epilogue.d_type : kernel.output) != OutputType::kF32;
  const int rows_b = kernel.tile_n / kernel.cluster_m;  // of a box
  const int up_column = problem.epilogue.up_column;
  TensorMapPlan b = BytesPlan(problem.k, problem.n, problem.ldb, bytes, rows_b);
  if (kernel.by_lanes)
    b = LanesPlan(problem.k, problem.n, problem.ldb, bytes, up_column);
  else if (IsGated(kernel.epilogue))
    b = PairedPlan(problem.k, problem.n, problem.ldb, bytes, rows_b, up_column);
  return EncodeTensorMapAndRest(
             BytesPlan(problem.k, problem.m, problem.lda, bytes, kernel.tile_m / kernel.cluster_n),
             problem.a, &params->a, &params->a_rest) &&
         (kernel.by_lanes ? EncodeTensorMap(b, problem.b, &params->b)
                          : EncodeTensorMapAndRest(b, problem.b, &params->b, &params->b_rest)) &&
         (!params->d_has_map || EncodeTensorMap(d, problem.d, &params->d_map));
}

// What kernels that copy A and B need instead of maps.
void PlanCopies(const BlockKernel& kernel, const ProductProblem& problem, BlockParams* params) {
  const int bytes = kernel.format->element_bytes;
  params->a_rows = static_cast<const char*>(problem.a);
  params->b_rows = static_cast<const char*>(problem.b);
  params->a_pitch = problem.lda * bytes;
  params->b_pitch = problem.ldb * bytes;
  params->k_bytes = problem.k * bytes;
  params->by_eights = params->RowsLieOn8();
}

}  // namespace

bool PlanBlock(const BlockKernel& kernel, const ProductProblem& problem, int swizzle, int sms,
               BlockLaunch* launch) {
  BlockParams* const params = &launch->params;
  const int element = kernel.format->element_bytes;
  if (kernel.copies) {
    PlanCopies(kernel, problem, params);
  } else if (!PlanMaps(kernel, problem, params)) {
    return false;
  }
  params->Put(problem, *kernel.format, kernel.epilogue);
  if (kernel.format->sums == Sums::kBlockScaled && !kernel.copies)
    PlanScales(kernel, problem, params);
  params->k_blocks = CeilDiv(problem.k, kernel.block_k());
  if (params->k_blocks < kernel.split) return false;
  // A split kernel mostly fills one wave, so its order is not worth a choice.
  const int group = kernel.split > 1 ? kSplitGroup : 1 << swizzle;
  params->order = TileOrder(CeilDiv(problem.m, kernel.tile_m * kernel.cluster_m),
                            CeilDiv(problem.n, kernel.tile_n * kernel.run * kernel.cluster_n),
                            std::max(1, group / kernel.cluster_m));
  params->b_leaves_first =
      BLeavesFirst(params->order, std::int64_t{problem.n} * problem.k * element);
  const BlockGrid grid = GridOf(kernel, params->order.count(), sms, problem.pdl);
  params->idle_clusters = grid.idle_clusters;
  launch->format = kernel.format;
  const bool halves = problem.epilogue.up_column != 0 && kernel.of_halves != nullptr;
  launch->function = halves ? kernel.of_halves : kernel.function;
  launch->shape = {.grid = dim3(static_cast<unsigned>(grid.clusters * kernel.cluster_size())),
                   .block = dim3(static_cast<unsigned>(kernel.threads)),
                   .smem_bytes = kernel.smem_bytes,
                   .cluster_size = grid.in_pairs ? 2 : kernel.cluster_size(),
                   .pdl = problem.pdl};
  return true;
}

bool PlanGroupedBlock(const BlockKernel& kernel, const ProductProblem& problem,
                      const BlockGroups& groups, int sms, BlockLaunch* launch) {
  BlockParams* const params = &launch->params;
  params->groups = groups;
  params->groups.tiles_n = CeilDiv(problem.n, kernel.tile_n);
  if (groups.count < 1 || groups.count > kMostGroups || !PlanMaps(kernel, problem, params)) {
    return false;
  }
  TensorMapPlan b =
      BytesPlan(problem.k, problem.n, problem.ldb, kernel.format->element_bytes, kernel.tile_n);
  b.rank = 3;
  b.depth = static_cast<std::uint64_t>(groups.count);
  b.depth_bytes = b.outer * b.pitch_bytes;
  if (!EncodeTensorMap(b, problem.b, &params->b)) return false;
  params->Put(problem, *kernel.format, kernel.epilogue);
  if (kernel.format->sums == Sums::kBlockScaled) PlanScales(kernel, problem, params);
  // A copy must begin on 16 bytes of the contiguous axis, and a group may begin at any row.
  if (params->u_rows_inner) params->scales_have_maps = params->scales_by_tma = false;
  params->k_blocks = CeilDiv(problem.k, kernel.block_k());
  launch->format = kernel.format;
  launch->function = kernel.function;
  // As many CTAs as there may be tiles: each group can end within one.
  const std::int64_t most =
      (problem.m / kernel.tile_m + std::int64_t{groups.count}) * params->groups.tiles_n;
  launch->shape = {.grid = dim3(static_cast<unsigned>(std::min<std::int64_t>(most, sms))),
                   .block = dim3(static_cast<unsigned>(kernel.threads)),
                   .smem_bytes = kernel.smem_bytes,
                   .cluster_size = 1,
                   .pdl = problem.pdl};
  return true;
}

bool BlockParams::RowsLieOn8() const {
  return (reinterpret_cast<std::uintptr_t>(a_rows) | reinterpret_cast<std::uintptr_t>(b_rows) |
          static_cast<std::uintptr_t>(a_pitch) | static_cast<std::uintptr_t>(b_pitch)) %
             8 ==
         0;
}

bool BlockParams::Bind(const GemmOperands& operands) {
  if (k_bytes > 0) {
    a_rows = static_cast<const char*>(operands.a);
    by_eights = RowsLieOn8();
    return true;
  }
  scales_by_tma = scales_have_maps && IsAligned16(operands.scale_a);
  return ReplaceTensorMapAddress(&a, operands.a) && ReplaceTensorMapAddress(&a_rest, operands.a) &&
         (!d_has_map || ReplaceTensorMapAddress(&d_map, operands.d)) &&
         (!scales_by_tma || (ReplaceTensorMapAddress(&u, operands.scale_a) &&
                             ReplaceTensorMapAddress(&u_rest, operands.scale_a)));
}

bool BindB(BlockParams* params, const void* b) {
  return ReplaceTensorMapAddress(&params->b, b) && ReplaceTensorMapAddress(&params->b_rest, b);
}

}  // namespace culet::sm90
