// Copies scales through shared memory, so that both sides are read and written in lines whatever
// their order.
#include <algorithm>

#include "kernels/cublaslt/lt_scales.h"

namespace culet::lt {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;

struct Copies {
  ScaleCopy copy[2];
};

__global__ void __launch_bounds__(kTile* kRows)
    CopyScalesKernel(const __grid_constant__ Copies copies) {
  __shared__ float tile[kTile][kTile + 1];
  const ScaleCopy& copy = copies.copy[blockIdx.z];
  if (copy.from == nullptr) return;
  const ScaleMatrix& matrix = copy.matrix;
  const bool along_fast = matrix.fast_stride == 1;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int slow0 = static_cast<int>(blockIdx.y) * kTile; slow0 < matrix.slow;
       slow0 += static_cast<int>(gridDim.y) * kTile) {
    for (int fast0 = static_cast<int>(blockIdx.x) * kTile; fast0 < matrix.pitch;
         fast0 += static_cast<int>(gridDim.x) * kTile) {
      for (int row = y; row < kTile; row += kRows) {
        // Neighbouring threads read neighbouring scales.
        const int slow = slow0 + (along_fast ? row : x), fast = fast0 + (along_fast ? x : row);
        const bool inside = slow < matrix.slow && fast < matrix.fast;
        const float scale =
            inside ? copy.from[slow * matrix.slow_stride + fast * matrix.fast_stride] : 0.0f;
        tile[slow - slow0][fast - fast0] = scale;
      }
      __syncthreads();
      for (int row = y; row < kTile; row += kRows) {
        const int slow = slow0 + row, fast = fast0 + x;
        if (slow < matrix.slow && fast < matrix.pitch) {
          copy.to[static_cast<std::int64_t>(slow) * matrix.pitch + fast] = tile[row][x];
        }
      }
      __syncthreads();
    }
  }
}

unsigned Tiles(int size, int most) {
  return static_cast<unsigned>(std::clamp((size - 1) / kTile + 1, 1, most));
}

}  // namespace

cudaError_t CopyScales(const ScaleCopy& a, const ScaleCopy& b, cudaStream_t stream) noexcept {
  if (a.from == nullptr && b.from == nullptr) return cudaSuccess;
  Copies copies{{a, b}};
  const int fast = std::max(a.matrix.pitch, b.matrix.pitch);
  const int slow = std::max(a.matrix.slow, b.matrix.slow);
  void* arguments[] = {&copies};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&CopyScalesKernel),
                          dim3(Tiles(fast, 512), Tiles(slow, 64), 2), dim3(kTile, kRows), arguments,
                          0, stream);
}

cudaError_t LoadCopyScales() noexcept {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&CopyScalesKernel));
}

}  // namespace culet::lt
