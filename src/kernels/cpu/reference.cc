// cpu_reference: every product in double precision, rounded once. The oracle of the other kernels
// and the last resort for problems that no other takes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <new>

#include "base/e4m3_group.h"
#include "base/float_types.h"
#include "base/matrix_index.h"
#include "base/thread_pool.h"
#include "culet/kernel.h"
#include "kernels/catalog.h"
#include "kernels/cpu/lines.h"

namespace culet {
namespace {

// A tile of the product and the blocks of A and B it needs, decoded to double: 264 KB, which stays
// in L2; and the rows of a group of a quantised D.
constexpr int kTileM = 32;
constexpr int kTileN = 32;
constexpr int kBlockK = 512;
constexpr int kLanes = 8;      // columns summed side by side: their sums stay in registers
constexpr int kGroup = 128;    // columns of D that share a scale
constexpr int kHalfGroup = 8;  // gates, and ups, side by side

struct Tile {
  double a[kTileM][kBlockK];
  double b[kBlockK][kTileN];
  double sum[kTileM][kTileN];
  float gated[kTileM][kGroup];
};

constexpr int CeilDiv(int a, int b) noexcept { return (a - 1) / b + 1; }

void LoadA(const Lines& lines, int row0, int rows, int k0, int count, Tile& tile) noexcept {
  for (int r = 0; r < rows; ++r) LoadScaledLine(lines, row0 + r, k0, count, tile.a[r]);
}

// The column of B at position `at` of the order in which tiles take them: gate and up in kEights
// order, where they are paired, so that a tile has both.
int ColumnAt(const GemmArgs& args, int at) noexcept {
  if (args.operation.gate_order == GateOrder::kEights) return at;
  const int group = 2 * kHalfGroup, col = at / group * kHalfGroup + at % kHalfGroup;
  const GateColumns columns = GateColumnsOf(args.operation.gate_order, args.Bdesc.cols, col);
  return at % group < kHalfGroup ? columns.gate : columns.up;
}

// Columns past the last are zero: they are summed with the rest of their lanes and dropped.
void LoadB(const GemmArgs& args, const Lines& lines, int col0, int cols, int k0, int count,
           Tile& tile) noexcept {
  double column[kBlockK];
  for (int c = 0; c < kTileN; ++c) {
    std::fill_n(column, count, 0.0);
    if (c < cols) LoadScaledLine(lines, ColumnAt(args, col0 + c), k0, count, column);
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

// The sums become alpha * sum + beta * C + bias.
void AddAll(const GemmArgs& args, int matrix, int row0, int rows, int col0, int cols,
            Tile& tile) noexcept {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) {
      double& value = tile.sum[r][c];
      value = FinishedSum(args, matrix, row0 + r, ColumnAt(args, col0 + c), value);
    }
  }
}

void Store(const GemmArgs& args, int matrix, int row, int col, double value) noexcept {
  StoreFromDouble(args.D, args.Ddesc.type,
                  BatchOffset(args.Ddesc, matrix) + IndexOf(args.Ddesc, row, col), value);
}

// One row of a group of D: its scale and its values.
void StoreQuantised(const GemmArgs& args, int matrix, int row, int col0, int cols,
                    const float* values) noexcept {
  float amax = 0;
  bool finite = true;
  for (int c = 0; c < cols; ++c) {
    finite &= std::isfinite(values[c]);
    amax = std::max(amax, std::fabs(values[c]));
  }
  const float scale = ScaleOfE4m3Group(amax, finite);
  const OutputQuant& w = args.operation.quant_d;
  StoreFromDouble(w.scales, w.layout.type,
                  BatchOffset(w.layout, matrix) + IndexOf(w.layout, row, col0 / kGroup), scale);
  for (int c = 0; c < cols; ++c) {
    // The positive NaN, whatever the sign of what made it.
    const float quotient = finite ? values[c] / scale : scale;
    Store(args, matrix, row, col0 + c, quotient);
  }
}

void ComputeTile(const GemmArgs& args, int matrix, int row0, int rows, int col0, int cols,
                 Tile& tile) noexcept {
  const int k = args.Adesc.cols;
  const Lines a = LinesOfA(args, matrix), b = LinesOfB(args, matrix);
  for (auto& row : tile.sum) std::ranges::fill(row, 0.0);
  for (int k0 = 0; k0 < k; k0 += kBlockK) {
    const int count = std::min(kBlockK, k - k0);
    LoadA(a, row0, rows, k0, count, tile);
    LoadB(args, b, col0, cols, k0, count, tile);
    MultiplyBlocks(rows, count, tile);
  }
  AddAll(args, matrix, row0, rows, col0, cols, tile);
}

// Columns of the product that are computed in one go: a tile's, or those of a group of D.
constexpr int UnitOf(Epilogue epilogue) noexcept {
  return epilogue == Epilogue::kGatedSiluQuant ? 2 * kGroup : kTileN;
}

// Columns [col0, col0 + UnitOf(epilogue)) of the product, of all rows.
void ComputeColumns(const GemmArgs& args, int matrix, int col0, Tile& tile) noexcept {
  const Epilogue epilogue = args.operation.epilogue;
  const int m = args.Ddesc.rows, n = args.Bdesc.cols;
  const int end = std::min(n - col0, UnitOf(epilogue));
  for (int row0 = 0; row0 < m; row0 += kTileM) {
    const int rows = std::min(kTileM, m - row0);
    for (int at = 0; at < end; at += kTileN) {
      const int cols = std::min(kTileN, end - at);
      ComputeTile(args, matrix, row0, rows, col0 + at, cols, tile);
      for (int r = 0; r < rows; ++r) {
        const double* const x = tile.sum[r];
        if (epilogue == Epilogue::kNone) {
          for (int c = 0; c < cols; ++c) Store(args, matrix, row0 + r, col0 + at + c, x[c]);
          continue;
        }
        for (int c = 0; c < cols / 2; ++c) {
          const int gate = c / kHalfGroup * 2 * kHalfGroup + c % kHalfGroup;
          const double value = SiluInDouble(x[gate]) * x[gate + kHalfGroup];
          if (epilogue == Epilogue::kGatedSilu) {
            Store(args, matrix, row0 + r, (col0 + at) / 2 + c, value);
          } else {
            tile.gated[r][at / 2 + c] = static_cast<float>(RoundTo(DataType::kFloat32, value));
          }
        }
      }
    }
    if (epilogue != Epilogue::kGatedSiluQuant) continue;
    for (int r = 0; r < rows; ++r) {
      StoreQuantised(args, matrix, row0 + r, col0 / 2, end / 2, tile.gated[r]);
    }
  }
}

class CpuReference final : public ArgsKernel {
 public:
  using ArgsKernel::ArgsKernel;

