// One matrix product as the caller states it: D = epilogue(alpha * (U.A)(V.B) + beta * C + bias),
// or a batch of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Shape and placement of one operand. `rows` and `cols` are the logical matrix: A is (m, k), B is
/// (k, n), C and D are (m, n), whatever the order. A weight stored as (n, k) with k contiguous is
/// therefore B in column-major order with ld >= k. Rows (columns) of 4-bit elements start at whole
/// bytes: their ld and batch_stride are even.
/// A batch has `num` > 1 matrices of D. An operand with num 1 is shared by all of them; scales and
/// zero points have their operand's num. Groups of one matrix (offsets, idxs) are reserved.
struct MatrixLayout {
  DataType type = DataType::kNull;
  Order order = Order::kRowMajor;
  int rows = 0;
  int cols = 0;
  std::int64_t ld = 0;            ///< elements between the starts of two rows (columns); > 0
  int pack = 0;                   ///< 0: plain; of B also a PackFormat::number (packing.h)
  int num = 1;                    ///< matrices in the batch, or 1
  const int* offsets = nullptr;   ///< group starts, (num + 1), on the device; null for kFlat
  const int* idxs = nullptr;      ///< gathered rows, on the device; null unless kIndexed
  std::int64_t batch_stride = 0;  ///< elements between two matrices; 0 where num is 1
};

/// A row-major layout; ld 0 means tightly packed.
constexpr MatrixLayout RowMajor(DataType type, int rows, int cols, std::int64_t ld = 0) noexcept {
  return {type, Order::kRowMajor, rows, cols, ld != 0 ? ld : cols, 0, 1, nullptr, nullptr};
}

/// A column-major layout; ld 0 means tightly packed.
constexpr MatrixLayout ColMajor(DataType type, int rows, int cols, std::int64_t ld = 0) noexcept {
  return {type, Order::kColMajor, rows, cols, ld != 0 ? ld : rows, 0, 1, nullptr, nullptr};
}

/// The same memory seen as the transposed matrix.
constexpr MatrixLayout Transposed(MatrixLayout layout) noexcept {
  layout.order = Transposed(layout.order);
  const int rows = layout.rows;
  layout.rows = layout.cols;
  layout.cols = rows;
  return layout;
}

/// A vector added to every row (one value a column of D) or to every column (one value a row).
struct Bias {
  const void* data = nullptr;
  DataType type = DataType::kNull;
  enum class Axis : std::uint8_t { kN = 0, kM = 1 } axis = Axis::kN;
};

/// Zero points of a quantised operand: (a - zero) * scale. They are laid out as its scales are,
/// with their order, ld, num and batch_stride, in elements of a type of their own.
struct ZeroPoints {
  const void* data = nullptr;
  DataType type = DataType::kNull;
};

/// Where an epilogue that quantises leaves D's scales, W. A plan binds it, as it binds the bias;
/// null in a plan whose launches each name theirs.
struct OutputQuant {
  QuantDesc quant;         ///< of D as the next product's A: {kK, 128} for kGatedSiluQuant
  void* scales = nullptr;  ///< W
  MatrixLayout layout;     ///< FP32, (m, ceil(columns of D / 128))
};

/// How the product is to be computed.
struct Operation {
  DispatchPolicy dispatch = DispatchPolicy::kDefault;
  Epilogue epilogue = Epilogue::kNone;
  GateOrder gate_order = GateOrder::kEights;  ///< of an epilogue that pairs columns
  QuantDesc quant_a;
  QuantDesc quant_b;
  int batch_dim = 0;  ///< the axis that varies between calls: 0 is m, 1 is n
  Bias bias;
  bool pdl = false;  ///< promises that the kernel before does not write B or V
  /// With pdl: no kernel still in flight writes memory that the next kernel reads before its own
  /// wait, so a launch may let that one begin early. True in a graph that never writes weights.
  bool pdl_chain = false;
  int sm_budget = 0;  ///< at most so many SMs (CPU: threads); 0 is all
  Accumulate accumulate = Accumulate::kPromoted;
  Determinism determinism = Determinism::kFast;
  /// The kernel's own choice for a launch (LaunchSpec::variant). The engine sets it for
  /// Kernel::Launch and Kernel::Prepare; a caller's value is ignored.
  int variant = 0;
  ZeroPoints zero_a;
  ZeroPoints zero_b;
  OutputQuant quant_d;
};

/// The whole product. Shapes: A (m, k), B (k, n), C and D (m, n), U and V as QuantDesc says; D as
/// the epilogue says.
/// U and V may be in either order; C is read only when beta is not 0, and may be D itself when it
/// has D's layout.
struct GemmArgs {
  Operation operation;
  float alpha = 1.0f;
  const void* A = nullptr;
  MatrixLayout Adesc;
  const void* U = nullptr;
  MatrixLayout Udesc;
  const void* B = nullptr;
  MatrixLayout Bdesc;
  const void* V = nullptr;
  MatrixLayout Vdesc;
  float beta = 0.0f;
  const void* C = nullptr;
  MatrixLayout Cdesc;
  void* D = nullptr;
  MatrixLayout Ddesc;
};

/// Memory that a launch may use. The caller owns it; one for each concurrent stream or captured
/// graph. Kernels leave `barriers` and `flags` zero, as InitWorkspace made them.
struct Workspace {
  void* barriers = nullptr;
  std::size_t barriers_size = 0;  ///< bytes
  void* partials = nullptr;
  std::size_t partials_size = 0;  ///< bytes
  void* tensormaps = nullptr;
  std::size_t tensormaps_size = 0;  ///< bytes
  int* flags = nullptr;
};

/// Bytes of each part of a Workspace that a launch needs.
struct WorkspaceSize {
  std::size_t barriers = 0;
  std::size_t partials = 0;
  std::size_t tensormaps = 0;
  /// Bytes of one buffer that holds all parts, each aligned to 256 bytes, and the flags; the
  /// largest std::size_t where that is more.
  std::size_t total() const noexcept;
};

/// Splits one buffer into the parts of a Workspace and zeroes barriers and flags, once.
/// Requires: `buffer` aligned to 256 bytes, `bytes` >= size.total(); host memory, or memory of the
/// current CUDA device (then asynchronous on `stream`).
/// Errors: INVALID_ARGUMENT for a null or misaligned buffer, RESOURCE_EXHAUSTED for a small one,
/// FAILED_PRECONDITION while `stream` records a graph.
Result<Workspace> InitWorkspace(const WorkspaceSize& size, void* buffer, std::size_t bytes,
                                cudaStream_t stream = nullptr);

}  // namespace culet
