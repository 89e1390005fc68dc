// The vocabulary of a matrix product: element types, orders, quantisation, policies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

// int4 is CUDA's where its header is present, else the same type spelt here, so that one signature
// serves both and this header needs no CUDA. A stream is CUDA's pointer to an incomplete type.
#if __has_include(<vector_types.h>)
#include <vector_types.h>
#else
struct alignas(16) int4 {
  int x, y, z, w;
};
#endif
struct CUstream_st;
typedef struct CUstream_st* cudaStream_t;

namespace culet {

/// Element types. A scale format is a type too, so FP32 and UE8M0 scales cannot be confused.
enum class DataType : std::uint8_t {
  kNull = 0,      ///< absent operand
  kFloat32,       ///< IEEE binary32
  kFloat16,       ///< IEEE binary16
  kBfloat16,      ///< upper half of binary32
  kFloat8_e4m3,   ///< OCP E4M3: largest 448, no infinities, 0x7f and 0xff are NaN
  kFloat8_ue8m0,  ///< OCP scale format: a power of two, 2^(byte - 127)
  kInt32,         ///< ids, positions and indices of graphs; no product takes it
  kInt4,          ///< -8 .. 7, two's complement
  kUint4,         ///< 0 .. 15
  kFloat4_e2m1,   ///< OCP E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and a sign
  kInt8,          ///< -128 .. 127, two's complement; weights of products alone
};

/// Bits per element; 0 for kNull.
constexpr int BitsOf(DataType type) noexcept {
  switch (type) {
    case DataType::kFloat32:
    case DataType::kInt32:
      return 32;
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 16;
    case DataType::kFloat8_e4m3:
    case DataType::kFloat8_ue8m0:
    case DataType::kInt8:
      return 8;
    case DataType::kInt4:
    case DataType::kUint4:
    case DataType::kFloat4_e2m1:
      return 4;
    case DataType::kNull:
      break;
  }
  return 0;
}

/// Whether two elements share a byte: element 2 i of a line is the low half of byte i.
constexpr bool IsSubByte(DataType type) noexcept {
  return type != DataType::kNull && BitsOf(type) < 8;
}

/// Bytes of the least memory that holds an element, and its alignment: 1 for the types of 4 bits,
/// 0 for kNull.
constexpr std::size_t SizeOf(DataType type) noexcept {
  return static_cast<std::size_t>((BitsOf(type) + 7) / 8);
}

/// Bytes that `elements` >= 0 side by side take, with the byte that is half used.
constexpr std::int64_t BytesOf(DataType type, std::int64_t elements) noexcept {
  return IsSubByte(type) ? elements / 2 + elements % 2
                         : elements * static_cast<std::int64_t>(SizeOf(type));
}

/// kRowMajor: element (r, c) at r * ld + c; kColMajor: at r + c * ld.
enum class Order : std::uint8_t { kColMajor = 0, kRowMajor = 1 };

constexpr Order Transposed(Order order) noexcept {
  return order == Order::kColMajor ? Order::kRowMajor : Order::kColMajor;
}

/// How a batch of matrices lies in memory. kBlocked and kIndexed are reserved: no kernel takes them
/// yet.
enum class Striding : std::uint8_t {
  kFlat = 0,     ///< one matrix, or several that lie batch_stride apart
  kBlocked = 1,  ///< groups along one axis, given by offsets
  kIndexed = 2,  ///< rows gathered by idxs
};

/// Which elements share one scale.
enum class QuantType : std::uint8_t {
  kNone = 0,
  kK = 1,       ///< group_size consecutive elements along K of one row of A (or one column of B)
  kB = 2,       ///< a block of group_size x group_size
  kTensor = 3,  ///< the whole operand
  kRow = 4,     ///< one row of A (a token), or one column of B (an output channel)
};

/// Scale granularity of an operand. A's scales U form a matrix (ceil(m / gm), ceil(k / gk)), B's
/// scales V a matrix (ceil(k / gk), ceil(n / gn)), with the gm, gn and gk of ScaleGroupOf. The last
/// group along an axis may be partial.
struct QuantDesc {
  QuantType type = QuantType::kNone;
  int group_size = 0;  ///< for kK and kB, else 0
  friend constexpr auto operator<=>(const QuantDesc&, const QuantDesc&) = default;
};

/// Whether `group_size` means something: the other types have one group size alone.
constexpr bool HasGroupSize(QuantType type) noexcept {
  return type == QuantType::kK || type == QuantType::kB;
}

/// What shares one scale: `outer` rows of A (columns of B), `k` elements of each along K.
struct ScaleGroup {
  int outer = 1;
  int k = 1;
};

/// The groups of an operand of `outer` rows (columns) of `k` elements: element (i, l) belongs to
/// group (i / group.outer, l / group.k). Requires: group_size >= 1 where the type has one.
constexpr ScaleGroup ScaleGroupOf(const QuantDesc& quant, int outer, int k) noexcept {
  switch (quant.type) {
    case QuantType::kK:
      return {1, quant.group_size};
    case QuantType::kB:
      return {quant.group_size, quant.group_size};
    case QuantType::kRow:
      return {1, k};
    case QuantType::kTensor:
    case QuantType::kNone:
      break;
  }
  return {outer, k};
}

/// What happens to alpha * A B + beta * C + bias before it is rounded and stored.
enum class Epilogue : std::uint8_t {
  kNone = 0,
  /// silu(gate) * up, silu(x) = x / (1 + exp(-x)), with x = alpha * A B + beta * C + bias: half of
  /// the n columns are gate's, half up's, as GateOrder says. D is (m, n / 2). n % 16 == 0.
  kGatedSilu = 1,
  /// kGatedSilu, rounded to FP32 and quantised as QuantizeGroups does: D is E4M3, with one FP32
  /// scale for 128 columns of a row (Operation::quant_d). The last group of a row may be partial.
  kGatedSiluQuant = 2,
};

/// Whether the epilogue pairs columns: D has n / 2.
constexpr bool IsGated(Epilogue epilogue) noexcept {
  return epilogue == Epilogue::kGatedSilu || epilogue == Epilogue::kGatedSiluQuant;
}

/// How the columns of gate and up lie in B, and in C and the bias, where the epilogue pairs them.
enum class GateOrder : std::uint8_t {
  /// Groups of 16: eight of gate, then the eight of up that belong to them.
  kEights = 0,
  /// All of gate, then all of up: two weights of a checkpoint, concatenated. B's block scales are
  /// then those of both weights if n / 2 is a multiple of the block.
  kHalves = 1,
};

/// The columns of a product of n columns that column `column` of D pairs.
struct GatePair {
  int gate, up;
};
constexpr GatePair PairOf(GateOrder order, int n, int column) noexcept {
  if (order == GateOrder::kHalves) return {column, n / 2 + column};
  const int gate = column / 8 * 16 + column % 8;
  return {gate, gate + 8};
}

/// Where Gemm takes its choice from.
enum class DispatchPolicy : std::uint8_t {
  kDefault = 0,  ///< a measured entry; else the cost model, anchored on measured neighbours
  kMeasure = 1,  ///< a measured entry; else tune now and remember
  kReuse = 2,    ///< a measured entry; else the entry of the next smaller batch; else kDefault
};

/// How partial sums are kept on matrix units whose accumulators hold fewer than 24 bits.
enum class Accumulate : std::uint8_t {
  kPromoted = 0,  ///< promoted to FP32 within K
  kFast = 1,      ///< may stay in the unit's own accumulator, with a bound that grows with K
  kFull = 2,      ///< 24 bits or more throughout: such units take no part
};

/// What a caller may rely on between two runs. A later value includes the earlier ones.
enum class Determinism : std::uint8_t {
  kFast = 0,            ///< nothing
  kRepeatable = 1,      ///< same problem and machine: same bits
  kBatchInvariant = 2,  ///< the bits of a row depend on that row, B and k alone
};

const char* ToString(DataType) noexcept;
const char* ToString(Order) noexcept;
const char* ToString(Striding) noexcept;
const char* ToString(QuantType) noexcept;
const char* ToString(Epilogue) noexcept;
const char* ToString(GateOrder) noexcept;
const char* ToString(DispatchPolicy) noexcept;
const char* ToString(Accumulate) noexcept;
const char* ToString(Determinism) noexcept;

/// The inverse of ToString; empty for a text that names no value.
template <class Enum>
std::optional<Enum> FromString(std::string_view text) noexcept;

}  // namespace culet
