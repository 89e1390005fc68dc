// Scales in the layouts that cuBLASLt reads. Where the caller's differ, a small kernel copies them
// into the workspace at every launch: they may change between launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "culet/problem.h"
#include "kernels/cublaslt/lt_problem.h"

namespace culet::lt {

/// Scale (i, j) of an operand lies at i * slow_stride + j * fast_stride in the caller's memory, and
/// at i * pitch + j in the library's; what pads a row of it to the pitch is zero.
struct ScaleMatrix {
  int slow = 0;  ///< 0: the operand has no scales
  int fast = 0;
  int pitch = 0;
  std::int64_t slow_stride = 0;
  std::int64_t fast_stride = 0;

  std::size_t bytes() const noexcept {
    return static_cast<std::size_t>(slow) * static_cast<std::size_t>(pitch) * sizeof(float);
  }
  /// Whether the library can read the caller's memory at `data`.
  bool InPlace(const void* data) const noexcept {
    return fast_stride == 1 && (slow == 1 || slow_stride == pitch) && fast == pitch &&
           reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  }
};

/// Both operands' scales.
struct Scales {
  ScaleMatrix a, b;
  /// Workspace for copies of both, each aligned to 256 bytes.
  std::size_t bytes() const noexcept { return offset_b() + Padded(b.bytes()); }
  std::size_t offset_b() const noexcept { return Padded(a.bytes()); }

 private:
  static constexpr std::size_t Padded(std::size_t bytes) noexcept {
    return (bytes + 255) / 256 * 256;
  }
};

/// The scales of a problem of `format`. VEC128: one column of D's rows after the other for every
/// 128 of K. BLK128x128: the blocks along K one after the other, padded to a multiple of four, for
/// every 128 columns of B. OUTER_VEC: a vector. SCALAR: one number. Strides are those of the
/// layouts; of a GemmDesc alone, which has none, only bytes() means something.
Scales ScalesOf(const Format& format, const GemmDesc& desc, const MatrixLayout& u,
                const MatrixLayout& v) noexcept;

/// A copy to make; null `from`: none.
struct ScaleCopy {
  const float* from = nullptr;
  float* to = nullptr;
  ScaleMatrix matrix;
};

/// Copies on `stream` of the current device. Returns the launch's own error.
cudaError_t CopyScales(const ScaleCopy& a, const ScaleCopy& b, cudaStream_t stream) noexcept;

/// Loads the copying kernel on the current device; not during a capture.
cudaError_t LoadCopyScales() noexcept;

}  // namespace culet::lt
