// One launch of cuBLASLt, made once.
#pragma once

#include <cuda_runtime_api.h>

#include "culet/problem.h"
#include "culet/status.h"
#include "kernels/cublaslt/lt_problem.h"
#include "kernels/cublaslt/lt_scales.h"

namespace culet::lt {

/// What can change between launches, as PreparedKernel::Launch takes it.
struct Operands {
  float alpha = 1.0f;
  float beta = 0.0f;
  const void* a = nullptr;
  const void* u = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
};

/// Plain data: copied, and started from several threads at a time.
struct LtLaunch {
  const Library* library = nullptr;
  Handle handle = nullptr;
  Problem problem{};  ///< with the pointer of a bias that is not copied
  Algorithm algorithm{};
  Scales scales;
  bool scaled = false;
  bool has_c = false;
  const void* b = nullptr;
  const void* v = nullptr;
  const void* bias = nullptr;  ///< to be copied to where it is aligned; null: none, or in place
  std::size_t bias_bytes = 0;  ///< of any bias

  /// Allocates nothing and takes no lock. Returns 0, a StatusCode or a negated cudaError_t.
  int Start(const Operands& operands, const Workspace& workspace,
            cudaStream_t stream) const noexcept;

  /// Records the launch into a graph that is thrown away: the library makes its decisions and loads
  /// its kernels, which it must not do inside a caller's capture, and says so if it refuses after
  /// all. Touches no operand. The device is current.
  /// Errors: what the library or CUDA says.
  Status Rehearse() const;
};

/// Workspace::partials of a launch: what the library gets, then copies of scales and of a bias.
std::size_t PartialBytes(const Scales& scales, std::size_t bias_bytes) noexcept;

}  // namespace culet::lt
