// GemmDesc: the canonical key of a problem. KernelDesc and KernelInfo: what a kernel is and costs.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "culet/problem.h"
#include "culet/status.h"
#include "culet/types.h"

namespace culet {

/// Everything that can change which kernel is legal or fastest. Two problems with equal GemmDescs
/// are served by the same LaunchSpec.
struct GemmDesc {
  int arch = 0;  ///< 0: the host CPU; 900: compute capability 9.0
  DataType type_a = DataType::kNull;
  DataType type_b = DataType::kNull;
  DataType type_c = DataType::kNull;  ///< kNull: beta is 0, C is not read
  DataType type_d = DataType::kNull;
  Order order_a = Order::kRowMajor;
  Order order_b = Order::kColMajor;
  Order order_c = Order::kRowMajor;
  Order order_d = Order::kRowMajor;
  Striding striding_a = Striding::kFlat;
  Striding striding_b = Striding::kFlat;
  Striding striding_d = Striding::kFlat;
  int pack_a = 0;
  int pack_b = 0;
  int pack_u = 0;
  int pack_v = 0;
  QuantDesc quant_a;
  QuantDesc quant_b;
  DataType type_u = DataType::kNull;  ///< scale type of A
  DataType type_v = DataType::kNull;  ///< scale type of B
  Order order_u = Order::kRowMajor;
  Order order_v = Order::kColMajor;
  Epilogue epilogue = Epilogue::kNone;
  DataType type_bias = DataType::kNull;
  Bias::Axis bias_axis = Bias::Axis::kN;
  // Alignment classes: the largest power of two up to 16 that divides the pointer and the bytes
  // between rows. A plan made for a class refuses pointers below it.
  std::uint8_t align_a = 16;
  std::uint8_t align_b = 16;
  std::uint8_t align_u = 16;
  std::uint8_t align_v = 16;
  std::uint8_t align_c = 16;
  std::uint8_t align_d = 16;
  int batch_dim = 0;
  int group_axis = -1;  ///< -1: not grouped
  int m = 0;
  int n = 0;
  int k = 0;
  int num = 1;
  int sm_budget = 0;
  bool pdl = false;
  Accumulate accumulate = Accumulate::kPromoted;
  Determinism determinism = Determinism::kFast;

  friend auto operator<=>(const GemmDesc&, const GemmDesc&) = default;
};

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
  int tile_m = 0;  ///< rows of D a tile (CPU: rows a register or cache block) covers
  int tile_n = 0;
  int tile_k = 0;
  int cluster_m = 1;
  int cluster_n = 1;
  int stages = 0;
  bool split_k = false;
  Determinism determinism = Determinism::kFast;  ///< the strongest mode it keeps
  bool transpose = false;                        ///< made by transpose()
  bool pdl = false;  ///< starts early under programmatic dependent launch, where that is allowed
};

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
