// A product as cuBLASLt's descriptors say it.
//
// The library knows column-major matrices: D(M,N) in row-major order is D^T(N,M) to it, made of B^T
// and A^T. So its left operand is our B where D is row-major, our A where D is column-major.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "culet/desc.h"
#include "culet/kernel.h"
#include "culet/status.h"
#include "kernels/cublaslt/lt_library.h"

namespace culet::lt {

/// The library's workspace, always of this size, which decides which algorithms are offered and
/// what bits they give. NVIDIA's advice for Hopper.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

/// How A and B are scaled.
struct Scaling {
  QuantDesc quant_a, quant_b;
  ScaleMode mode_a = kScalar32F, mode_b = kScalar32F;
};

/// Where the library has a kind of product.
struct Reach {
  int least_arch, most_arch;
  std::size_t least_version;
};

/// What PredictUs is made of.
struct Costs {
  double launch_us, bandwidth_share, matrix_share;
  double tile_k = 0;  ///< so many elements of K are what a tile's begin and end take
};

/// One kind of product that the library knows.
struct Format {
  const char* id;  ///< of the kernel
  DataType type;   ///< of A and B
  Scaling scaling;
  Reach reach;
  Costs costs;
};

std::span<const Format> Formats();

/// Whether A or B is scaled.
constexpr bool IsScaled(const Format& format) noexcept {
  return format.scaling.quant_a.type != QuantType::kNone;
}

/// Ok, or what keeps the library from this problem as far as its manual says; the base class
/// compares architecture, types of A and B, and scales before.
Feasibility WhyNot(const Format& format, const GemmDesc& problem) noexcept;

/// Elements between two rows (columns) of each operand.
struct Strides {
  std::int64_t a = 0, b = 0, c = 0, d = 0;
};
/// Those of tightly packed operands of the problem's alignment classes, and those of `args`.
Strides PackedStrides(const GemmDesc& problem) noexcept;
Strides StridesOf(const GemmArgs& args) noexcept;

/// The descriptors of one product. Scale and bias pointers hold an aligned address that is not
/// theirs until SetPointers.
struct Problem {
  Operation operation;
  Layout left, right, c, d;
  bool swapped = false;  ///< left is B, right is A
};

/// Requires: WhyNot is ok. Errors: what the library says of an attribute.
Result<Problem> MakeProblem(const Library& library, const Format& format, const GemmDesc& desc,
                            const Strides& strides);

/// The search's bounds: the workspace, alignments, no atomics.
Result<Preference> MakePreference(const Library& library, const GemmDesc& desc);

/// Device pointers that an operation holds; null ones are left as they are.
struct Pointers {
  const void* scale_a = nullptr;
  const void* scale_b = nullptr;
  const void* bias = nullptr;
};
/// Returns the library's status.
int SetPointers(const Functions& functions, bool swapped, const Pointers& pointers,
                Operation* operation) noexcept;

}  // namespace culet::lt