  Feasibility why(const GemmDesc& problem) const noexcept override {
    const Feasibility base = ArgsKernel::why(problem);
    if (!base.ok()) return base;
    if (problem.a.type == DataType::kFloat8_ue8m0 || problem.b.type == DataType::kFloat8_ue8m0 ||
        problem.c.type == DataType::kFloat8_ue8m0) {
      return Feasibility::Refuse("UE8M0 is a scale format; A, B and C hold numbers");
    }
    return Feasibility::Ok();
  }

  int Run(const GemmArgs& args, int, int, Workspace&, cudaStream_t) override {
    ThreadPool& pool = HostPool();
    const std::unique_ptr<Tile[]> tiles(new (std::nothrow)
                                            Tile[static_cast<std::size_t>(pool.threads())]);
    if (tiles == nullptr) return static_cast<int>(StatusCode::kResourceExhausted);
    // A unit of work is whole columns: all rows of A pass while B's columns are in the cache.
    const int unit = UnitOf(args.operation.epilogue);
    const std::int64_t columns = CeilDiv(args.Bdesc.cols, unit);
    const std::int64_t units = columns * args.Ddesc.num;
    const std::int64_t budget = args.operation.sm_budget;
    const int parts = static_cast<int>(
        std::min<std::int64_t>(budget > 0 ? std::min(budget, units) : units, 1 << 20));
    pool.Run(parts, [&](int part, int thread) {
      for (std::int64_t at = part; at < units; at += parts) {
        ComputeColumns(args, static_cast<int>(at / columns), static_cast<int>(at % columns) * unit,
                       tiles[static_cast<std::size_t>(thread)]);
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
  desc.any_epilogue = true;
  desc.gate_halves = true;
  desc.strided_batch = true;
  desc.zero_points = true;
  KernelInfo info;
  info.name = "cpu_reference";
  info.bandwidth_share = 0.05;
  info.matrix_share = 0.02;
  kernels.push_back(std::make_unique<CpuReference>(desc, info));
}

}  // namespace culet
