// What the host knows of the kernels that compute any product on any GPU from compute capability
// 8.0 on: any shape, order, ld and pointer. Both operands are seen as rows along K: a row of A, a
// column of B.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "culet/layout/host_device.h"
#include "culet/problem.h"
#include "culet/types.h"

namespace culet::any_shape {

/// One operand. Strides are in elements; scales and zero points are addressed by
/// (row / group_rows, k / group_k).
struct Operand {
  const void* data = nullptr;
  const void* scales = nullptr;  ///< null: all 1
  const void* zeros = nullptr;   ///< null: all 0
  std::int64_t row_stride = 0;
  std::int64_t k_stride = 0;
  std::int64_t scale_row_stride = 0;
  std::int64_t scale_k_stride = 0;
  int group_rows = 1;
  int group_k = 1;
  DataType type = DataType::kNull;
  DataType scale_type = DataType::kNull;
  DataType zero_type = DataType::kNull;
  /// Bytes that one asynchronous copy may take: 16 or 4 along K; 0: element by element.
  int copy_bytes = 0;
};

/// C, D or a bias; strides in elements, 0 where a bias does not vary.
struct Output {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
  DataType type = DataType::kNull;  ///< kNull: absent
};

/// The order in which work is handed out: all tiles of one part of K after the other. Tiles go in
/// bands of 2^swizzle along n, as long as D is tall, so that tiles that run together share
/// operands.
struct WorkOrder {
  int tiles_m = 0;
  int tiles_n = 0;
  int swizzle = 0;
  int splits = 1;

  struct Position {
    std::int64_t tile;  ///< 0 .. tiles - 1, the same for all parts
    int tile_m, tile_n, split;
  };

  CULET_HOST_DEVICE constexpr std::int64_t tiles() const {
    return static_cast<std::int64_t>(tiles_m) * tiles_n;
  }
  CULET_HOST_DEVICE constexpr std::int64_t count() const { return tiles() * splits; }

  CULET_HOST_DEVICE constexpr Position At(std::int64_t index) const {
    Position at{};
    at.split = static_cast<int>(index / tiles());
    at.tile = index - at.split * tiles();
    const std::int64_t per_band = static_cast<std::int64_t>(tiles_m) << swizzle;
    const std::int64_t band = at.tile / per_band, rest = at.tile - band * per_band;
    const int first = static_cast<int>(band << swizzle);
    const int width = tiles_n - first < 1 << swizzle ? tiles_n - first : 1 << swizzle;
    at.tile_m = static_cast<int>(rest / width);
    at.tile_n = first + static_cast<int>(rest % width);
    return at;
  }
};

/// The first of the k-tiles of part `split`; the parts differ by one tile at most.
CULET_HOST_DEVICE constexpr int SplitBegin(int k_tiles, int splits, int split) {
  return static_cast<int>(static_cast<std::int64_t>(k_tiles) * split / splits);
}

/// The kernels' one argument.
struct Problem {
  Operand operands[2];  ///< A and B
  Output c, d, bias;
  int m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  float beta = 0.0f;
  WorkOrder order;
  float* partials = nullptr;  ///< sums of each (tile, part), where K is split
  int* arrived = nullptr;     ///< parts of each tile that are there; zero between launches
};

/// One compiled kernel.
struct CompiledKernel {
  const char* id;        ///< format/tile
  const void* function;  ///< of one Problem
  DataType type;         ///< of A and B; kNull: any
  int tile_m, tile_n, tile_k;
  int threads;
  int stages;
  int smem_bytes;  ///< dynamic
  int ctas;        ///< a multiprocessor of compute capability 9.0
  int registers;   ///< a thread, in the code for compute capability 9.0
};

/// Products on tensor cores: equal types of A and B, E4M3 with scales for multiples of tile_k.
std::span<const CompiledKernel> MmaKernels();

/// Everything else, in FP32 lanes.
const CompiledKernel& SimtKernel();

constexpr int CeilDiv(int a, int b) { return (a - 1) / b + 1; }

/// The problem of `args`, without a workspace. Null pointers are taken as aligned to 16 bytes.
Problem MakeProblem(const CompiledKernel& kernel, const GemmArgs& args, int swizzle, int splits);

/// What can change between launches of one plan; the operands keep layouts and types.
void Rebind(const void* a, const void* scales_a, const void* c, void* d, float alpha, float beta,
            Problem* problem);

/// Workspace of a launch: barriers and partial sums.
WorkspaceSize WorkspaceOf(const CompiledKernel& kernel, int m, int n, int splits);

/// The most parts of K that the workspace and the k-tiles allow, at most kMaxSplits.
int MaxSplits(const CompiledKernel& kernel, int m, int n, int k, std::size_t barriers,
              std::size_t partials);
inline constexpr int kMaxSplits = 32;

/// CTAs of a launch: one for each piece of work, no more than the grid holds nor, with a budget,
/// than the multiprocessors that may be used.
int GridSize(const WorkOrder& order, int sm_budget);

/// Loads the kernel on the current device and sets its limit of shared memory; not during a
/// capture.
cudaError_t Load(const CompiledKernel& kernel);

/// Launches on the current device. Returns the launch's own error.
cudaError_t Launch(const CompiledKernel& kernel, const Problem& problem, int sm_budget,
                   const Workspace& workspace, cudaStream_t stream);

}  // namespace culet::any_shape
