// GemmDesc: the canonical key of a problem. KernelDesc and KernelInfo: what a kernel is and costs.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "culet/problem.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// How far the rows of a matrix and the matrices of a batch lie apart, in bytes. One row, or one
/// matrix, lies apart from nothing.
enum class Pitch : std::uint8_t {
  kShort = 0,  ///< below 2^31
  kLong = 1,   ///< below 2^40, where Hopper's copy engine ends
  kFar = 2,    ///< beyond
};
const char* ToString(Pitch) noexcept;

/// One operand of a problem: its elements, and its scales where it has some (A's are U, B's are V,
/// D's are W).
/// Alignment is a class: the largest power of two up to 16 that divides the pointer and the bytes
/// between rows and between matrices. A plan made for a class refuses pointers below it. What
/// measures a problem (ScratchProblem) stands in for long pitches with short ones.
struct OperandDesc {
  DataType type = DataType::kNull;  ///< kNull: absent
  Order order = Order::kRowMajor;
  Striding striding = Striding::kFlat;
  std::uint8_t align = 16;
  Pitch pitch = Pitch::kShort;
  int pack = 0;
  QuantDesc quant{};
  DataType scale_type = DataType::kNull;
  Order scale_order = Order::kRowMajor;
  std::uint8_t scale_align = 16;
  Pitch scale_pitch = Pitch::kShort;
  int scale_pack = 0;
  DataType zero_type = DataType::kNull;  ///< kNull: no zero points
  int num = 1;                           ///< matrices: GemmDesc::num, or 1 that all share

  friend constexpr auto operator<=>(const OperandDesc&, const OperandDesc&) = default;
};

/// Everything that can change which kernel is legal or fastest. Two problems with equal GemmDescs
/// are served by the same LaunchSpec.
struct GemmDesc {
  int arch = 0;  ///< 0: the host CPU; 900: compute capability 9.0
  OperandDesc a;
  OperandDesc b{.order = Order::kColMajor, .scale_order = Order::kColMajor};
  OperandDesc c;  ///< type kNull: beta is 0, C is not read
  OperandDesc d;
  Epilogue epilogue = Epilogue::kNone;
  GateOrder gate_order = GateOrder::kEights;  ///< of an epilogue that pairs columns, else kEights
  DataType type_bias = DataType::kNull;
  Bias::Axis bias_axis = Bias::Axis::kN;
  int batch_dim = 0;
  int group_axis = -1;                      ///< -1: not grouped; see grouped_class.h
  int group_active = 0, group_experts = 0;  ///< of grouped products: experts of a token, and all
  int m = 0;
  int n = 0;
  int k = 0;
  int num = 1;  ///< matrices in the batch
  int sm_budget = 0;
  bool pdl = false;
  Accumulate accumulate = Accumulate::kPromoted;
  Determinism determinism = Determinism::kFast;

  friend constexpr auto operator<=>(const GemmDesc&, const GemmDesc&) = default;
};

/// Columns of D: n, or half of it where the epilogue pairs columns.
constexpr int ColumnsOfD(const GemmDesc& desc) noexcept {
  return IsGated(desc.epilogue) ? desc.n / 2 : desc.n;
}

/// The value of the batch dimension: m or n.
constexpr int BatchOf(const GemmDesc& desc) noexcept {
  return desc.batch_dim == 0 ? desc.m : desc.n;
}

/// (m, n, k, num), the form in which kernels take shapes.
constexpr int4 ShapeOf(const GemmDesc& desc) noexcept { return {desc.m, desc.n, desc.k, desc.num}; }

/// Checks the whole problem and makes its key. `arch` as in GemmDesc.
/// Null A, U, C or D pointers are taken as aligned to 16 bytes (a plan may be made before they
/// exist); B and V are checked when given.
/// Errors: INVALID_ARGUMENT (sizes, ld, shapes, types, misaligned pointers), OUT_OF_RANGE
/// (a matrix larger than the address space). Each names the argument, the value and the way out.
Result<GemmDesc> Describe(const GemmArgs& args, int arch);

