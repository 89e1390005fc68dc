// cpu_reference: every product in double precision, rounded once. The oracle of the other kernels
// and the last resort for problems that no other takes.
#include <algorithm>
#include <memory>
#include <new>

#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "culet/kernel.h"
#include "kernels/catalog.h"

namespace culet {
namespace {

// A tile of D and the blocks of A and B it needs, decoded to double: 264 KB, which stays in L2.
constexpr int kTileM = 32;
constexpr int kTileN = 32;
constexpr int kBlockK = 512;
constexpr int kLanes = 8;  // columns summed side by side: their sums stay in registers

struct Tile {
  double a[kTileM][kBlockK];
  double b[kBlockK][kTileN];
  double sum[kTileM][kTileN];
};

constexpr int CeilDiv(int a, int b) noexcept { return (a - 1) / b + 1; }

// Multiplies `count` elements along K from `k0` on, of row `outer` of A or column `outer` of B, by
// their scales.
void ScaleAlongK(double* values, int count, int k0, const QuantDesc& quant, const ScaleGroup& group,
                 const void* scales, const MatrixLayout& layout, int outer, bool is_a) noexcept {
  if (quant.type == QuantType::kNone) return;
  const int group_outer = outer / group.outer;
  for (int i = 0; i < count;) {
    const int group_k = (k0 + i) / group.k;
    const std::int64_t index =
        is_a ? IndexOf(layout, group_outer, group_k) : IndexOf(layout, group_k, group_outer);
    const double scale = LoadAsDouble(scales, layout.type, index);
    const std::int64_t group_end = (std::int64_t{group_k} + 1) * group.k - k0;
    const int end = static_cast<int>(std::min<std::int64_t>(count, group_end));
    for (; i < end; ++i) values[i] *= scale;
  }
}

void LoadA(const GemmArgs& args, int row0, int rows, int k0, int count, Tile& tile) noexcept {
  const MatrixLayout& layout = args.Adesc;
  const QuantDesc& quant = args.operation.quant_a;
  const ScaleGroup group = ScaleGroupOf(quant, layout.rows, layout.cols);
  for (int r = 0; r < rows; ++r) {
    LoadLine(args.A, layout.type, IndexOf(layout, row0 + r, k0),
             layout.order == Order::kRowMajor ? 1 : layout.ld, count, tile.a[r]);
    ScaleAlongK(tile.a[r], count, k0, quant, group, args.U, args.Udesc, row0 + r, true);
  }
}

// Columns past the last are zero: they are summed with the rest of their lanes and dropped.
void LoadB(const GemmArgs& args, int col0, int cols, int k0, int count, Tile& tile) noexcept {
  const MatrixLayout& layout = args.Bdesc;
  const QuantDesc& quant = args.operation.quant_b;
  const ScaleGroup group = ScaleGroupOf(quant, layout.cols, layout.rows);
  double column[kBlockK];
  for (int c = 0; c < kTileN; ++c) {
    std::fill_n(column, count, 0.0);
    if (c < cols) {
      LoadLine(args.B, layout.type, IndexOf(layout, k0, col0 + c),
               layout.order == Order::kColMajor ? 1 : layout.ld, count, column);
      ScaleAlongK(column, count, k0, quant, group, args.V, args.Vdesc, col0 + c, false);
    }
    for (int i = 0; i < count; ++i) tile.b[i][c] = column[i];
  }
}

void MultiplyBlocks(int rows, int count, Tile& tile) noexcept {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < kTileN; c += kLanes) {
      double sum[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) sum[lane] = tile.sum[r][c + lane];
      for (int i = 0; i < count; ++i) {
        for (int lane = 0; lane < kLanes; ++lane) sum[lane] += tile.a[r][i] * tile.b[i][c + lane];
      }
      for (int lane = 0; lane < kLanes; ++lane) tile.sum[r][c + lane] = sum[lane];
    }
  }
}

void StoreTile(const GemmArgs& args, int row0, int rows, int col0, int cols,
               const Tile& tile) noexcept {
  const Bias& bias = args.operation.bias;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      const int row = row0 + r, col = col0 + c;
      double value = args.alpha * tile.sum[r][c];
      if (args.beta != 0.0f) {
        value += args.beta * LoadAsDouble(args.C, args.Cdesc.type, IndexOf(args.Cdesc, row, col));
      }
      if (bias.data != nullptr) {
        value += LoadAsDouble(bias.data, bias.type, bias.axis == Bias::Axis::kN ? col : row);
      }
      StoreFromDouble(args.D, args.Ddesc.type, IndexOf(args.Ddesc, row, col), value);
    }
  }
}

void ComputeColumn(const GemmArgs& args, int col0, Tile& tile) noexcept {
  const int m = args.Ddesc.rows, k = args.Adesc.cols;
  const int cols = std::min(kTileN, args.Ddesc.cols - col0);
  for (int row0 = 0; row0 < m; row0 += kTileM) {
    const int rows = std::min(kTileM, m - row0);
    for (auto& row : tile.sum) std::ranges::fill(row, 0.0);
    for (int k0 = 0; k0 < k; k0 += kBlockK) {
      const int count = std::min(kBlockK, k - k0);
      LoadA(args, row0, rows, k0, count, tile);
      LoadB(args, col0, cols, k0, count, tile);
      MultiplyBlocks(rows, count, tile);
    }
    StoreTile(args, row0, rows, col0, cols, tile);
  }
}

class CpuReference final : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;

  Feasibility why(const GemmDesc& problem) const noexcept override {
    const Feasibility base = ArgsKernel::why(problem);
    if (!base.ok()) return base;
    if (problem.a.scale_type == DataType::kFloat8_ue8m0 ||
        problem.b.scale_type == DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("takes float scales, not UE8M0; convert them to float32");
    }
    if (problem.a.type == DataType::kFloat8_ue8m0 || problem.b.type == DataType::kFloat8_ue8m0 ||
        problem.c.type == DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("UE8M0 is a scale format; A, B and C hold numbers");
    }
    return Feasibility::Ok();
  }

  int Run(const GemmArgs& args, int, int, Workspace&, cudaStream_t) override {
    const int n = args.Ddesc.cols;
    ThreadPool& pool = HostPool();
    const std::unique_ptr<Tile[]> tiles(new (std::nothrow)
                                            Tile[static_cast<std::size_t>(pool.threads())]);
    if (tiles == nullptr) return static_cast<int>(StatusCode::kResourceExhausted);
    // A part takes whole columns of tiles: all rows of A pass while B's columns are in the cache.
    const int columns = CeilDiv(n, kTileN);
    const int budget = args.operation.sm_budget;
    const int parts = budget > 0 ? std::min(budget, columns) : columns;
    pool.Run(parts, [&](int part, int thread) {
      for (int column = part; column < columns; column += parts) {
        ComputeColumn(args, column * kTileN, tiles[static_cast<std::size_t>(thread)]);
      }
    });
    return 0;
  }
};

}  // namespace

void AddCpuReference(const DeviceInfo&, KernelList& kernels) {
  KernelDesc desc;
  desc.backend = Backend::kReference;
  desc.tile_m = kTileM;
  desc.tile_n = kTileN;
  desc.tile_k = kBlockK;
  desc.determinism = Determinism::kBatchInvariant;
  KernelInfo info;
  info.name = "cpu_reference";
  info.bandwidth_share = 0.05;
  info.matrix_share = 0.02;
  kernels.push_back(std::make_unique<CpuReference>(desc, info));
}

}  // namespace culet
