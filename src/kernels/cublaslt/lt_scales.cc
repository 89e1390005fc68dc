#include "kernels/cublaslt/lt_scales.h"

namespace culet::lt {
namespace {

constexpr int kGroup = 128;
constexpr int kBlockPitch = 4;  // BLK128x128 pads the blocks along K to a multiple of it

constexpr int Groups(int size) noexcept { return (size - 1) / kGroup + 1; }

// `outer` counts rows of A or columns of B (or their blocks), `along_k` blocks along K.
ScaleMatrix MatrixOf(ScaleMode mode, int outer, int along_k, std::int64_t outer_stride,
                     std::int64_t k_stride) noexcept {
  if (mode == kBlk128x128_32F) {
    const int pitch = (along_k + kBlockPitch - 1) / kBlockPitch * kBlockPitch;
    return {outer, along_k, pitch, outer_stride, k_stride};
  }
  return {along_k, outer, outer, k_stride, outer_stride};
}

ScaleMatrix MatrixOf(ScaleMode mode, int outer, int k, Order along_k_order,
                     const MatrixLayout& layout) noexcept {
  const bool k_contiguous = layout.order == along_k_order;
  const std::int64_t outer_stride = k_contiguous ? layout.ld : 1;
  const std::int64_t k_stride = k_contiguous ? 1 : layout.ld;
  const int blocks = mode == kOuterVec32F ? 1 : Groups(k);
  return MatrixOf(mode, mode == kBlk128x128_32F ? Groups(outer) : outer, blocks, outer_stride,
                  k_stride);
}

}  // namespace

Scales ScalesOf(const Format& format, const GemmDesc& desc, const MatrixLayout& u,
                const MatrixLayout& v) noexcept {
  Scales scales;
  if (!IsScaled(format)) return scales;
  if (format.scaling.mode_a == kScalar32F) {
    // One number; 13.1.0 refuses it where it lies on fewer than 16 bytes.
    scales.a = scales.b = {1, 1, 1, 1, 1};
    return scales;
  }
  scales.a = MatrixOf(format.scaling.mode_a, desc.m, desc.k, Order::kRowMajor, u);
  scales.b = MatrixOf(format.scaling.mode_b, desc.n, desc.k, Order::kColMajor, v);
  return scales;
}

}  // namespace culet::lt