/// The problem that computes D transposed with A and B exchanged: D^T = B^T A^T.
GemmDesc Transposed(const GemmDesc& desc) noexcept;

/// One line for people: "m=16 n=4096 k=4096 bfloat16 x bfloat16 -> bfloat16".
std::string ToString(const GemmDesc& desc);

/// Where a kernel comes from.
enum class Backend : std::uint8_t {
  kReference = 0,  ///< the oracle: any problem, no speed; always the last resort
  kNative = 1,     ///< culet's own
  kLibrary = 2,    ///< a library call
  kUser = 3,       ///< registered by the user
};
const char* ToString(Backend) noexcept;

/// KernelDesc::provider of what needs no library.
inline constexpr const char* kOwnProvider = "own";

/// What a kernel is. Fields that are kNull or 0 mean "any" or "not applicable"; what they cannot
/// say is left to Kernel::why.
struct KernelDesc {
  Backend backend = Backend::kUser;
  /// Whose code computes: "own" is culet's or the user's, else a library's name as CULET_PROVIDERS
  /// takes it.
  std::string provider = kOwnProvider;
  int arch = 0;  ///< as in GemmDesc; the base feasibility demands equality
  DataType type_a = DataType::kNull;
  DataType type_b = DataType::kNull;
  DataType type_d = DataType::kNull;
  QuantDesc quant_a;  ///< compared only when type_a is set
  QuantDesc quant_b;  ///< compared only when type_b is set
  Epilogue epilogue = Epilogue::kNone;
  bool any_epilogue = false;   ///< computes every Epilogue, whatever `epilogue` says
  bool gate_halves = false;    ///< pairs columns of GateOrder::kHalves, too
  bool strided_batch = false;  ///< takes batches of matrices (kFlat, num > 1)
  bool zero_points = false;    ///< takes zero points of A and B
  bool grouped = false;        ///< computes grouped products alone, and is a GroupedKernel
  int tile_m = 0;              ///< rows of D a tile (CPU: rows a register or cache block) covers
  int tile_n = 0;
  int tile_k = 0;
  int cluster_m = 1;
  int cluster_n = 1;
  int stages = 0;
  bool split_k = false;
  /// Significant bits that the matrix unit keeps of a partial sum; from 24 on sums are FP32's.
  int accumulator_bits = 24;
  /// Elements along K after which sums move on to FP32; 0: never. Matters below 24 bits.
  int promotion_k = 0;
  Determinism determinism = Determinism::kFast;  ///< the strongest mode it keeps
  bool transpose = false;                        ///< made by transpose()
  bool pdl = false;  ///< starts early under programmatic dependent launch, where that is allowed
};

/// How a kernel keeps its partial sums: what the bound on its error depends on.
struct Accumulator {
  int bits = 24;
  int promotion_k = 0;
  friend constexpr auto operator<=>(const Accumulator&, const Accumulator&) = default;
};
inline Accumulator AccumulatorOf(const KernelDesc& desc) noexcept {
  return {desc.accumulator_bits, desc.promotion_k};
}

/// What a kernel costs. The rates are shares of the device's own measured rates (HardwareRates);
/// the cost model turns them into microseconds.
struct KernelInfo {
  std::string name;               ///< the stable id, e.g. "cpu_simd/skinny/m4"
  int registers = 0;              ///< a thread; 0 on the CPU
  int dynamic_smem_size = 0;      ///< bytes
  int max_active_ctas = 1;        ///< a multiprocessor
  int chunk_size_k = 1;           ///< k is cut into multiples of this when split
  double bandwidth_share = 0.5;   ///< of HardwareRates::read_gbps when streaming B
  double matrix_share = 0.1;      ///< of HardwareRates::gflops when B is in cache
  double tile_overhead_us = 0.0;  ///< a tile
  double launch_us = 1.0;         ///< a launch
};

}  // namespace culet
