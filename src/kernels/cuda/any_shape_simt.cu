// The last resort of a GPU: any types and any scales, widened to FP32 and summed along K in order,
// so that a row's bits depend on nothing but that row, B and K.
#include "kernels/cuda/any_shape.h"
#include "kernels/cuda/any_shape_finish.cuh"

namespace culet::any_shape {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;  // rows of A and columns of B
constexpr int kTileK = 16;
constexpr int kCtas = 2;                               // a multiprocessor
constexpr int kEach = 4;                               // x 4 sums a thread
constexpr int kLoads = kTile * kTileK / kThreads;      // elements of one operand a thread
constexpr int kPitch = kTile + 4;                      // keeps stores along K off one bank
constexpr int kSmemBytes = FinishBytes(kTile, kTile);  // which the tiles of A and B fit into
static_assert(2 * kTileK * kPitch * 4 <= kSmemBytes);

// Neighbouring threads load neighbouring elements: along K, or along the rows. A thread's elements
// lie at equal distances.
struct Slot {
  int row, k;
};
__device__ __forceinline__ Slot SlotOf(const Operand& operand, int load) {
  const int thread = static_cast<int>(threadIdx.x);
  return operand.k_stride == 1 ? Slot{thread / kTileK + load * (kThreads / kTileK), thread % kTileK}
                               : Slot{thread % kTile, thread / kTile + load * (kThreads / kTile)};
}

// As LoadElement, also of codes and of powers of two. The even one of two elements of 4 bits is the
// low half of their byte.
__device__ __forceinline__ float LoadCode(const void* data, DataType type, std::int64_t index) {
  if (type == DataType::kInt8) return static_cast<const std::int8_t*>(data)[index];
  if (type == DataType::kFloat8_ue8m0) {
    const std::uint32_t code = static_cast<const std::uint8_t*>(data)[index];
    if (code == 0xFF) return __uint_as_float(0x7FC00000u);
    return __uint_as_float(code == 0 ? 0x00400000u : code << 23);  // 2^-127 is subnormal
  }
  const bool shares =
      type == DataType::kUint4 || type == DataType::kInt4 || type == DataType::kFloat4_e2m1;
  if (!shares) return LoadElement(data, type, index);
  const std::uint32_t pair = static_cast<const std::uint8_t*>(data)[index >> 1];
  const int code = static_cast<int>(index % 2 == 0 ? pair & 15 : pair >> 4);
  if (type == DataType::kUint4) return static_cast<float>(code);
  if (type == DataType::kInt4) return static_cast<float>((code ^ 8) - 8);
  const int exponent = code >> 1 & 3, fraction = code & 1;
  const int halves = exponent == 0 ? fraction : (2 + fraction) << (exponent - 1);
  return (code & 8) != 0 ? -0.5f * static_cast<float>(halves) : 0.5f * static_cast<float>(halves);
}

__device__ __forceinline__ std::int64_t GroupOf(const Operand& operand, int row, int k) {
  return row / operand.group_rows * operand.scale_row_stride +
         k / operand.group_k * operand.scale_k_stride;
}

__device__ __forceinline__ void Fetch(const Operand& operand, int row0, int rows, int k0, int k,
                                      float (&values)[kLoads]) {
  const Slot first = SlotOf(operand, 0), second = SlotOf(operand, 1);
  const std::int64_t step =
      (second.row - first.row) * operand.row_stride + (second.k - first.k) * operand.k_stride;
  std::int64_t index = (static_cast<std::int64_t>(row0) + first.row) * operand.row_stride +
                       (static_cast<std::int64_t>(k0) + first.k) * operand.k_stride;
#pragma unroll
  for (int i = 0; i < kLoads; ++i, index += step) {
    const Slot slot = SlotOf(operand, i);
    const bool there = slot.row < rows - row0 && slot.k < k - k0;
    values[i] = there ? LoadCode(operand.data, operand.type, index) : 0.0f;
    if (there && operand.scales != nullptr) {
      const std::int64_t group = GroupOf(operand, row0 + slot.row, k0 + slot.k);
      if (operand.zeros != nullptr) values[i] -= LoadCode(operand.zeros, operand.zero_type, group);
      values[i] *= LoadCode(operand.scales, operand.scale_type, group);
    }
  }
}

__device__ __forceinline__ void Put(const Operand& operand, const float (&values)[kLoads],
                                    float (&tile)[kTileK][kPitch]) {
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const Slot slot = SlotOf(operand, i);
    tile[slot.k][slot.row] = values[i];
  }
}

__global__ void __launch_bounds__(kThreads, kCtas) AnyShapeSimt(const __grid_constant__ Problem p) {
  extern __shared__ __align__(16) float smem[];
  auto& tile_a = *reinterpret_cast<float(*)[kTileK][kPitch]>(smem);
  auto& tile_b = *reinterpret_cast<float(*)[kTileK][kPitch]>(smem + kTileK * kPitch);
  const int row = static_cast<int>(threadIdx.x) / (kTile / kEach) * kEach;
  const int col = static_cast<int>(threadIdx.x) % (kTile / kEach) * kEach;
  for (std::int64_t work = blockIdx.x; work < p.order.count(); work += gridDim.x) {
    const WorkOrder::Position at = p.order.At(work);
    const int row0 = at.tile_m * kTile, col0 = at.tile_n * kTile;
    const int k_tiles = (p.k - 1) / kTileK + 1;
    const int end = SplitBegin(k_tiles, p.order.splits, at.split + 1);
    int step = SplitBegin(k_tiles, p.order.splits, at.split);

    float sums[kEach * kEach] = {};
    float next_a[kLoads], next_b[kLoads];
    Fetch(p.operands[0], row0, p.m, step * kTileK, p.k, next_a);
    Fetch(p.operands[1], col0, p.n, step * kTileK, p.k, next_b);
    for (; step < end; ++step) {
      __syncthreads();  // the tile before is read
      Put(p.operands[0], next_a, tile_a);
      Put(p.operands[1], next_b, tile_b);
      __syncthreads();
      if (step + 1 < end) {
        Fetch(p.operands[0], row0, p.m, (step + 1) * kTileK, p.k, next_a);
        Fetch(p.operands[1], col0, p.n, (step + 1) * kTileK, p.k, next_b);
      }
#pragma unroll 8
      for (int k = 0; k < kTileK; ++k) {
        const float4 a4 = *reinterpret_cast<const float4*>(&tile_a[k][row]);
        const float4 b4 = *reinterpret_cast<const float4*>(&tile_b[k][col]);
        const float a[kEach] = {a4.x, a4.y, a4.z, a4.w}, b[kEach] = {b4.x, b4.y, b4.z, b4.w};
#pragma unroll
        for (int i = 0; i < kEach * kEach; ++i) {
          sums[i] = fmaf(a[i / kEach], b[i % kEach], sums[i]);
        }
      }
    }
    __syncthreads();  // the last tiles are read
    Finish<kThreads, kTile, kTile>(
        p, at, sums, [&](int i) { return make_int2(row + i / kEach, col + i % kEach); }, smem);
  }
}

}  // namespace

const CompiledKernel& SimtKernel() {
  static const CompiledKernel kernel = {.id = "any/64x64",
                                        .function = reinterpret_cast<const void*>(&AnyShapeSimt),
                                        .type = DataType::kNull,
                                        .tile_m = kTile,
                                        .tile_n = kTile,
                                        .tile_k = kTileK,
                                        .threads = kThreads,
                                        .stages = 1,
                                        .smem_bytes = kSmemBytes,
                                        .ctas = kCtas,
                                        .registers = 114};
  return kernel;
}

}  // namespace culet::any_shape
